"""Files of a folder, numbered and read: what counts as a row, and what is noticed when files do not stay put."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.decode import decoder, plan_decode
from frazil.errors import (
    ConfigError,
    DataLoss,
    SourceChanged,
    SourceUnavailable,
    SpanUnavailable,
    UndecodableRecord,
)
from frazil.pipeline import FilesSource
from frazil.protocol.plan import Log, Ready, SourceObserved, reconcile
from frazil.protocol.positions import Frontier, Position, Range, Slice, Span
from frazil.records import Records
from frazil.source import Wants
from frazil.source.files import FilesFolder, formats
from frazil.source.files import plan as planning
from frazil.source.files.folder import File
from frazil.source.files.mark import Mark

P0 = ("in", 0)
_NO_KEYS = Wants(keys=False, timestamps=False)


class Pipeline:
    """A folder, and a table's frontier that moves as a pipeline would move it."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.folder = folder
        self.keys = keys
        self.with_marks = False
        folder.mkdir()
        self.frontier = Frontier()
        self.source = self.open()
        self.frontier = self.source.starting_frontier()

    def open(self, **more: Any) -> FilesFolder:
        spec = FilesSource(type="files", path=str(self.folder), **self.keys)
        return FilesFolder(spec, with_marks=self.with_marks, **more)

    def restart(self) -> SourceObserved:
        """A new process: nothing is known but what the register says."""
        self.source = self.open()
        self.frontier = Frontier.decode(json.loads(json.dumps(self.frontier.encode())), self.frontier.resolved)
        self.source.resume(self.frontier)
        return self.source.observe()

    def put(self, name: str, *lines: object, age_s: float = 0) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        if age_s:
            then = file.stat().st_mtime - age_s
            os.utime(file, (then, then))
        return file

    def look(self) -> Log:
        return self.source.observe().logs[P0]

    def records(self, start: int, end: int, wants: Wants = _NO_KEYS) -> list[Records]:
        reader = self.source.reader(wants, Span({P0: Range(start, end)}))
        return list(pickle.loads(pickle.dumps(reader)).read(Slice(*P0, start, end)))

    def read(self, start: int, end: int) -> list[bytes | None]:
        return [value for records in self.records(start, end) for value in records.values]

    def commit(self, end: int, low: int | None = None, resolved: str | None = None) -> list[bytes | None]:
        """Reads on to `end` and lands it; what is later than `resolved` waits, from `low` on."""
        start = self.frontier.positions[P0].offset
        span = Span({P0: Range(start, end)})
        values = self.read(start, end)
        lows = {} if low is None else {P0: low}
        self.frontier = self.frontier.advance(span, marks=self.source.marks(span), lows=lows, resolved=resolved)
        self.source.acknowledge(self.frontier)
        return values


@pytest.fixture(autouse=True)
def every_look_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_LOOK_SHARE", float("inf"))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Pipeline]:
    return lambda **keys: Pipeline(tmp_path / "in", **keys)


@pytest.fixture
def line(make: Callable[..., Pipeline]) -> Pipeline:
    return make()


def numbers(*values: int) -> list[bytes]:
    return [str(value).encode() for value in values]


