"""Errors on their way from a worker to the driver.

Spark hands the driver the text of a worker's traceback. The error itself rides along in that text, pickled,
so that the driver decides by class and never by words.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from frazil.errors import FrazilError, WorkerFailed

_MARK = re.compile(r"\[frazil:([A-Za-z0-9+/=]+)\]")


class Carried(Exception):
    """What a worker raises: readable text with the error in it."""


@contextmanager
def carrying() -> Iterator[None]:
    """Packs frazil's own errors for the trip."""
    try:
        yield
    except FrazilError as error:
        packed = base64.b64encode(pickle.dumps(error)).decode()
        raise Carried(f"{error.message} [frazil:{packed}]") from error


def unpack(failure: Exception) -> FrazilError:
    """The error that a failed Spark job was about."""
    text = str(failure)
    if (mark := _MARK.search(text)) is not None:
        error = pickle.loads(base64.b64decode(mark[1]))
        assert isinstance(error, FrazilError)
        return error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = next((line for line in lines if "Error" in line or "Exception" in line), lines[0] if lines else "")
    return WorkerFailed(f"a Spark task failed: {telling[:500]}", "Spark's log and UI have the whole story")
