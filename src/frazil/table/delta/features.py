"""Whether frazil may write to a Delta table as it is: one feature it does not follow, and rows could go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from frazil.errors import ConfigError

TXN_RETENTION = "delta.setTransactionRetentionDuration"

_LEGACY = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}
"""What a writer version stands for, each with those below it; from version 7 on features are listed by name."""
_FOLLOWED = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
}
"""Columns of types that frazil does not write are refused one by one; delta-rs lists variants unasked."""
_BROUGHT_ALONG = {"identityColumns"}
"""By versions below 7, used or not."""
_CONSTRAINT = "delta.constraints."
_INVARIANT = "delta.invariants"
_IDENTITY = "delta.identity.start"
_BOUNDED_TEXT = "__CHAR_VARCHAR_TYPE_STRING"
_MAPPING = "delta.columnMapping.mode"
_APPEND_ONLY = "delta.appendOnly"


def is_mapped(configuration: Mapping[str, str | None]) -> bool:
    """Whether files have other names for columns than users."""
    return (configuration.get(_MAPPING) or "none") != "none"


def rules(configuration: Mapping[str, str | None]) -> dict[str, str | None]:
    """The properties that tell writers what they may do."""
    told = {TXN_RETENTION, _MAPPING, _APPEND_ONLY}
    kept = [key for key in configuration if key in told or key.startswith(_CONSTRAINT)]
    return {key: configuration[key] for key in sorted(kept)}


def require_keeping(table: str, configuration: Mapping[str, str | None]) -> None:
    """Refuses a table that forgets registers: what Delta erases after a while cannot be a checkpoint."""
    if configuration.get(TXN_RETENTION):
        raise ConfigError(
            f"{table} has the property {TXN_RETENTION} = {configuration[TXN_RETENTION]!r}: "
            "Delta would erase the pipeline's register, and records would land twice",
            f"ALTER TABLE … UNSET TBLPROPERTIES ('{TXN_RETENTION}')",
        )


def require_writable(
    table: str,
    writer_version: int,
    writer_features: list[str] | None,
    configuration: Mapping[str, str | None],
    fields: list[Mapping[str, Any]],
    *,
    only_appends: bool,
) -> None:
    """Refuses a table with a feature that frazil does not follow, and names it."""
    require_keeping(table, configuration)
    for feature in _unfollowed_features(writer_version, writer_features, configuration, fields):
        raise ConfigError(
            f"{table} uses the Delta feature {feature}, which frazil cannot follow when it writes",
            "drop the feature from the table, or land in another one",
        )
    if not only_appends and (configuration.get(_APPEND_ONLY) or "").lower() == "true":
        raise ConfigError(
            f"{table} has the property {_APPEND_ONLY} = 'true', so no row of it can be changed",
            'use table.mode = "append", or unset the property',
        )


def _unfollowed_features(
    writer_version: int,
    writer_features: list[str] | None,
    configuration: Mapping[str, str | None],
    fields: list[Mapping[str, Any]],
) -> Iterator[str]:
    used = set(writer_features or [])
    if writer_version < 7:
        used = {name for version, names in _LEGACY.items() if version <= writer_version for name in names}
        used -= _BROUGHT_ALONG
    yield from sorted(used - _FOLLOWED)
    for key in sorted(configuration):
        if key.startswith(_CONSTRAINT):
            yield f"checkConstraints ({key.removeprefix(_CONSTRAINT)})"
    for path, field in _all_fields(fields):
        metadata = field.get("metadata") or {}
        if _IDENTITY in metadata:
            yield f"identityColumns (of column {path})"
        if _INVARIANT in metadata:
            yield f"invariants (of column {path})"
        if _BOUNDED_TEXT in metadata:
            yield f"{metadata[_BOUNDED_TEXT]} (of column {path})"


def _all_fields(fields: Iterable[Mapping[str, Any]], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Also those inside of others, each with the way to it."""
    for field in fields:
        here = f"{path}{field['name']}"
        yield here, field
        yield from _all_fields(_members(field["type"]), f"{here}.")


def _members(kind: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(kind, str):
        return
    yield from kind.get("fields", ())
    for inner in ("elementType", "keyType", "valueType"):
        yield from _members(kind.get(inner, ""))
