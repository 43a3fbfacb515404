"""`python -m frazil`, and what spark-submit is given."""

from frazil.cli import main

main()
