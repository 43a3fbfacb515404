"""Runs every measurement with its defaults."""

from bench import append

append.app(prog_name="python -m bench")
