"""Side-by-side measurements of frazil and its peers, on real servers.

python -m bench              every measurement, one after the other
python -m bench.append       one of them, with options: --help
"""
