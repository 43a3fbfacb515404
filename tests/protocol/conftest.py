"""Properties are checked with the same examples on every run, and take as long as a busy machine needs."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("protocol", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("protocol")
