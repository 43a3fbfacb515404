"""Errors on their way from a worker to the driver.

Spark hands the driver the text of a worker's traceback. The error itself rides along in that text, so that the
driver decides by class and never by words. It travels as JSON and never as a pickle: the same text may quote a
record, and whoever can write to a topic must not be able to run code on the driver.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from frazil import errors
from frazil.errors import FrazilError, WorkerFailed

_MARK = re.compile(r"\[frazil:([A-Za-z0-9+/=]+)\]")
_CLASSES = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, FrazilError)
}


class Carried(Exception):
    """What a worker raises: readable text with the error in it."""


@contextmanager
def carrying() -> Iterator[None]:
    """Packs frazil's own errors for the trip."""
    try:
        yield
    except FrazilError as error:
        packed = base64.b64encode(json.dumps([type(error).__name__, *error.args]).encode()).decode()
        raise Carried(f"{error.message} [frazil:{packed}]") from error


@contextmanager
def unpacking() -> Iterator[None]:
    """On the driver, around a Spark job: what comes out is one of frazil's own errors."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as failure:
        raise unpack(failure) from failure


def unpack(failure: Exception) -> FrazilError:
    """The error that a failed Spark job was about.

    The packed error ends the worker's traceback; whatever looks like one before it is a quotation.
    """
    text = str(failure)
    for packed in reversed(_MARK.findall(text)):
        if (error := _unpacked(packed)) is not None:
            return error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A Python traceback ends with what happened; Java's begins with it.
    python = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    telling = (python or lines or [""])[-1 if python else 0]
    return WorkerFailed(f"a Spark task failed: {telling[:500]}", "Spark's log and UI have the whole story")


def _unpacked(packed: str) -> FrazilError | None:
    try:
        name, *facts = json.loads(base64.b64decode(packed))
        return _CLASSES[name](*map(str, facts))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
