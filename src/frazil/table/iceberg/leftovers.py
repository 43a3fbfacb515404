"""What a table's folder holds, and which of it its snapshots know: for finding files that nobody references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frazil.table.storage import files_below, name_of


def referenced_paths(jvm: Any, table: Any, paths: Sequence[str], after: int) -> set[str]:
    """Those of the paths that any listed snapshot references.

    They are compared by name, which nobody else has: a folder may be spelled in more than one way.

    A file has at least the sequence number of its commit, and so have the manifests and snapshots that name it.
    Tables of format version 1 have none: all of their snapshots are looked at.
    """
    wanted, found, known = {name_of(path) for path in paths}, set[str](), set[str]()
    io, specs = table.io(), table.specs()
    for snapshot in table.snapshots().iterator():
        if 0 < snapshot.sequenceNumber() <= after:
            continue
        for manifest in snapshot.allManifests(io):
            if manifest.path() in known or 0 < manifest.sequenceNumber() <= after:
                continue
            known.add(manifest.path())
            found |= wanted.intersection(map(name_of, _paths(jvm, manifest, io, specs)))
    return {path for path in paths if name_of(path) in found}


def unreferenced_metadata(jvm: Any, table: Any, io_properties: Mapping[str, str]) -> list[str]:
    """What the metadata folder holds that the table does not know: of commits that failed, or are under way."""
    folder = table.properties().get("write.metadata.path") or f"{table.location()}/metadata"
    found, reachable = list(files_below(folder, io_properties)), jvm.org.apache.iceberg.ReachableFileUtil
    known = [*reachable.metadataFileLocations(table, False), *reachable.statisticsFilesLocations(table)]
    known += [file.path() for file in table.partitionStatisticsFiles()]
    io = table.io()
    for snapshot in table.snapshots().iterator():
        known.append(snapshot.manifestListLocation())
        known += [manifest.path() for manifest in snapshot.allManifests(io)]
    live = set(map(name_of, known)) | {"version-hint.text"}
    return sorted(path for path in found if name_of(path) not in live and not name_of(path).endswith(".crc"))


def _paths(jvm: Any, manifest: Any, io: Any, specs: Any) -> Iterator[str]:
    files = jvm.org.apache.iceberg.ManifestFiles
    if manifest.content().name() == "DATA":
        entries = files.readPaths(manifest, io, specs)
        try:
            yield from (str(path) for path in entries.iterator())
        finally:
            entries.close()
        return
    deletes = files.readDeleteManifest(manifest, io, specs)
    try:
        yield from (str(file.location()) for file in deletes.iterator())
    finally:
        deletes.close()
