"""Whether frazil may write to a Delta table as it is: one feature it does not follow, and rows could go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deltalake.table import ProtocolVersions

from frazil.errors import ConfigError

WIDENS = "delta.enableTypeWidening"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
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
    "identityColumns",
    "invariants",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "variantType",
}
"""Columns that frazil does not write are refused one by one; delta-rs lists variants unasked."""
_NOT_BY_DELTA_RS = {"identityColumns", "typeWidening"}
"""Tables that list these are read by delta-rs, and not written to."""
_OF_READERS = {2: {"columnMapping"}}
"""What a reader version stands for; writers have to know it, too."""
_LISTING = (3, 7)
"""The versions of readers and writers from which on features are listed."""
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


def is_by_delta_rs(protocol: ProtocolVersions) -> bool:
    """Whether delta-rs writes versions of such a table."""
    return not _NOT_BY_DELTA_RS & _used(protocol.min_writer_version, protocol.writer_features)


def with_features(protocol: ProtocolVersions, needed: set[str]) -> dict[str, Any] | None:
    """The protocol with features that readers have to know; None if it has them."""
    readers, writers = _listed(protocol)
    if needed <= readers & writers:
        return None
    return {
        "minReaderVersion": _LISTING[0],
        "minWriterVersion": _LISTING[1],
        "readerFeatures": sorted(readers | needed),
        "writerFeatures": sorted(writers | needed),
    }


def _listed(protocol: ProtocolVersions) -> tuple[set[str], set[str]]:
    """Of readers and of writers; whatever the versions stood for may have been used, so it is listed."""
    readers = set(protocol.reader_features or [])
    writers = _used(protocol.min_writer_version, protocol.writer_features)
    if protocol.min_reader_version < _LISTING[0]:
        readers = _up_to(protocol.min_reader_version, _OF_READERS) & writers
        writers -= _up_to(_LISTING[0], _OF_READERS) - readers
    return readers, writers


def _used(writer_version: int, writer_features: list[str] | None) -> set[str]:
    return set(writer_features or []) if writer_version >= _LISTING[1] else _up_to(writer_version, _LEGACY)


def _up_to(version: int, features: Mapping[int, set[str]]) -> set[str]:
    return {name for number, names in features.items() if number <= version for name in names}


def _unfollowed_features(
    writer_version: int,
    writer_features: list[str] | None,
    configuration: Mapping[str, str | None],
    fields: list[Mapping[str, Any]],
) -> Iterator[str]:
    yield from sorted(_used(writer_version, writer_features) - _FOLLOWED)
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
