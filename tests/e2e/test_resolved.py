"""Changefeeds with resolved times, from Kafka and from cloud storage: each snapshot is the source at that time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.engine.inspect import inspect_pipeline
from frazil.engine.verify import verify_pipeline
from frazil.errors import ConfigError, DataLoss
from frazil.protocol.verify import Level
from frazil.serve.report import history_json, status_json

pytestmark = pytest.mark.real

FEED = {
    "table": {"mode": "upsert", "keys": ["id"]},
    "decode": {"format": "json", "schema": "id BIGINT, name STRING", "envelope": "cockroachdb"},
}
EPOCH_NS = 1_700_000_000_000_000_000
POISON = b"{"


def stamp(time: int) -> str:
    return f"{EPOCH_NS + time}.0000000000"


def mark(time: int) -> bytes:
    return json.dumps({"resolved": stamp(time)}).encode()


@dataclass
class Source:
    """A made-up database, and what its changefeed says of it."""

    changes: dict[int, tuple[int, str | None]] = field(default_factory=dict)

    def change(self, time: int, key: int, name: str | None) -> tuple[bytes, bytes]:
        """A message; the same time always means the same change."""
        self.changes[time] = (key, name)
        after = None if name is None else {"id": key, "name": name}
        return json.dumps([key]).encode(), json.dumps({"after": after, "updated": stamp(time)}).encode()

    def at(self, resolved: str) -> dict[int, str]:
        rows: dict[int, str | None] = {}
        for time, (key, name) in sorted(self.changes.items()):
            if stamp(time) <= resolved:
                rows[key] = name
        return {key: name for key, name in rows.items() if name is not None}


def later(value: bytes, time: int) -> bool:
    """Whether it is a change beyond that time."""
    return value != POISON and json.loads(value).get("updated", "") > stamp(time)


def snapshots(rig: Any) -> Iterator[tuple[Any, dict[int, str]]]:
    """Every epoch with a resolved time, and the table as it was then."""
    for record in rig.open_table().history("orders"):
        if record.resolved is not None and record.action != "start":
            found = rig.sql(f"SELECT id, name FROM {{t}} VERSION AS OF {record.snapshot_id}")
            rows = {row[0]: row[1] for row in found}
            assert len(rows) == len(found), "a key has several rows"
            yield record, rows


def holds(rig: Any) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


def produce(rig: Any, messages: list[tuple[bytes | None, bytes]], partition: int) -> None:
    rig.produce_keyed([(key and json.loads(key), value) for key, value in messages], partition)


def test_every_snapshot_is_the_source_at_its_resolved_time(
    make_rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SRC-07, SRC-08, SRC-10, EPOCH-02, EPOCH-08, EPOCH-09, COMMIT-03, COMMIT-16, LIM-06.

    Three partitions that do not keep a key together, several tasks, changes before their time, repetitions after
    it, a dead letter among what is read twice, and a second start that goes on where the first one stopped.
    """
    monkeypatch.setattr("frazil.engine.epoch._TASK_RECORDS_MIN", 1)
    rig = make_rig(partitions=3, **FEED)
    source, chance = Source(), random.Random(5)
    times = [[10, 20, 30], [10, 30], [10, 25, 40]]
    logs: list[list[list[tuple[bytes | None, bytes]]]] = [[[] for _ in range(len(some) + 1)] for some in times]
    for time in range(1, 46):
        name = f"v{time}" if chance.random() < 0.75 else None
        message = source.change(time, chance.randrange(8), name)
        partition = chance.randrange(3)
        due = sum(each < time for each in times[partition])
        segments = logs[partition]
        segments[max(0, due - chance.randrange(2))].append(message)
        while chance.random() < 0.4:
            segments[chance.randrange(due, len(segments))].append(message)
    for partition, segments in enumerate(logs):
        segments[1].insert(0, (None, POISON))
        segments[1].append((None, json.dumps({"after": {"id": 1, "name": "no time"}}).encode()))
        for segment, time in zip(segments, [*times[partition], None], strict=True):
            chance.shuffle(segment)
            if time is not None:
                segment.append((None, mark(time)))
    for partition, segments in enumerate(logs):
        produce(rig, [each for segment in segments[:2] for each in segment], partition)
    first = rig.epochs(rig.run())
    holds(rig)
    for partition, segments in enumerate(logs):
        produce(rig, [each for segment in segments[2:] for each in segment], partition)
    second = rig.epochs(rig.run())
    holds(rig)

    found = list(snapshots(rig))
    assert [record.resolved for record, _ in found] == [stamp(time) for time in (10, 20, 25, 30)]
    assert (len(first), len(second)) == (2, 2), "partition 1 had told of 30 before the second start"
    for record, rows in found:
        assert rows == source.at(record.resolved), record.resolved
        assert record.counts.add_up
        assert record.counts.collapsed >= 0
    frontier = inspect_pipeline(rig.spec, rig.spark).tables[0].frontier
    assert frontier is not None
    read = [
        each
        for partition, segments in enumerate(logs)
        for each in [value for segment in segments for _, value in segment][
            : frontier.offset((rig.topic, partition))
        ]
    ]
    waits = sum(later(value, 30) for value in read)
    assert sum(record.counts.delivered for record, _ in found) == len(read) - waits
    assert len({record.batch_id for record, _ in found}) == len(found)
    dead = rig.dead_offsets()
    assert len(dead) == len(set(dead)) == 6
    assert sum(record.counts.dead for record, _ in found) == 6
    assert "_updated" not in rig.sql("SELECT * FROM {t} LIMIT 1")[0].asDict()

    assert rig.epochs(rig.run()) == [], "nothing is left to publish"
    status = status_json(rig.spec, inspect_pipeline(rig.spec, rig.spark))["tables"][0]
    assert (status["resolved"], status["resolved_at"]) == (stamp(30), "2023-11-14T22:13:20.000000Z")
    assert history_json(found[-1][0])["resolved"] == stamp(30)
    assert status["waiting_from"], "changes after 30 wait where they stand"
    rig.tree["changes"] = {"resolved": "off"}
    with pytest.raises(ConfigError, match="wait for the next resolved time"):
        rig.run()


