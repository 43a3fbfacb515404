"""Whether a store refuses the second of two writers of one file.

A version of a Delta table is one file that is created if it is not there: of two drivers that create the same one,
the second must be told. Disks do that, and so do the large stores, but some that speak S3 pass over the condition
and let the second write win: its version takes the place of the first one's, and rows are gone. No setting tells
which a store is, so it is tried.

    the second write      the store
    is refused            is taken
    succeeds              is refused, unless the user answers for it that there is one driver only
    is not understood     is refused: delta-rs writes no version without the condition
"""

from __future__ import annotations

import contextlib
import secrets

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from frazil.errors import CatalogUnavailable, UnsupportedCatalog
from frazil.table.delta.place import Place, in_one_line
from frazil.table.delta.store import open_store
from frazil.table.files import STAGED_FOLDER

log = structlog.get_logger()

_NOT_UNDERSTOOD = "501 Not Implemented"
_ANOTHER_STORE = "use a store that knows conditional writes (If-None-Match)"


def require_one_winner(name: str, place: Place, *, unsafe: bool) -> None:
    """Refuses a store on which two drivers could overwrite each other, unless the user answers for it."""
    if place.address is None or _has_one_winner(name, place):
        return
    if not unsafe:
        raise UnsupportedCatalog(
            f"{name}: of two writers that create the same file, {place.described} lets the second one win: two "
            "drivers would overwrite each other's versions, and rows would be lost",
            f"{_ANOTHER_STORE}; if you make sure that never more than one process writes to the table, say so: "
            "table.unsafe_rename = true",
        )
    log.warning(
        "the store lets the second of two writers win: never let another process write to this table",
        table=name,
        place=place.described,
    )


def _has_one_winner(name: str, place: Place) -> bool:
    path = f"{STAGED_FOLDER}/probe-{secrets.token_hex(6)}"
    try:
        store = open_store(place)
        has_one = _is_told(store, path)
    except (BaseError, OSError) as error:
        if _NOT_UNDERSTOOD in str(error):
            raise UnsupportedCatalog(
                f"{name}: {place.described} does not know conditional writes, "
                "without which no version can be written",
                _ANOTHER_STORE,
            ) from None
        raise CatalogUnavailable(
            f"{name} could not be written to at {place.described}: {in_one_line(error)}",
            "check that the address is right, that the store is up, and that you may write to the bucket",
        ) from None
    with contextlib.suppress(BaseError, OSError):  # a few bytes that nobody reads
        obstore.delete(store, path)
    return has_one


def _is_told(store: ObjectStore, path: str) -> bool:
    """Nobody else has this path, so whoever is told that it is there is told of a write of our own."""
    try:
        for text in (b"the first", b"the second"):
            obstore.put(store, path, text, mode="create")
    except AlreadyExistsError:
        return True
    return False
