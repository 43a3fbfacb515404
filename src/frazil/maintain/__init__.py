"""Tending tables: fewer and larger files, and none that nobody needs."""

from frazil.maintain.delta import Optimized, Vacuumed, optimize, vacuum

__all__ = ["Optimized", "Vacuumed", "optimize", "vacuum"]
