"""A broker, a stream of orders and a table, for a first look at frazil."""
