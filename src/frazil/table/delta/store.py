"""Where the log of a Delta table is, for those who do not ask delta-rs."""

from __future__ import annotations

from obstore.store import ObjectStore, from_url


def log_store(uri: str) -> ObjectStore:
    """The folder of the log, as the same library opens it that delta-rs is built on."""
    return from_url(f"{uri}/_delta_log")
