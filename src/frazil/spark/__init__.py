"""The Spark session, the Java it runs on, the jars it needs, and the way across into the JVM.

The names load on first use: `python -m frazil.spark.java` and `python -m frazil.spark.jars` are commands of
their own, and neither they nor a worker should pay for what they do not touch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.spark.attempts import ran_more_than_once
    from frazil.spark.gateway import ensure_callbacks, first_line, java_exception_classes, jvm, jvm_has_ended
    from frazil.spark.java import java_home
    from frazil.spark.log_store import LOG_STORE, LOG_STORE_KEY, has_log_store
    from frazil.spark.session import open_session, own_session, require_delta, require_iceberg

__all__ = [
    "LOG_STORE",
    "LOG_STORE_KEY",
    "ensure_callbacks",
    "first_line",
    "has_log_store",
    "java_exception_classes",
    "java_home",
    "jvm",
    "jvm_has_ended",
    "open_session",
    "own_session",
    "ran_more_than_once",
    "require_delta",
    "require_iceberg",
]

_MODULE_OF = {
    "LOG_STORE": "frazil.spark.log_store",
    "LOG_STORE_KEY": "frazil.spark.log_store",
    "ensure_callbacks": "frazil.spark.gateway",
    "first_line": "frazil.spark.gateway",
    "has_log_store": "frazil.spark.log_store",
    "java_exception_classes": "frazil.spark.gateway",
    "java_home": "frazil.spark.java",
    "jvm": "frazil.spark.gateway",
    "jvm_has_ended": "frazil.spark.gateway",
    "open_session": "frazil.spark.session",
    "own_session": "frazil.spark.session",
    "ran_more_than_once": "frazil.spark.attempts",
    "require_delta": "frazil.spark.session",
    "require_iceberg": "frazil.spark.session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