def test_the_latest_resolved_time_is_enough_and_new_partitions_join(make_rig: Callable[..., Any]) -> None:
    """SRC-08, EPOCH-02: fewer snapshots while catching up; a partition added later holds the time back."""
    rig = make_rig(**FEED, changes={"resolved": "latest"})
    source = Source()
    messages: list[tuple[bytes | None, bytes]] = [
        source.change(1, 1, "a"), (None, mark(10)), source.change(15, 2, "b"), (None, mark(20)), (None, mark(20)),
    ]  # fmt: skip
    produce(rig, messages, 0)
    assert len(rig.epochs(rig.run())) == 1
    rig.grow(2)
    produce(rig, [source.change(25, 1, "moved"), source.change(35, 1, "later")], 1)
    produce(rig, [source.change(24, 1, "older"), (None, mark(30))], 0)
    assert rig.epochs(rig.run()) == []
    produce(rig, [(None, mark(30))], 1)
    assert len(rig.epochs(rig.run())) == 1
    found = list(snapshots(rig))
    assert [record.resolved for record, _ in found] == [stamp(20), stamp(30)]
    assert [rows for _, rows in found] == [{1: "a", 2: "b"}, {1: "moved", 2: "b"}]
    holds(rig)


def test_changes_that_waited_and_are_lost_stop_the_pipeline_or_are_recorded(make_rig: Callable[..., Any]) -> None:
    """SRC-10, EPOCH-07, FAULT-33: retention took them, once alone and once with what is unread."""
    rig = make_rig(**FEED)
    source = Source()

    def lose(before: int) -> None:
        admin = AdminClient({"bootstrap.servers": rig.bootstrap})
        for done in admin.delete_records([TopicPartition(rig.topic, 0, before)]).values():
            done.result(30)

    def last() -> tuple[str, dict[int, str]]:
        *_, (record, rows) = snapshots(rig)
        return record.skipped.encode(), rows

    produce(rig, [source.change(1, 1, "a"), source.change(15, 2, "b"), source.change(16, 3, "c")], 0)
    produce(rig, [(None, mark(10))], 0)
    rig.run()
    lose(before=2)
    produce(rig, [source.change(18, 4, "d"), (None, mark(20))], 0)
    with pytest.raises(DataLoss, match=rf"1 offsets .* {rig.topic}\[0\] offsets 1 to 1"):
        rig.run()
    assert last()[1] == {1: "a"}
    rig.tree["source"]["fail_on_data_loss"] = False
    rig.run()
    assert last() == (f'{{"{rig.topic}":"0:1-2"}}', {1: "a", 3: "c", 4: "d"})
    produce(rig, [source.change(35, 1, "e"), (None, mark(30))], 0)
    rig.run()
    assert last() == ("{}", {1: "a", 3: "c", 4: "d"}), "a loss is recorded once"
    produce(rig, [source.change(36, 3, "f"), source.change(37, 4, "g"), (None, mark(40))], 0)
    lose(before=9)
    rig.run()
    assert last() == (f'{{"{rig.topic}":"0:6-9"}}', {1: "a", 3: "c", 4: "g"})
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]
    assert "4 offsets lost with consent" in next(check.says for check in verdict.checks if check.name == "history")


