"""`frazil` with its crash points watched, in the driver and in the Python workers that Spark forks for it."""

from __future__ import annotations

from frazil import cli
from frazil.spark import session
from tests.certify.points import watch

if __name__ == "__main__":
    watch("driver")
    session._CORE_CONF["spark.python.daemon.module"] = "tests.certify.daemon"
    cli.main()
