"""Side-by-side measurements of frazil and its peers, on real servers.

python -m bench.append       a topic into a table, beside Spark's own parts; also: python -m bench
python -m bench.upsert       changes into a table, beside MERGE INTO
python -m bench.memory       how large a worker grows
"""