def test_a_changefeed_in_cloud_storage_has_its_marks_among_the_files(
    make_rig: Callable[..., Any], tmp_path: Path
) -> None:
    """SRC-07, SRC-10, EPOCH-02: names order the files; a change before its time waits over a start."""
    folder = tmp_path / "feed"
    source = Source()
    told = {"type": "files", "path": str(folder), "topics": None, "kafka": None}
    rig = make_rig(source=told, **FEED)

    def put(name: str, *values: bytes) -> None:
        file = folder / "2026-01-01" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(value + b"\n" for value in values))

    def change(time: int, key: int, name: str | None) -> bytes:
        row, value = source.change(time, key, name)
        return json.dumps({**json.loads(value), "key": json.loads(row)}).encode()

    put("202601010000010000000000000000000-f-1-1-0-rides-1.ndjson", change(1, 1, "a"), change(2, 2, "b"))
    put("202601010000010000000000000000000-f-1-1-1-rides-1.ndjson", change(15, 1, "c"), POISON)
    put("202601010000020000000000000000000.RESOLVED", mark(10))
    rig.run()
    put("202601010000030000000000000000000-f-1-1-2-rides-1.ndjson", change(2, 2, "b"), change(25, 3, "d"))
    put("202601010000040000000000000000000-f-1-1-3-rides-1.ndjson", change(16, 2, None))
    put("202601010000050000000000000000000.RESOLVED", mark(20))
    rig.run()
    holds(rig)
    put("202601010000060000000000000000000.RESOLVED", mark(30))
    rig.run()
    found = list(snapshots(rig))
    assert [record.resolved for record, _ in found] == [stamp(time) for time in (10, 20, 30)]
    assert [rows for _, rows in found] == [{1: "a", 2: "b"}, {1: "c"}, {1: "c", 3: "d"}]
    assert all(record.counts.add_up for record, _ in found)
    assert rig.dead_offsets() == [(0, 3)]
    holds(rig)


def test_files_that_go_while_changes_wait_in_them_are_recorded_as_lost(
    make_rig: Callable[..., Any], tmp_path: Path
) -> None:
    """SRC-10, EPOCH-07: with consent; without it the pipeline stops."""
    folder = tmp_path / "feed"
    folder.mkdir()
    rig = make_rig(source={"type": "files", "path": str(folder), "topics": None, "kafka": None}, **FEED)
    source = Source()

    def put(name: str, *values: bytes) -> None:
        (folder / name).write_bytes(b"".join(value + b"\n" for value in values))

    put("1.ndjson", source.change(1, 1, "a")[1], source.change(14, 4, "d")[1])
    put("2.ndjson", source.change(15, 2, "b")[1])
    put("3.RESOLVED", mark(10))
    rig.run()
    (folder / "2.ndjson").unlink()
    put("4.ndjson", source.change(16, 3, "c")[1])
    put("5.RESOLVED", mark(20))
    with pytest.raises(DataLoss, match="while changes of the feed wait in them, from offset 1 on"):
        rig.run()
    rig.tree["source"]["fail_on_data_loss"] = False
    rig.run()
    *_, (record, rows) = snapshots(rig)
    assert rows == {1: "a", 3: "c", 4: "d"}, "what is still there lands"
    assert record.skipped.encode() == '{"feed":"0:1-4"}'
    put("6.RESOLVED", mark(30))
    put("7.ndjson", source.change(31, 5, "e")[1])
    put("8.RESOLVED", mark(40))
    rig.run()
    *_, (record, rows) = snapshots(rig)
    assert (record.skipped.encode(), rows) == ("{}", {1: "a", 3: "c", 4: "d", 5: "e"})
    verdict = verify_pipeline(rig.spec, rig.spark)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]
