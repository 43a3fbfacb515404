"""`frazil verify` on real tables: healthy ones hold, and whatever is done to them is found and named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from frazil import cli
from frazil.engine import Assembly
from frazil.engine.events import EpochLanded, Event
from frazil.engine.verify import verify_pipeline
from frazil.errors import TableChanged
from frazil.protocol.register import Register
from frazil.protocol.verify import Check, Level, Verdict
from frazil.table.iceberg import IcebergCatalog

pytestmark = pytest.mark.real

REGISTER = "frazil.register.orders"
DEAD = "shop.orders__dead_letters"


def verify(rig: Any, *, deep: bool = False) -> Verdict:
    return verify_pipeline(rig.spec, rig.spark, deep=deep)


def check_of(verdict: Verdict, name: str, table: str = "shop.orders") -> Check:
    (check,) = [check for check in verdict.checks if (check.table, check.name) == (table, name)]
    return check


def broken(verdict: Verdict) -> dict[str, list[str]]:
    """The messages of what is broken, by check."""
    found: dict[str, list[str]] = {}
    for check, finding in verdict.findings:
        if finding.level is Level.BROKEN:
            found.setdefault(check.name, []).append(finding.message)
    return found


def noted(verdict: Verdict) -> list[str]:
    return [finding.message for _, finding in verdict.findings if finding.level is Level.NOTED]


def java(rig: Any, name: str = "shop.orders") -> Any:
    table = IcebergCatalog(rig.spark, rig.spec.catalog).find(name)
    assert table is not None
    return table.loaded()


def data_file(table: Any) -> Any:
    return table.newScan().planFiles().iterator().next().file()


@pytest.fixture(scope="module")
def landed(make_shared_rig: Callable[..., Any]) -> Any:
    """Two runs, four epochs, two partitions, two dead letters."""
    rig = make_shared_rig(partitions=2, epoch={"max_records": 60})
    rig.produce_orders(0, 100, partition=0)
    rig.produce_orders(0, 60, partition=1)
    rig.produce([b"not json", b"{"], partition=1)
    rig.run()
    rig.produce_orders(100, 30, partition=0)
    rig.run()
    return rig


@pytest.fixture
def rig(landed: Any) -> Iterator[Any]:
    """The same tables for every test: what a test does to their metadata is undone."""
    before = {name: java(landed, name).operations().current() for name in ("shop.orders", DEAD)}
    yield landed
    for name, metadata in before.items():
        operations = java(landed, name).operations()
        operations.commit(operations.current(), metadata)


def test_a_table_that_nobody_harmed_holds(rig: Any) -> None:
    """Promises A, B and C over several epochs, a restart and dead letters."""
    verdict = verify(rig, deep=True)
    assert verdict.level is Level.HOLDS, (broken(verdict), noted(verdict))
    assert check_of(verdict, "history").numbers["epochs"] == len(rig.open_table().history("orders")) - 2
    rows = check_of(verdict, "rows").numbers
    assert (rows["delivered"], rows["landed"], rows["dead"], rows["live"]) == (192, 190, 2, 190)
    assert check_of(verdict, "dead letters", DEAD).numbers == {"counted": 2, "landed": 2}
    offsets = check_of(verdict, "offsets").numbers
    assert (offsets["records"], offsets["rows"], offsets["dead"]) == (192, 190, 2)
    assert offsets["records_counted"] == 192, "every epoch's count was compared with the topic"


def test_a_data_file_that_is_live_twice_is_found(rig: Any) -> None:
    table = java(rig)
    file = data_file(table)
    table.newAppend().appendFile(file).commit()

    verdict = verify(rig)

    (found,) = check_of(verdict, "files").findings
    assert found.path == file.location()
    assert "is live 2 times" in found.message
    assert found.snapshot_id == java(rig).currentSnapshot().snapshotId()
    assert list(broken(verdict)) == ["files"]
    assert len(noted(verdict)) == 1, "and somebody else did it"


def test_a_data_file_that_somebody_dropped_is_named_and_its_offsets_are_missing(rig: Any) -> None:
    table = java(rig)
    file = data_file(table)
    table.newDelete().deleteFile(file).commit()
    head = java(rig).currentSnapshot().snapshotId()

    verdict = verify(rig, deep=True)

    (found,) = check_of(verdict, "others").findings
    assert (found.message, found.snapshot_id) == (f"spark removed {file.recordCount()} rows (delete)", head)
    assert found.level is Level.NOTED, "others may delete what they want; it is only said"
    assert set(broken(verdict)) == {"offsets"}, "but to the topic the table is no longer equal"
    assert check_of(verdict, "offsets").numbers["missing"] == file.recordCount()


@contextmanager
def moved_away(path: str) -> Iterator[Path]:
    file = Path(path.removeprefix("file:").replace("///", "/"))
    aside = file.with_name(file.name + ".aside")
    file.rename(aside)
    try:
        yield file
    finally:
        aside.rename(file)


def test_a_data_file_that_is_gone_is_named_and_nothing_is_compared(rig: Any) -> None:
    path = data_file(java(rig)).location()
    with moved_away(path):
        verdict = verify(rig, deep=True)
    assert broken(verdict) == {"files": [f"data file does not exist: {path}"]}
    assert check_of(verdict, "offsets").numbers == {}
    assert noted(verdict) == ["not compared with the topic: the table cannot be read without these files"]


def test_a_data_file_of_another_size_is_named(rig: Any) -> None:
    file = data_file(java(rig))
    with moved_away(file.location()) as place:
        place.write_bytes(b"short")
        # Hadoop's local file system keeps a checksum beside the file; size alone is asked for here.
        verdict = verify(rig)
    size = file.fileSizeInBytes()
    assert broken(verdict) == {"files": [f"data file has 5 bytes, {size:,} are recorded: {file.location()}"]}


def test_a_manifest_or_a_manifest_list_that_is_gone_is_named(rig: Any) -> None:
    table = java(rig)
    head = table.currentSnapshot()
    manifest = head.allManifests(table.io())[0].path()
    with moved_away(manifest):
        assert broken(verify(rig, deep=True)) == {"files": [f"manifest does not exist: {manifest}"]}
    manifests = head.manifestListLocation()
    with moved_away(manifests):
        assert broken(verify(rig, deep=True)) == {"files": [f"manifest list does not exist: {manifests}"]}


def test_rows_that_others_changed_are_named_and_their_offsets_too(rig: Any) -> None:
    rig.sql("INSERT INTO {t} SELECT * FROM {t} WHERE _kafka_partition = 0 AND _offset = 3")
    rig.sql("DELETE FROM {t} WHERE _kafka_partition = 1 AND _offset = 7")
    rig.sql("INSERT INTO {t} (id, name) VALUES (1, 'by hand')")
    rig.sql("DELETE FROM {dead} WHERE offset = 60")

    verdict = verify(rig, deep=True)

    names = " ".join(noted(verdict))
    assert "spark added 1 row (append)" in names
    assert "removed" in names
    assert "1 row of no topic of this pipeline: others wrote them" in names
    assert check_of(verdict, "others", DEAD).level is Level.NOTED
    assert broken(verdict) == {
        "offsets": [
            f"{rig.topic}[0]: 1 offset more than once: 3",
            f"{rig.topic}[1]: 2 offsets missing: 7, 60",
        ]
    }


def set_register(rig: Any, text: str) -> None:
    java(rig).updateProperties().set(REGISTER, text).commit()


def test_a_forged_register_is_found(rig: Any) -> None:
    text = java(rig).properties()[REGISTER]
    frontier = Register.decode(text).frontier.offset((rig.topic, 0))
    assert frontier == 130
    set_register(rig, text.replace(f"{frontier}@", "99@"))

    verdict = verify(rig, deep=True)

    name = f"{rig.topic}[0]"
    found = broken(verdict)
    assert found["register"] == [f"the frontier of {name} stands at 99, the history ends at 130"]
    assert found["offsets"][-1] == f"{name}: 31 offsets in the table beyond the frontier: 99, 100, 101, 102, 103, …"


def test_a_forged_epoch_is_found(rig: Any) -> None:
    """A snapshot that claims offsets which landed before, and rows that it does not have."""
    table = java(rig)
    append = table.newAppend()
    for key, value in dict(table.currentSnapshot().summary()).items():
        if key.startswith("frazil."):
            append.set(key, value)
    append.commit()

    found = broken(verify(rig))

    assert any("in an earlier epoch and again in this one" in message for message in found["history"])
    assert any(message.startswith("it says snapshot") for message in found["register"])
    assert any("its files have 0" in message for message in found["rows"])


def test_a_table_that_was_rolled_back_is_found(rig: Any) -> None:
    table = java(rig)
    table.manageSnapshots().rollbackTo(table.currentSnapshot().parentId()).commit()
    assert "was rolled back" in broken(verify(rig))["register"][0]


def test_the_command_prints_a_line_for_each_check_and_its_code_tells_the_rest(
    rig: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-02, CLI-03."""

    def frazil(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["frazil", "verify", "orders.toml", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr().out

    @contextmanager
    def shared(*_: object) -> Iterator[Any]:
        yield rig.spark

    monkeypatch.setattr(cli, "load_pipeline", lambda _: rig.spec)
    monkeypatch.setattr(cli, "_spark", shared)
    code, out = frazil()
    assert code == 0
    assert out.count("✓") == 12, "five checks of each table, one of both, and the verdict"
    assert "nothing was lost or doubled" in out

    path = data_file(java(rig)).location()
    with moved_away(path):
        code, out = frazil("--json")
    assert code == 1
    told = json.loads(out)
    assert (told["pipeline"], told["verdict"], told["deep"]) == ("orders", "broken", False)
    (check,) = [check for check in told["checks"] if check["level"] == "broken"]
    assert (check["table"], check["check"], check["findings"][0]["path"]) == ("shop.orders", "files", path)


def test_a_table_that_is_not_there_or_not_the_pipelines_is_an_error(rig: Any) -> None:
    stranger = rig.spec.model_copy(update={"pipeline": rig.spec.pipeline.model_copy(update={"name": "other"})})
    with pytest.raises(TableChanged, match=r"shop.orders has no register of pipeline other"):
        verify_pipeline(stranger, rig.spark)
    nowhere = rig.spec.model_copy(update={"table": rig.spec.table.model_copy(update={"name": "shop.nothing"})})
    with pytest.raises(TableChanged, match=r"shop.nothing does not exist"):
        verify_pipeline(nowhere, rig.spark)


def test_a_long_life_holds(make_rig: Callable[..., Any]) -> None:
    """A partition added, an epoch without rows, loss with consent, compaction, expiry, and a foreign append."""
    rig = make_rig(source={"fail_on_data_loss": False}, epoch={"max_records": 15})
    admin = AdminClient({"bootstrap.servers": rig.bootstrap})
    rig.produce_orders(0, 20)
    rig.run()
    admin.create_partitions([NewPartitions(rig.topic, 2)])[rig.topic].result(30)
    rig.produce([b"broken"])
    rig.run()
    rig.produce_orders(20, 30)
    rig.produce_orders(0, 10, partition=1)
    admin.delete_records([TopicPartition(rig.topic, 0, 30)])[TopicPartition(rig.topic, 0)].result(30)
    rig.run()

    verdict = verify(rig, deep=True)
    assert verdict.level is Level.HOLDS, (broken(verdict), noted(verdict))
    assert check_of(verdict, "history").numbers["skipped_offsets"] == 9
    assert check_of(verdict, "offsets").numbers["below"] == 21, "gone from the topic, so only counted"

    rig.call("rewrite_data_files", "options => map('min-input-files','2')")
    rig.sql("INSERT INTO {t} (id) VALUES (4711)")
    verdict = verify(rig)
    assert verdict.level is Level.NOTED
    assert check_of(verdict, "others").says == "others changed the table; 1 compaction kept every row"
    assert noted(verdict) == ["spark added 1 row (append)"]

    rig.produce_orders(50, 5)
    rig.run()
    rig.call("expire_snapshots", "older_than => now(), retain_last => 1")
    verdict = verify(rig, deep=True)
    assert not broken(verdict)
    assert "earlier snapshots have expired" in check_of(verdict, "history").says
    assert "known by count only: 52 rows for" in check_of(verdict, "rows").says
    offsets = check_of(verdict, "offsets").numbers
    assert (offsets["records"], offsets["others_rows"]) == (36, 1)


def test_a_query_that_filters_leaves_out_as_many_as_it_says(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(
        transform={"sql": "SELECT id, _kafka_partition, _offset FROM source WHERE id % 10 <> 0"},
    )
    rig.produce_orders(0, 50)
    rig.produce([b"not json"])
    rig.run()

    verdict = verify(rig, deep=True)
    assert verdict.level is Level.HOLDS, broken(verdict)
    assert check_of(verdict, "offsets").says.endswith("45 rows and 1 dead letter here, 5 filtered")

    rig.sql("DELETE FROM {t} WHERE id = 3")
    assert broken(verify(rig, deep=True)) == {"offsets": ["6 records are not in the table, but 5 were filtered"]}


def test_a_table_without_columns_of_origin_is_compared_by_count(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(decode={"metadata": False})
    rig.produce_orders(0, 20)
    rig.produce([b"not json"])
    rig.run()

    verdict = verify(rig, deep=True)

    assert verdict.level is Level.HOLDS
    assert check_of(verdict, "offsets").says.startswith("21 records in the topic for 21 delivered")


def test_raw_records_are_compared_and_tombstones_with_them(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(decode={"format": "raw", "schema": None})
    rig.produce([b"a", b"b", b"c"])
    rig.run()
    verdict = verify(rig, deep=True)
    assert verdict.level is Level.HOLDS
    assert check_of(verdict, "offsets").numbers["rows"] == 3


class Died(BaseException):
    """As if the process were killed here."""


def test_a_crash_between_the_two_tables_holds_and_so_does_what_follows(make_rig: Callable[..., Any]) -> None:
    """The dead letters are one commit ahead; the span is read again for the anchor."""
    rig = make_rig()
    rig.produce_orders(0, 10)
    rig.run()
    rig.produce([b"broken", b"{"])

    def die_at_the_epoch(parts: Assembly) -> None:
        commit = parts.anchor.commit

        def commit_starts_only(proposal: Any, files: Any) -> Register:
            if proposal.summary["frazil.action"] != "start":
                raise Died
            return commit(proposal, files)

        parts.anchor.commit = commit_starts_only  # type: ignore[method-assign]

    with pytest.raises(Died):
        rig.run(prepare=die_at_the_epoch)
    verdict = verify(rig, deep=True)
    assert verdict.level is Level.HOLDS, broken(verdict)
    assert check_of(verdict, "dead letters", DEAD).numbers == {"counted": 0, "landed": 0}
    assert check_of(verdict, "offsets").numbers["dead"] == 2

    rig.run()
    verdict = verify(rig)
    assert verdict.level is Level.HOLDS, broken(verdict)
    assert check_of(verdict, "dead letters", DEAD).numbers == {"counted": 2, "landed": 2}


def test_a_running_pipeline_holds_while_it_runs(make_rig: Callable[..., Any]) -> None:
    """Verified between two of its epochs, with others in flight."""
    rig = make_rig(epoch={"max_records": 10})
    rig.produce([b"bad" if number % 7 == 0 else json.dumps({"id": number}) for number in range(40)])
    verdicts: list[Verdict] = []

    def look(event: Event) -> None:
        if isinstance(event, EpochLanded) and event.landed.epoch == 2:
            verdicts.append(verify(rig, deep=True))

    rig.run(observer=look)

    (verdict,) = verdicts
    assert check_of(verdict, "register").numbers["epoch"] == 2
    assert verdict.level is Level.HOLDS, broken(verdict)
