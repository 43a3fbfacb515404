"""Runs the one that is asked for most."""

from bench import append

append.app(prog_name="python -m bench")
