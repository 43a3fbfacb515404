"""Where a Delta table is, for those who do not ask delta-rs: by the library that delta-rs itself is built on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from obstore.store import ObjectStore, from_url

from frazil.table.delta.place import RETRIES, RETRY_TIMEOUT_S, Place

_ALLOW_HTTP = "allow_http"


def open_store(place: Place, folder: str = "") -> ObjectStore:
    """The table's folder, or one below it."""
    uri = f"{place.uri}/{folder}".rstrip("/")
    if place.address is None:
        return from_url(uri)
    options = place.address.rust_options()
    settings: dict[str, Any] = {
        "client_options": {"allow_http": options.pop(_ALLOW_HTTP, "false") == "true"},
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
        "config": options,
    }
    store: ObjectStore = from_url(uri, **settings)
    return store


def log_store(place: Place) -> ObjectStore:
    """The folder of the log."""
    return open_store(place, "_delta_log")