class TestOrder:
    def test_files_are_read_by_their_whole_names_and_rows_are_counted_on(self, line: Pipeline) -> None:
        line.put("b.jsonl", 4, 5)
        line.put("a/2.jsonl", 2, 3)
        line.put("a/1.jsonl", 1)
        line.put("a.jsonl", 0)
        line.restart()
        assert line.look() == Log(0, 6)
        assert line.read(0, 6) == numbers(0, 1, 2, 3, 4, 5)

    def test_names_may_hold_blanks_and_any_character(self, line: Pipeline) -> None:
        """The mark keeps them whole."""
        line.put("grüße an alle %20#.jsonl", 1, 2)
        line.put("数 据a.jsonl", 3)
        line.restart()
        assert line.commit(3) == numbers(1, 2, 3)
        line.put("数 据b.jsonl", 4)
        line.restart()
        assert line.commit(4) == [b"4"]

    def test_hidden_files_and_marks_of_a_changefeed_are_no_data(self, line: Pipeline) -> None:
        """SRC-07: as changefeeds lay their files out."""
        line.put("2026-01-01/202601010000000000000000000000000-a1-1-2-00000000-orders-1.ndjson", 1)
        line.put("2026-01-01/202601010000010000000000000000000.RESOLVED", {"resolved": "1.0"})
        line.put(".hidden.jsonl", 2)
        line.put("_temporary/part.jsonl", 3)
        line.restart()
        assert line.read(0, line.look().end) == [b"1"]

    def test_marks_of_a_changefeed_are_lines_among_the_files_where_they_count(
        self, make: Callable[..., Pipeline]
    ) -> None:
        """SRC-07: whatever the pattern and the format; one that comes late says nothing new."""
        line = make(pattern="*.csv", format="csv")
        (line.folder / "1.csv").write_bytes(b"id\n7\n")
        line.put("2.RESOLVED", {"resolved": "1.0"})
        line.restart()
        assert line.commit(1) == [b'{"id":"7"}']
        line.with_marks = True
        line.put("0.RESOLVED", {"resolved": "0.5"})
        line.restart()
        assert line.read(1, line.look().end) == [b'{"resolved": "1.0"}']

    def test_changes_that_wait_are_found_again_by_a_start(self, line: Pipeline) -> None:
        """SRC-10, EPOCH-08: files before the frontier are not finished while a change in them is not due."""
        line.with_marks = True
        line.put("0.jsonl", 0, 1)
        line.put("1.jsonl", 2, 3, 4)
        line.put("2.RESOLVED", 5)
        line.restart()
        line.commit(6, low=3, resolved="10")
        assert line.look() == Log(2, 6)
        assert line.restart().logs[P0] == Log(2, 6)
        assert line.read(3, 6) == numbers(3, 4, 5)
        line.put("3.jsonl", 6)
        line.put("4.RESOLVED", 7)
        assert line.look() == Log(2, 8)
        line.commit(8, low=6, resolved="20")
        assert line.look() == Log(6, 8)
        assert line.restart().logs[P0] == Log(6, 8)
        assert line.read(6, 8) == numbers(6, 7)

    @pytest.mark.parametrize("while_running", [True, False])
    @pytest.mark.parametrize("name", ["1.jsonl", "2.RESOLVED"])
    def test_a_file_that_is_removed_while_a_change_in_it_waits_is_missed(
        self, line: Pipeline, name: str, while_running: bool
    ) -> None:
        """SRC-10: offsets are counted back from the frontier, and would be others without it."""
        line.with_marks = True
        line.put("1.jsonl", 0, 1)
        line.put("2.RESOLVED", 2)
        line.restart()
        line.commit(3, low=1, resolved="10")
        (line.folder / name).unlink()
        with pytest.raises(DataLoss):
            line.look() if while_running else line.restart()

    @pytest.mark.parametrize("name", ["0.jsonl", "1.jsonl", "2.RESOLVED"])
    def test_what_may_have_waited_in_a_removed_file_is_lost_with_consent(
        self, make: Callable[..., Pipeline], name: str
    ) -> None:
        """SRC-10, EPOCH-07: in which file a change waited nobody can tell; recorded once."""
        line = make(fail_on_data_loss=False)
        line.with_marks = True
        line.put("0.jsonl", 0, 1)
        line.put("1.jsonl", 2, 3)
        line.put("2.RESOLVED", 4)
        line.restart()
        line.commit(5, low=3, resolved="10")
        (line.folder / name).unlink()
        line.put("3.RESOLVED", 5)
        seen = line.restart()
        ready = reconcile(line.frontier, seen, fail_on_data_loss=False)
        assert isinstance(ready, Ready)
        assert ready.skipped == Span({P0: Range(3, 5)})
        line.commit(6, resolved="20")
        ready = reconcile(line.frontier, line.source.observe(), fail_on_data_loss=False)
        assert ready == Ready(line.frontier)

    def test_a_pattern_chooses_files_in_all_folders(self, make: Callable[..., Pipeline]) -> None:
        line = make(pattern="*.ndjson")
        line.put("a.ndjson", 1)
        line.put("deep/er/b.ndjson", 2)
        line.put("c.txt", 3)
        line.restart()
        assert line.read(0, line.look().end) == [b"1", b"2"]

    def test_reading_begins_behind_the_file_that_was_named(self, make: Callable[..., Pipeline]) -> None:
        """What was there before it is none of the pipeline's; what appears there later is late."""
        line = make(starting_from="b.jsonl")
        line.put("a.jsonl", 1)
        line.put("b.jsonl", 2)
        line.put("c.jsonl", 3)
        line.frontier = line.open().starting_frontier()
        line.restart()
        assert line.read(0, line.look().end) == [b"3"]
        line.put("a2.jsonl", 1)
        with pytest.raises(DataLoss, match=r"a2\.jsonl"):
            line.restart()

    def test_a_young_file_holds_back_all_names_behind_it(self, make: Callable[..., Pipeline]) -> None:
        """Else the young one would be late once it has settled."""
        line = make(settle="1h")
        line.put("a.jsonl", 1, age_s=7200)
        young = line.put("b.jsonl", 2)
        line.put("c.jsonl", 3, age_s=7200)
        assert not line.restart().more
        assert line.look() == Log(0, 1)
        os.utime(young, (young.stat().st_mtime - 7200,) * 2)
        assert line.restart().logs[P0] == Log(0, 3)

    def test_a_look_that_runs_out_of_time_says_that_there_is_more(
        self, line: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(70):
            line.put(f"{number:02}.jsonl", number)
        monkeypatch.setattr(planning, "_COUNTING_S", 0)
        seen = line.restart()
        assert (seen.more, seen.logs[P0]) == (True, Log(0, 0))
        monkeypatch.undo()
        assert line.look() == Log(0, 70)

    def test_before_a_start_nothing_is_counted(self, line: Pipeline) -> None:
        line.put("a.jsonl", 1)
        assert line.open().observe() == SourceObserved({P0: Log(0, 0)}, {"in": "files"}, more=True)

    def test_a_folder_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="there is no folder"):
            FilesFolder(FilesSource(type="files", path=str(tmp_path / "none"))).observe()

    def test_a_uri_works_as_well_as_a_path(self, line: Pipeline) -> None:
        line.put("a b.jsonl", 1)
        source = FilesFolder(FilesSource(type="files", path=f"file://{line.folder}"))
        source.resume(source.starting_frontier())
        assert source.observe().logs[P0] == Log(0, 1)

    def test_a_scheme_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="cannot be opened"):
            FilesFolder(FilesSource(type="files", path="gopher://x/in")).observe()


