"""The way across into Spark's JVM: classes, callbacks, and what kind of exception came back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

# A cause chain this long is a loop.
_CAUSES_MAX = 32


def jvm(spark: SparkSession) -> Any:
    """The root of all Java packages: `jvm(spark).org.apache.iceberg.…`."""
    return spark.sparkContext._jvm


def ensure_callbacks(spark: SparkSession) -> None:
    """Let Java call Python objects.

    The Python thread whose call caused the callback waits until it is done. A thread that first spoke to Java
    after this call runs it itself; for an older one, such as the main thread, py4j runs it on a thread beside
    it. A callback must therefore not lean on thread-local state.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]


def jvm_has_ended(spark: SparkSession, patience_s: float = 0.0) -> bool:
    """Whether the JVM that we started is gone; one that somebody else started is not ours to watch."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def java_exception_classes(error: Py4JJavaError) -> list[frozenset[str]]:
    """The full class names of the exception, and then of each of its causes, outermost first.

    Each set holds the class, its superclasses and their interfaces, so that callers decide by kind, as a Java
    `catch` does, and never by the text of a message.
    """
    return [frozenset(_type_names(throwable.getClass())) for throwable in _cause_chain(error.java_exception)]


def first_line(error: Exception) -> str:
    """What an error of Spark says before its stack trace."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _cause_chain(throwable: Any) -> Iterator[Any]:
    for _ in range(_CAUSES_MAX):
        if throwable is None:
            return
        yield throwable
        throwable = throwable.getCause()


def _type_names(java_class: Any) -> Iterator[str]:
    while java_class is not None:
        yield java_class.getName()
        yield from (interface.getName() for interface in java_class.getInterfaces())
        java_class = java_class.getSuperclass()
