"""The command line without Spark: what is printed, and with which code it ends."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from frazil import __version__, cli
from frazil.errors import FrazilError
from frazil.journal import Journal, JournalSettings
from frazil.pipeline import secrets
from frazil.protocol.entries import EpochAbandoned, EpochBegun
from frazil.protocol.positions import Range, Span


class Ran:
    def __init__(self, code: object, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Frazil:
    """The command, called as a shell would call it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self._monkeypatch.setattr(sys, "argv", ["frazil", *arguments])
        try:
            cli.main()
            code: object = 0
        except SystemExit as end:
            code = end.code
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)


@pytest.fixture
def frazil(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Frazil:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    return Frazil(monkeypatch, capsys)


def test_it_tells_its_version(frazil: Frazil) -> None:
    assert frazil("--version").out == f"frazil {__version__}\n"


def test_without_a_command_it_shows_the_commands(frazil: Frazil) -> None:
    shown = frazil()
    assert all(
        command in shown.out + shown.err for command in ("init", "validate", "run", "status", "history", "verify")
    )


def test_init_writes_a_file_that_validate_accepts(frazil: Frazil) -> None:
    """CLI-02."""
    assert frazil("init", "orders.toml", "--name", "orders").code == 0
    assert 'name = "orders"' in Path("orders.toml").read_text(encoding="utf-8")
    checked = frazil("validate", "orders.toml")
    assert checked.code == 0
    assert "orders.toml: the file is fine" in checked.out


def test_validate_says_that_a_key_has_to_be_asked_for(frazil: Frazil) -> None:
    """CHG-03"""
    Path("orders.toml").write_text(
        """
        pipeline.name = "orders"
        source = {type = "kafka", topics = ["orders"], kafka."bootstrap.servers" = "127.0.0.1:1"}
        decode = {format = "json", envelope = "debezium", schema = "id BIGINT, at TIME", epoch_unit = {at = "ms"}}
        table = {name = "shop.orders", mode = "upsert"}
        """,
        encoding="utf-8",
    )
    checked = frazil("validate", "orders.toml")
    assert checked.code == 0
    assert "table.keys is not given" in checked.out
    assert "--connect asks" in checked.out


def test_init_replaces_no_file_unless_told_to(frazil: Frazil) -> None:
    Path("orders.toml").write_text("mine", encoding="utf-8")
    refused = frazil("init", "orders.toml")
    assert refused.code == 2
    assert "is there already" in refused.err
    assert Path("orders.toml").read_text(encoding="utf-8") == "mine"
    assert frazil("init", "orders.toml", "--force").code == 0


def test_init_into_nowhere_is_refused(frazil: Frazil) -> None:
    refused = frazil("init", "no/such/folder/orders.toml")
    assert refused.code == 2
    assert "cannot be written: No such file or directory" in refused.err


@pytest.mark.parametrize("command", ["validate", "run", "status", "history", "verify"])
def test_a_missing_file_is_a_config_error_with_a_remedy(frazil: Frazil, command: str) -> None:
    """CLI-03."""
    refused = frazil(command, "nowhere.toml")
    assert refused.code == 2
    assert refused.err.startswith("Config there is no file nowhere.toml")
    assert "frazil init" in refused.err
    assert "Traceback" not in refused.err
    assert refused.out == ""


def test_a_config_error_lists_the_allowed_values(frazil: Frazil) -> None:
    """CLI-03."""
    frazil("init", "orders.toml")
    file = Path("orders.toml")
    file.write_text(file.read_text(encoding="utf-8").replace('format = "json"', 'format = "xml"'), encoding="utf-8")
    refused = frazil("validate", "orders.toml")
    assert refused.code == 2
    assert "decode.format: 'xml' is not allowed; allowed are 'json' or 'raw'" in refused.err


def test_an_unknown_catalog_says_so_by_its_kind(frazil: Frazil) -> None:
    """CLI-03, SINK-10."""
    frazil("init", "orders.toml")
    file = Path("orders.toml")
    file.write_text(
        file.read_text(encoding="utf-8").replace("[catalog]", '[catalog]\ntype = "oracle"'), encoding="utf-8"
    )
    refused = frazil("validate", "orders.toml")
    assert refused.code == 2
    assert refused.err.startswith("UnsupportedCatalog catalog.type: 'oracle' is not allowed; allowed are 'sqlite'")


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_catalog_that_may_lose_a_commit_is_refused_before_spark_starts(frazil: Frazil, command: str) -> None:
    frazil("init", "orders.toml")
    file = Path("orders.toml")
    hadoop = '[catalog]\nprop."catalog-impl" = "org.apache.iceberg.hadoop.HadoopCatalog"'
    file.write_text(file.read_text(encoding="utf-8").replace("[catalog]", hadoop), encoding="utf-8")
    refused = frazil(command, "orders.toml")
    assert refused.code == 2
    assert refused.err.startswith("UnsupportedCatalog catalog.prop: Iceberg's Hadoop catalog commits by renaming")
    assert "→ use type" in refused.err


def test_a_bad_schema_is_pointed_at_without_starting_spark(frazil: Frazil) -> None:
    frazil("init", "orders.toml")
    file = Path("orders.toml")
    text = file.read_text(encoding="utf-8").replace("customer STRING", "customer STRNG")
    file.write_text(text, encoding="utf-8")
    refused = frazil("validate", "orders.toml")
    assert refused.code == 2
    assert "STRNG is not a type (column customer)" in refused.err
    assert "^ line 1, column" in refused.err


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('partition = ["day(placed_on)"]', "table.partition: 'day(placed_on)': there is no column 'placed_on'"),
        ('partition = ["hour(customer)"]', "hour cannot be applied to customer of type string"),
        ('partition.spec = "BUCKET(16 customer)"', "table.partition: 'BUCKET(16 customer)': bucket takes"),
        ('sort = ["placed_on desc"]', "table.sort: 'placed_on': there is no column 'placed_on'"),
        ("target_file_size = -1", "table.target_file_size: -1 is not allowed; expected a size larger than zero"),
        ('bloom_filters = ["nobody"]', "table.bloom_filters: 'nobody': there is no column 'nobody'"),
    ],
)
def test_what_the_columns_do_not_allow_is_refused_without_starting_spark(
    frazil: Frazil, line: str, problem: str
) -> None:
    """FILE-08, FILE-09, FILE-11: with the key and the reason, before any file is written."""
    frazil("init", "orders.toml")
    file = Path("orders.toml")
    lines = [
        line if written.startswith("partition = ") else written
        for written in file.read_text(encoding="utf-8").splitlines()
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    refused = frazil("validate", "orders.toml")
    assert refused.code == 2
    assert problem in refused.err


@pytest.mark.parametrize("kind", [each for each in FrazilError.__subclasses__() for each in each.__subclasses__()])
def test_every_failure_prints_its_kind_and_remedy_and_ends_with_a_code_that_is_not_zero(
    frazil: Frazil, monkeypatch: pytest.MonkeyPatch, kind: type[FrazilError]
) -> None:
    """CLI-03, SEC-02: brackets are no markup, secrets are masked."""
    monkeypatch.setattr(secrets, "_known", {"hunter2"})

    def fail(file: Path) -> None:
        raise kind("orders[0] said [/bold] and [red]hunter2", "do [this]")

    monkeypatch.setattr(cli, "load_pipeline", fail)
    failed = frazil("validate", "x.toml")
    assert failed.code == (2 if kind.kind in {"Config", "UnsupportedCatalog"} else 1)
    assert failed.err == f"{kind('').label} orders[0] said [/bold] and [red]••••\n  → do [this]\n"
    assert failed.out == ""


@pytest.mark.parametrize("name", ["[bold].toml", "a [red] c.toml"])
def test_file_names_are_no_markup(frazil: Frazil, name: str) -> None:
    assert name in frazil("init", name).out
    assert name in frazil("validate", name).out


def test_the_help_of_verify_teaches_what_it_proves(frazil: Frazil) -> None:
    shown = frazil("verify", "--help").out
    checks = ("history", "register", "rows", "files", "others", "dead letters", "--deep", "--json")
    assert all(check in shown for check in checks)
    assert "Exits with 1 if anything is broken" in shown


def test_the_journal_is_shown_to_people_and_to_machines(frazil: Frazil, tmp_path: Path) -> None:
    """REC-11: the audit trail."""
    frazil("init", "orders.toml")
    journal = Journal(JournalSettings(tmp_path / ".frazil" / "orders"))
    journal.open()
    span = Span({("orders", 0): Range(5, 25)})
    journal.append(EpochBegun(3, "0123456789ab", "batch", span, ()))
    journal.append(EpochAbandoned(3, "0123456789ab", "a task [died]"))
    journal.close()

    shown = frazil("journal", "orders.toml")
    assert re.search(r"epoch begun +3 +0123456789ab +20 offsets: orders\[0\] 5-25", shown.out)
    assert "a task [died]" in shown.out
    lines = [json.loads(line) for line in frazil("journal", "orders.toml", "--json").out.splitlines()]
    assert [line["kind"] for line in lines] == ["epoch-begun", "epoch-abandoned", "checkpoint"]
    last = frazil("journal", "orders.toml", "--json", "--limit", "1")
    assert json.loads(last.out)["entries"] == 3


def test_damage_to_the_journal_is_told_beside_what_can_be_read(frazil: Frazil, tmp_path: Path) -> None:
    """REC-01."""
    frazil("init", "orders.toml")
    folder = tmp_path / ".frazil" / "orders"
    folder.mkdir(parents=True)
    (folder / "txlog-20261115-001.log").write_bytes(b"torn")
    shown = frazil("journal", "orders.toml", "--json")
    assert (shown.code, shown.out) == (0, "")
    assert "4 bytes of an entry that was never finished" in shown.err


def test_a_pipeline_without_a_journal_says_so(frazil: Frazil, tmp_path: Path) -> None:
    frazil("init", "orders.toml")
    file = tmp_path / "orders.toml"
    file.write_text(file.read_text().replace("[journal]", "[journal]\nenabled = false\n#"))
    shown = frazil("journal", "orders.toml")
    assert (shown.code, "keeps no journal" in shown.err) == (2, True)


def test_recover_only_looks(frazil: Frazil) -> None:
    frazil("init", "orders.toml")
    shown = frazil("recover", "orders.toml")
    assert (shown.code, "--dry-run" in shown.err) == (2, True)


def test_after_a_rollback_there_are_two_choices_and_no_third(frazil: Frazil) -> None:
    """FAULT-20, CLI-03."""
    refused = frazil("run", "pipeline.toml", "--on-rollback", "sideways")
    assert refused.code == 2
    assert "rewind" in refused.err
    assert "keep" in refused.err