class TestRows:
    @pytest.mark.parametrize(
        ("text", "rows"),
        [
            (b"", []),
            (b"\n", []),
            (b"1\n2\n", [(0, b"1"), (1, b"2")]),
            (b"1\n2", [(0, b"1"), (1, b"2")]),
            (b"1\r\n2\r\n", [(0, b"1"), (1, b"2")]),
            (b"\xef\xbb\xbf1\n2\n", [(0, b"1"), (1, b"2")]),
            (b"1\n\n \t\r\n2\n\n", [(0, b"1"), (3, b"2")]),
        ],
    )
    @pytest.mark.parametrize("compress", [bytes, gzip.compress, lambda text: pa.Codec("zstd").compress(text)])
    def test_of_json_lines_are_their_lines(
        self, line: Pipeline, text: bytes, rows: list[Any], compress: Callable[[bytes], Any]
    ) -> None:
        """Ends of lines, of the file and of Windows, a byte order mark, and blanks, which leave gaps."""
        packed = bytes(compress(text))
        ending = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}.get(packed[:2], "")
        (line.folder / f"a.jsonl{ending}").write_bytes(packed)
        line.restart()
        found = line.records(0, line.look().end) if line.look().end else []
        assert [(o, v) for r in found for o, v in zip(r.offsets, r.values, strict=True)] == rows

    @pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
    @pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
    def test_any_part_of_a_file_can_be_read(
        self, line: Pipeline, monkeypatch: pytest.MonkeyPatch, block: int, name: str
    ) -> None:
        monkeypatch.setattr(formats, "_BLOCK", block)
        monkeypatch.setattr(formats, "_RUN_ROWS", 4)
        text = "".join(f"{n * 37}\n" for n in range(20))
        (line.folder / name).write_text(text if name == "a.jsonl" else "n\n" + text)
        line.restart()
        whole = line.read(0, 20)
        assert len(whole) == 20
        for start in range(20):
            for end in range(start + 1, 21, 3):
                assert line.read(start, end) == whole[start:end]

    def test_of_csv_are_objects_of_texts(self, make: Callable[..., Pipeline]) -> None:
        """Quoted ends of lines, empty fields, truth values, and a row that does not fit its header."""
        line = make()
        (line.folder / "a.csv").write_text('\ufeffid,name,ok\n1,"x\ny, z",TRUE\n2,,false\n3,c\n', encoding="utf-8")
        line.source = FilesFolder(FilesSource(type="files", path=str(line.folder)), frozenset({"ok"}))
        line.source.resume(line.frontier)
        assert [json.loads(value or b"") for value in line.read(0, line.look().end)] == [
            {"id": "1", "name": "x\ny, z", "ok": True},
            {"id": "2", "name": None, "ok": False},
            ["3", "c"],
        ]

    def test_of_an_empty_csv_are_none(self, line: Pipeline) -> None:
        (line.folder / "a.csv").write_bytes(b"")
        (line.folder / "b.csv").write_bytes(b"id,name\n")
        assert line.restart().logs[P0] == Log(0, 0)

    def test_bytes_of_a_csv_that_are_no_text_become_a_dead_letter(self, line: Pipeline) -> None:
        (line.folder / "a.csv").write_bytes(b"name\n\xff\nfine\n")
        line.restart()
        decode = decoder(plan_decode("json", "name STRING", False, "dead-letter"))
        (records,) = line.records(0, 2, Wants())
        decoded = decode(records)
        assert decoded.rows.to_pylist() == [{"name": "fine"}]
        assert decoded.dead is not None
        assert decoded.dead["value"].to_pylist() == [b'{"name": "\xff"}']

    def test_of_parquet_keep_every_value(self, line: Pipeline) -> None:
        """Through JSON and back, compared with what was written."""
        rows = {
            "i": pa.array([2**63 - 1, -(2**63), None]),
            "d": pa.array([Decimal("12345678.90"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
            "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None, datetime(1900, 1, 1, tzinfo=UTC)]),
            "day": pa.array([date(2026, 1, 2), None, date(1, 1, 1)]),
            "f": pa.array([0.1, float("inf"), 5e-324]),
            "b": pa.array([b"\xff\x00", b"", None]),
            "ok": pa.array([True, False, None]),
            "s": pa.array([{"x": 1, "y": ["a", None]}, None, {"x": None, "y": []}]),
            "m": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
        }
        written = pa.table(rows)
        pq.write_table(written, line.folder / "a.parquet", row_group_size=2)
        line.restart()
        schema = (
            "i BIGINT, d DECIMAL(10,2), at TIMESTAMP, day DATE, f DOUBLE, b BINARY, ok BOOLEAN, "
            "s STRUCT<x: BIGINT, y: ARRAY<STRING>>, m MAP<STRING, DOUBLE>"
        )
        decode = decoder(plan_decode("json", schema, False, "fail"))
        landed = [row for run in line.records(0, 3) for row in decode(run).rows.to_pylist()]
        assert landed == written.to_pylist()
        assert line.read(1, 2) == line.read(0, 3)[1:2]

    def test_uuids_and_nanoseconds_of_parquet_too(self, line: Pipeline) -> None:
        number = uuid.UUID(int=7)
        ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([number.bytes], pa.binary(16)))
        pq.write_table(pa.table({"u": ids, "t": pa.array([1], pa.timestamp("ns"))}), line.folder / "a.parquet")
        line.restart()
        assert json.loads(line.read(0, 1)[0] or b"") == {"u": str(number), "t": "1970-01-01 00:00:00.000000001"}

    def test_know_where_they_come_from(self, line: Pipeline) -> None:
        """A dead letter's key, and the complaint of a pipeline that stops, name file and line."""
        line.put("a.jsonl", {"id": 0})
        line.put("b.jsonl", {"id": 1}, "poison")
        line.restart()
        decode = decoder(plan_decode("json", "id BIGINT", True, "dead-letter"))
        decoded = decode(line.records(0, 3, Wants())[1])
        assert decoded.dead is not None
        assert decoded.dead.to_pylist()[0]["key"] == b"b.jsonl:2"
        assert decoded.rows.to_pylist()[0]["_key"] == b"b.jsonl:1"
        stops = decoder(plan_decode("json", "id BIGINT", True, "fail"))
        with pytest.raises(UndecodableRecord, match=r"in\[0\] offset 2, b\.jsonl:2, cannot be decoded"):
            stops(line.records(0, 3)[1])

    def test_that_are_too_long_are_refused_by_name(self, line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(formats, "LINE_BYTES_MAX", 100)
        monkeypatch.setattr(formats, "_BLOCK", 16)
        line.put("a.jsonl", 1, "x" * 90)
        assert line.restart().logs[P0].end == 2
        line.put("b.jsonl", 1, "x" * 200)
        with pytest.raises(UndecodableRecord, match=r"b\.jsonl:2 is a line of more than 100 bytes"):
            line.restart()

    def test_a_name_that_tells_no_format_is_refused(self, line: Pipeline) -> None:
        line.put("a.txt", 1)
        with pytest.raises(ConfigError, match=r"a\.txt: what is in it cannot be told"):
            line.restart()

    def test_a_broken_archive_may_be_one_that_is_being_written(self, line: Pipeline) -> None:
        (line.folder / "a.jsonl.gz").write_bytes(gzip.compress(b"1\n" * 1000)[:-12])
        with pytest.raises(SourceUnavailable, match=r"a\.jsonl\.gz cannot be read") as caught:
            line.restart()
        assert "source.settle" in caught.value.remedy


class TestStarts:
    def test_go_on_in_the_middle_of_a_file(self, line: Pipeline) -> None:
        """FAULT-22: from what the table says, and nothing else."""
        line.put("a.jsonl", 0, 1)
        line.put("b.jsonl", 2, 3, 4, 5)
        line.put("empty.jsonl")
        line.put("x.jsonl", 6)
        landed = []
        for end in range(1, 8):
            line.restart()
            landed += line.commit(end)
        assert landed == numbers(*range(7))

    def test_may_find_finished_files_gone(self, line: Pipeline) -> None:
        """Somebody tidied up: that is no loss."""
        files = [line.put(f"{n:03}.jsonl", n) for n in range(205)]
        line.restart()
        line.commit(205)
        for gone in (files[:1], files[1:150], files[150:]):
            for file in gone:
                file.unlink()
            assert line.look() == Log(205, 205)
            assert line.restart().logs[P0] == Log(205, 205)
        line.put("300.jsonl", 205)
        line.restart()
        assert line.commit(206) == [b"205"]

    @pytest.mark.parametrize("late", ["000", "000b", "042b", "150b", "203b"])
    def test_notice_a_file_that_came_too_late(self, line: Pipeline, late: str) -> None:
        """Never skipped in silence, however far back its name is."""
        for number in range(1, 205):
            line.put(f"{number:03}.jsonl", number)
        line.restart()
        line.commit(204)
        line.put(f"{late}.jsonl", 999)
        with pytest.raises(DataLoss, match=rf"{late}\.jsonl appeared or grew behind the frontier") as caught:
            line.look()
        assert "on_late_file" in caught.value.remedy
        with pytest.raises(DataLoss, match=rf"{late}\.jsonl appeared"):
            line.restart()

    def test_notice_a_late_file_with_an_old_time_by_number_and_sum(self, line: Pipeline) -> None:
        for number in range(205):
            line.put(f"{number:03}.jsonl", number)
        line.restart()
        line.commit(205)
        line.put("000b.jsonl", 999, age_s=3600)
        with pytest.raises(DataLoss):
            line.restart()
        (line.folder / "001.jsonl").unlink()
        with pytest.raises(DataLoss):
            line.restart()

    def test_notice_a_late_file_among_removed_ones_if_it_is_younger_than_all(self, line: Pipeline) -> None:
        """And not with an older time: the one thing that a start cannot see."""
        for number in range(205):
            line.put(f"{number:03}.jsonl", number)
        line.restart()
        line.commit(205)
        (line.folder / "001.jsonl").unlink()
        (line.folder / "002.jsonl").unlink()
        late = line.put("000b.jsonl", 999, age_s=-60)
        with pytest.raises(DataLoss, match=r"000b\.jsonl"):
            line.restart()
        os.utime(late, (0, 0))
        assert line.restart().logs[P0] == Log(205, 205)

    def test_notice_a_late_file_among_the_last_ones_by_its_name_alone(self, line: Pipeline) -> None:
        """Neither its time nor the number of files gives it away."""
        for number in range(205):
            line.put(f"{number:03}.jsonl", number)
        line.restart()
        line.commit(205)
        (line.folder / "001.jsonl").unlink()
        (line.folder / "002.jsonl").unlink()
        line.put("150b.jsonl", 999, age_s=3600)
        with pytest.raises(DataLoss, match=r"150b\.jsonl"):
            line.restart()

    def test_notice_that_a_finished_file_grew(self, line: Pipeline) -> None:
        line.put("a.jsonl", 1)
        line.put("b.jsonl", 2)
        line.restart()
        line.commit(2)
        line.put("a.jsonl", 1, 9)
        with pytest.raises(DataLoss, match=r"a\.jsonl appeared or grew"):
            line.look()
        with pytest.raises(DataLoss, match=r"a\.jsonl appeared or grew"):
            line.restart()

    def test_do_not_mind_a_finished_file_that_was_touched(self, line: Pipeline) -> None:
        file = line.put("a.jsonl", 1)
        line.put("b.jsonl", 2)
        line.restart()
        line.commit(2)
        os.utime(file)
        assert line.look() == Log(2, 2)

    def test_ignore_late_files_once_they_are_told_to(self, make: Callable[..., Pipeline]) -> None:
        """They count as read from then on, also for a start that is no longer told so."""
        line = make(on_late_file="ignore")
        line.put("b.jsonl", 1)
        line.restart()
        line.commit(1)
        line.put("a.jsonl", 9)
        line.put("c.jsonl", 2)
        assert line.restart().logs[P0] == Log(1, 2)
        assert line.commit(2) == [b"2"]
        line.keys = {}
        assert line.restart().logs[P0] == Log(2, 2)

    def test_refuse_a_changed_file_of_which_some_rows_are_read(self, line: Pipeline) -> None:
        file = line.put("a.jsonl", 1, 2, 3)
        line.restart()
        line.commit(1)
        os.utime(file, (1, 1))
        with pytest.raises(SourceChanged, match=r"a\.jsonl was changed after some of its rows were read"):
            line.look()
        with pytest.raises(SourceChanged, match=r"a\.jsonl was changed"):
            line.restart()

    def test_refuse_to_go_on_without_a_file_that_has_rows_left(self, line: Pipeline) -> None:
        """FAULT-33."""
        line.put("a.jsonl", 1, 2, 3)
        line.restart()
        line.commit(1)
        (line.folder / "a.jsonl").unlink()
        with pytest.raises(DataLoss, match=r"a\.jsonl was removed before rows 2 to 3 of it were read"):
            line.look()
        with pytest.raises(DataLoss, match=r"rows 2 to 3"):
            line.restart()

    def test_skip_lost_rows_if_they_may(self, make: Callable[..., Pipeline]) -> None:
        """FAULT-33: the range is recorded, as of a topic."""
        line = make(fail_on_data_loss=False)
        line.put("a.jsonl", 1, 2, 3)
        line.restart()
        line.commit(1)
        (line.folder / "a.jsonl").unlink()
        line.put("b.jsonl", 4)
        with pytest.raises(SourceUnavailable, match="numbering the files anew"):
            line.look()
        seen = line.restart()
        ready = reconcile(line.frontier, seen, fail_on_data_loss=False)
        assert isinstance(ready, Ready)
        assert ready.skipped == Span({P0: Range(1, 3)})
        assert line.read(3, 4) == [b"4"]


class TestWhileReading:
    def test_a_name_between_the_frontier_and_the_last_one_is_still_in_time(self, line: Pipeline) -> None:
        line.put("a.jsonl", 1)
        line.put("c.jsonl", 3)
        line.restart()
        line.commit(1)
        assert line.look() == Log(1, 2)
        line.put("b.jsonl", 2)
        with pytest.raises(SourceUnavailable, match=r"b\.jsonl appeared or changed before c\.jsonl"):
            line.look()
        line.source.resume(line.frontier)
        line.look()
        assert line.commit(3) == [b"2", b"3"]

    def test_a_file_that_changes_between_counting_and_reading_is_not_read(self, line: Pipeline) -> None:
        file = line.put("a.jsonl", 1)
        line.restart()
        rows = line.source.reader(_NO_KEYS, Span({P0: Range(0, 1)})).read(Slice(*P0, 0, 1))
        line.put("a.jsonl", 1, 2)
        with pytest.raises(SpanUnavailable, match=r"a\.jsonl was changed or removed"):
            next(rows)
        file.unlink()
        with pytest.raises(SpanUnavailable, match=r"a\.jsonl was changed or removed"):
            line.read(0, 1)

    def test_a_file_that_changes_while_it_is_read_is_not_landed(
        self, line: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "_RUN_ROWS", 1)
        line.put("a.jsonl", 1, 2)
        line.restart()
        rows = line.source.reader(_NO_KEYS, Span({P0: Range(0, 2)})).read(Slice(*P0, 0, 2))
        next(rows)
        line.put("a.jsonl", 1, 3)
        with pytest.raises(SpanUnavailable):
            list(rows)

    def test_a_file_removed_before_any_row_of_it_was_read_is_lost(self, line: Pipeline) -> None:
        line.put("a.jsonl", 1)
        file = line.put("b.jsonl", 2)
        line.restart()
        file.unlink()
        with pytest.raises(DataLoss, match=r"b\.jsonl was removed before rows 1 to 1"):
            line.look()

    def test_a_folder_that_goes_away_may_come_back(self, line: Pipeline) -> None:
        line.restart()
        line.folder.rmdir()
        with pytest.raises(SourceUnavailable, match="is gone"):
            line.look()


class TestReadingAgain:
    def test_begins_with_the_oldest_file_that_is_left(self, line: Pipeline) -> None:
        first = line.put("a.jsonl", 0, 1)
        line.put("b.jsonl", 2, 3)
        line.put("c.jsonl", 4, 5)
        line.restart()
        line.commit(5)
        line.source = line.open(to_read_again=True)
        line.source.resume(line.frontier)
        assert line.look() == Log(0, 6)
        assert line.read(0, 5) == numbers(0, 1, 2, 3, 4)
        first.unlink()
        line.source = line.open(to_read_again=True)
        line.source.resume(line.frontier)
        assert line.look() == Log(2, 6)
        assert line.read(2, 5) == numbers(2, 3, 4)

    def test_finds_nothing_when_all_are_gone(self, line: Pipeline) -> None:
        file = line.put("a.jsonl", 0, 1)
        line.restart()
        line.commit(2)
        file.unlink()
        line.source = line.open(to_read_again=True)
        line.source.resume(line.frontier)
        assert line.look() == Log(2, 2)


class TestMarks:
    def test_survive_the_register(self) -> None:
        files = [File(f"a {n}\u00fc", n, n) for n in range(150)]
        mark = Mark.of(files[-1], 10, 20, files)
        frontier = Frontier({P0: Position(30, mark=mark.encode())}, {"in": "files"})
        decoded = Frontier.decode(json.loads(json.dumps(frontier.encode())))
        assert decoded == frontier
        assert Mark.decode(decoded.positions[P0].mark) == mark
        assert mark.late(files) == []

    def test_stay_small_however_many_files_there_are(self) -> None:
        files = [File(f"{n:06}.jsonl", n, n) for n in range(20_000)]
        assert len(Mark.of(files[-1], 0, 1, files).encode()) < 800

    def test_are_plain_text(self) -> None:
        mark = Mark.of(File("b", 3, 5), 7, 2, [File("a", 1, 6), File("b", 3, 5)])
        *numbers, tail, name = mark.encode().split(" ")
        assert numbers == ["7", "2", "3", "5", "6", "0", "0"]
        assert (len(base64.urlsafe_b64decode(tail)), name) == (9, "b")
