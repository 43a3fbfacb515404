"""Spark's worker daemon as frazil starts it, with the crash points of workers watched."""

from __future__ import annotations

from frazil.spark.daemon import leave_archives, preload
from tests.certify.points import watch

if __name__ == "__main__":
    leave_archives()
    preload()
    watch("worker")
    from pyspark.daemon import manager

    manager()
