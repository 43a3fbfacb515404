"""Pipeline files, and what is said about the ones that are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import ConfigError, FrazilError, UnsupportedCatalog
from frazil.pipeline import GeneratorSource, KafkaSource, PipelineSpec, load_pipeline, parse_pipeline, secrets
from frazil.pipeline.load import all_keys

CANONICAL = """
[pipeline]
name = "orders"                        # the writer's stable name in its tables

[source]
type = "kafka"
topics = ["orders"]
starting_offsets = "earliest"
fail_on_data_loss = true
kafka."bootstrap.servers" = "127.0.0.1:9092"      # any librdkafka setting passes through

[decode]
format = "json"
envelope = "none"
schema = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"
metadata = true
on_error = "dead-letter"

[transform]
sql = "SELECT * FROM source WHERE amount > 0"

[table]
format = "iceberg"
name = "shop.orders"
mode = "append"
partition = ["day(placed_at)", "bucket(16, customer)"]
sort = ["placed_at desc nulls last"]
target_file_size = "128MB"
compression = "zstd"

[catalog]
type = "sqlite"
warehouse = "./warehouse"
prop."some.catalog.property" = "…"

[epoch]
interval = "30s"
max_records = 1_000_000
max_bytes = "512MB"
in_flight = 3
"""

SMALLEST: Mapping[str, Any] = {
    "pipeline": {"name": "orders"},
    "source": {"type": "kafka", "topics": ["orders"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "decode": {"format": "json", "schema": "order_id BIGINT"},
    "table": {"name": "shop.orders"},
}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


def spec(**keys: object) -> PipelineSpec:
    """The smallest pipeline with some keys set: `spec(table__mode="append")`; `...` takes a key away."""
    tree = deepcopy(dict(SMALLEST))
    for path, value in keys.items():
        section, _, key = path.partition("__")
        if not key and value is ...:
            del tree[section]
        elif not key:
            tree[section] = value
        elif value is ...:
            del tree[section][key]
        else:
            tree.setdefault(section, {})[key] = value
    return parse_pipeline(tree)


def refusal(**keys: object) -> str:
    with pytest.raises(ConfigError) as refused:
        spec(**keys)
    return str(refused.value)


class TestWhatIsRight:
    def test_the_canonical_file_says_what_the_documentation_says(self, tmp_path: Path) -> None:
        """CFG-06, CFG-10, CFG-12, CFG-17, CFG-19, CFG-23, CFG-25, CFG-34, CFG-37, CFG-39, CFG-50."""
        file = tmp_path / "orders.toml"
        file.write_text(CANONICAL, encoding="utf-8")
        pipeline = load_pipeline(file)
        assert isinstance(pipeline.source, KafkaSource)
        assert pipeline.source.kafka == {"bootstrap.servers": "127.0.0.1:9092"}
        assert pipeline.table.partition == ["day(placed_at)", "bucket(16, customer)"]
        assert pipeline.table.sort == ["placed_at desc nulls last"]
        assert pipeline.table.target_file_size == 128 * 2**20
        assert pipeline.catalog.prop == {"some.catalog.property": "…"}
        assert pipeline.catalog.warehouse == str(tmp_path / "warehouse")
        assert (pipeline.epoch.interval, pipeline.epoch.max_bytes, pipeline.epoch.in_flight) == (30.0, 2**29, 3)
        assert pipeline.transform is not None
        assert pipeline.dead_letters == "shop.orders__dead_letters"

    def test_the_smallest_pipeline_has_a_default_for_everything_else(self) -> None:
        """CFG-10, CFG-20, CFG-34: and the writer's name is stable over restarts (CFG-03)."""
        pipeline = spec()
        assert pipeline.pipeline.name == "orders"
        assert isinstance(pipeline.source, KafkaSource)
        assert (pipeline.source.starting_offsets, pipeline.source.fail_on_data_loss) == ("earliest", True)
        assert (pipeline.decode.metadata, pipeline.decode.on_error) == (True, "dead-letter")
        assert (pipeline.table.mode, pipeline.table.dictionary) == ("append", True)
        assert pipeline.table.row_group_rows == 131_072
        assert (pipeline.catalog.type, pipeline.catalog.warehouse) == ("sqlite", "./warehouse")
        assert (pipeline.epoch.interval, pipeline.epoch.max_records) == (30.0, 1_000_000)

    @pytest.mark.parametrize(
        "written",
        [
            {"partition": ["DAYS(placed_at)", "BUCKET(16, id)"], "sort": ["a desc", "b"], "file_format": "orc"},
            {"partition": "DAYS(placed_at), BUCKET(16, id)", "sort": "a desc, b", "file.format": "orc"},
            {"partition.spec": "DAYS(placed_at), BUCKET(16, id)", "sort.order": "a desc, b", "file_format": "orc"},
            {
                "partition": {"spec": "DAYS(placed_at), BUCKET(16, id)"},
                "sort": {"order": "a desc, b"},
                "file": {"format": "orc"},
            },
        ],
    )
    def test_fields_are_a_list_or_a_text_under_either_name(self, written: dict[str, Any]) -> None:
        """CFG-18, CFG-22, CFG-23, FILE-09."""
        table = spec(table={"name": "shop.orders", **written}).table
        assert table.partition == ["DAYS(placed_at)", "BUCKET(16, id)"]
        assert table.sort == ["a desc", "b"]
        assert table.file_format == "orc"

    def test_a_size_has_the_name_that_other_tools_give_it(self) -> None:
        """CFG-17."""
        nested = {"name": "shop.orders", "target": {"file": {"size": "64MB"}}}
        assert spec(table=nested).table.target_file_size == 64 * 2**20

    def test_the_source_is_what_its_type_says(self) -> None:
        made_up = spec(source={"type": "generator", "records": 5}).source
        assert isinstance(made_up, GeneratorSource)
        assert made_up.records == 5
        assert isinstance(spec().source, KafkaSource)

    @pytest.mark.parametrize(
        "offsets",
        ["earliest", "latest", {"orders": {"0": 42, "1": -1}}, datetime(2026, 1, 1, tzinfo=UTC)],
    )
    def test_starting_offsets_are_a_word_a_map_or_a_time(self, offsets: object) -> None:
        source = spec(source__starting_offsets=offsets).source
        assert isinstance(source, KafkaSource)
        assert source.starting_offsets == offsets

    @pytest.mark.parametrize(
        "written",
        [
            {"a.b.c": "1", "d": "x"},
            {"a": {"b": {"c": "1"}}, "d": "x"},
            {"a.b": {"c": "1"}, "d": "x"},
            {"a": {"b.c": 1}, "d": "x"},
        ],
    )
    @pytest.mark.parametrize("place", ["catalog__prop", "table__properties", "spark__conf"])
    def test_settings_of_other_libraries_pass_through_dotted_or_nested(self, place: str, written: object) -> None:
        """CFG-50."""
        pipeline = spec(**{place: written})
        section, _, key = place.partition("__")
        assert getattr(getattr(pipeline, section), key) == {"a.b.c": "1", "d": "x"}

    def test_numbers_and_booleans_pass_through_as_those_libraries_write_them(self) -> None:
        conf = {"a": True, "b": False, "c": 5, "d": 0.5, "e": "True"}
        assert spec(spark__conf=conf).spark.conf == {"a": "true", "b": "false", "c": "5", "d": "0.5", "e": "True"}

    @pytest.mark.parametrize(
        ("decode", "dead"),
        [
            ({"format": "json", "schema": "a INT"}, "shop.orders__dead_letters"),
            ({"format": "json", "schema": "a INT", "on_error": "fail"}, None),
            ({"format": "raw"}, None),
        ],
    )
    def test_dead_letters_have_a_table_where_there_can_be_any(self, decode: object, dead: str | None) -> None:
        assert spec(decode=decode).dead_letters == dead

    @pytest.mark.parametrize(("heartbeat", "seconds"), [("5m", 300.0), (60, 60.0), ("off", "off")])
    def test_a_heartbeat_is_a_duration_or_off(self, heartbeat: object, seconds: object) -> None:
        assert spec(epoch__heartbeat=heartbeat).epoch.heartbeat == seconds

    def test_references_to_the_environment_are_resolved_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SEC-02: nested settings, lists, parts of a text."""
        for name, value in {"TOPIC": "orders", "HOST": "broker-7", "PASSWORD": "hunter2"}.items():
            monkeypatch.setenv(name, value)
        pipeline = spec(
            source__topics=["${TOPIC}", "returns"],
            source__kafka={"bootstrap.servers": "${HOST}:9092", "sasl": {"password": "${PASSWORD}"}},
            table__partition=["${TOPIC}"],
        )
        assert isinstance(pipeline.source, KafkaSource)
        assert pipeline.source.topics == ["orders", "returns"]
        assert pipeline.source.kafka == {"bootstrap.servers": "broker-7:9092", "sasl.password": "hunter2"}
        assert pipeline.table.partition == ["orders"]

    @pytest.mark.parametrize(
        ("warehouse", "found"),
        [
            ("./warehouse", "{folder}/warehouse"),
            ("data/lake", "{folder}/data/lake"),
            ("../lake", "{parent}/lake"),
            ("/srv/lake", "/srv/lake"),
            ("s3://bucket/lake", "s3://bucket/lake"),
            ("file:/srv/lake", "file:/srv/lake"),
            ("file:///srv/lake", "file:///srv/lake"),
        ],
    )
    def test_a_relative_warehouse_lies_beside_the_file(self, tmp_path: Path, warehouse: str, found: str) -> None:
        """CFG-37: wherever frazil is started from."""
        folder = tmp_path / "pipelines"
        folder.mkdir()
        file = folder / "orders.toml"
        file.write_text(CANONICAL.replace("./warehouse", warehouse), encoding="utf-8")
        expected = found.format(folder=folder, parent=tmp_path)
        assert load_pipeline(file).catalog.warehouse == expected

    @pytest.mark.parametrize(
        ("section", "found"),
        [
            ("", "{folder}/.frazil/orders"),
            ('[journal]\ndir = "notes"', "{folder}/notes"),
            ('[journal]\ndir = "/var/lib/notes"', "/var/lib/notes"),
        ],
    )
    def test_the_journal_lies_beside_the_file_unless_told_otherwise(
        self, tmp_path: Path, section: str, found: str
    ) -> None:
        """CFG-69: also with a warehouse that is far away."""
        file = tmp_path / "orders.toml"
        file.write_text(CANONICAL.replace("./warehouse", "s3://lake") + section, encoding="utf-8")
        assert load_pipeline(file).journal.dir == found.format(folder=tmp_path)

    def test_epochs_under_way_land_as_written_unless_told_otherwise(self) -> None:
        """CFG-31, SCHEMA-08."""
        assert spec().schema_.mixed_epoch == "split"
        assert spec(schema__mixed_epoch="next-epoch").schema_.mixed_epoch == "next-epoch"

    def test_the_journal_has_its_keys_under_other_names_too(self) -> None:
        """CFG-67, CFG-68."""
        journal = spec(journal={"checkpoint_seconds": 60.0, "max_log_files": 3}).journal
        assert (journal.checkpoint_interval, journal.max_files, journal.checkpoint_entries) == (60.0, 3, 10_000)

    def test_a_spec_cannot_be_changed_afterwards(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            spec().table.name = "other"


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"tabel": {}}, "tabel: unknown key; did you mean table?"),
            ({"epochs": {}}, "epochs: unknown key; did you mean epoch?"),
            ({"pipeline__nmae": "x"}, "pipeline.nmae: unknown key; did you mean pipeline.name?"),
            ({"source__topic": "x"}, "source.topic: unknown key; did you mean source.topics?"),
            (
                {"source__fail_on_dataloss": True},
                "source.fail_on_dataloss: unknown key; did you mean source.fail_on_data_loss?",
            ),
            ({"decode__shema": "x"}, "decode.shema: unknown key; did you mean decode.schema?"),
            ({"table__partitions": []}, "table.partitions: unknown key; did you mean table.partition?"),
            (
                {"table__target_filesize": 1},
                "table.target_filesize: unknown key; did you mean table.target_file_size?",
            ),
            ({"catalog__warehous": "x"}, "catalog.warehous: unknown key; did you mean catalog.warehouse?"),
            ({"epoch__max_record": 1}, "epoch.max_record: unknown key; did you mean epoch.max_records?"),
            ({"schema__mixed": "x"}, "schema.mixed: unknown key; did you mean schema.mixed_epoch?"),
            ({"shema": {}}, "shema: unknown key; did you mean schema?"),
            ({"spark__mastre": "x"}, "spark.mastre: unknown key; did you mean spark.master?"),
            (
                {"transform": {"sql": "SELECT 1", "slq": "x"}},
                "transform.slq: unknown key; did you mean transform.sql?",
            ),
        ],
    )
    def test_are_refused_with_the_nearest_known_one(self, keys: dict[str, object], message: str) -> None:
        """CLI-03: at every level."""
        assert refusal(**keys) == message

    def test_in_the_wrong_section_are_refused_with_the_right_one(self) -> None:
        assert refusal(table__interval="3s") == "table.interval: unknown key; did you mean epoch.interval?"
        assert refusal(topics=["orders"]) == "topics: unknown key; did you mean source.topics?"
        assert refusal(spark__mixed_epoch="x") == "spark.mixed_epoch: unknown key; did you mean schema.mixed_epoch?"
        assert refusal(source__warehouse="x") == "source.warehouse: unknown key; did you mean catalog.warehouse?"

    def test_that_resemble_nothing_are_refused_with_all_that_are_known(self) -> None:
        assert refusal(epoch__zzz=1) == (
            "epoch.zzz: unknown key; known are heartbeat, in_flight, interval, max_bytes, max_records"
        )

    def test_of_another_source_type_are_refused(self) -> None:
        source = {"type": "generator", "topics": ["orders"]}
        assert refusal(source=source).startswith("source.topics: unknown key")

    def test_a_pipeline_has_but_one_guarantee(self) -> None:
        """COMMIT-24, CFG-02: it may be named; the other one is for sinks."""
        assert parse_pipeline({**SMALLEST, "delivery": {"guarantee": "exactly-once"}}) == parse_pipeline(SMALLEST)
        assert "the table is their checkpoint" in refusal(delivery__guarantee="at-least-once")
        assert refusal(delivery__guarantee="twice").startswith("delivery: unknown key")

    def test_every_key_is_known_by_its_written_name(self) -> None:
        keys = all_keys()
        assert len(keys) == len(set(keys))
        assert {"decode.schema", "source.kafka", "source.seed", "epoch.interval"} <= set(keys)
        assert "decode.schema_" not in keys


class TestWrongValues:
    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (
                {"decode__format": "jsn"},
                "decode.format: 'jsn' is not allowed; allowed are 'json' or 'raw'; did you mean 'json'?",
            ),
            (
                {"schema__mixed_epoch": "next_epoch"},
                "schema.mixed_epoch: 'next_epoch' is not allowed; allowed are 'split' or 'next-epoch'; "
                "did you mean 'next-epoch'?",
            ),
            ({"decode__format": {"x": 1}}, "decode.format: {'x': 1} is not allowed; allowed are 'json' or 'raw'"),
            (
                {"table__compression": "zip"},
                "table.compression: 'zip' is not allowed; allowed are 'zstd', 'snappy', 'lz4', 'gzip' or 'none'; "
                "did you mean 'gzip'?",
            ),
            (
                {"table__mode": "upsrt"},
                "table.mode: 'upsrt' is not allowed; allowed are 'append', 'upsert' or 'overwrite'; "
                "did you mean 'upsert'?",
            ),
            (
                {"source__type": "kafak"},
                "source.type: 'kafak' is not allowed; allowed are 'kafka', 'files', 'generator'; did you mean "
                "'kafka'?",
            ),
            (
                {"source__type": ...},
                "source.type: required, but missing; allowed are 'kafka', 'files', 'generator'",
            ),
            (
                {"epoch__interval": "soon"},
                'epoch.interval: \'soon\' is not allowed; expected a duration such as "500ms", "30s", "5m" or "1h"',
            ),
            (
                {"epoch__interval": float("nan")},
                "epoch.interval: nan is not allowed; expected a duration longer than zero, and finite",
            ),
            (
                {"table__target_file_size": "12 parsecs"},
                "table.target_file_size: '12 parsecs' is not allowed; expected a size such as "
                '"512KB", "128MB" or "1GB"',
            ),
            (
                {"table__target_file_size": -5},
                "table.target_file_size: -5 is not allowed; expected a size larger than zero",
            ),
            (
                {"table__page_size": "-1MB"},
                'table.page_size: \'-1MB\' is not allowed; expected a size such as "512KB", "128MB" or "1GB"',
            ),
            (
                {"table__row_group_rows": 0},
                "table.row_group_rows: 0 is not allowed; input should be greater than or equal to 1",
            ),
            (
                {"table__partition": ["customer"], "table__partition.spec": "customer"},
                "table: partition.spec and partition are the same: keep one of them",
            ),
            (
                {"table__distribution": "hsah"},
                "table.distribution: 'hsah' is not allowed; allowed are 'none', 'hash' or 'auto'; "
                "did you mean 'hash'?",
            ),
            (
                {"epoch__in_flight": 17},
                "epoch.in_flight: 17 is not allowed; input should be less than or equal to 16",
            ),
            (
                {"epoch__max_records": 0},
                "epoch.max_records: 0 is not allowed; input should be greater than or equal to 1",
            ),
            (
                {"pipeline__name": "my orders"},
                "pipeline.name: 'my orders' is not allowed; expected letters, digits, '_', '.' and '-', "
                "at most 100 of them",
            ),
            (
                {"table__name": "orders"},
                "table.name: 'orders' is not allowed; expected a namespace and a table, such as shop.orders",
            ),
            (
                {"table__name": "shop..orders"},
                "table.name: 'shop..orders' is not allowed; expected a namespace and a table, such as shop.orders",
            ),
            (
                {"source__kafka": {"bootstrap.servers": ["a:1", "b:2"]}},
                "source.kafka: bootstrap.servers must be a text, a number or a boolean; "
                'write a list as one text: "a,b"',
            ),
        ],
    )
    def test_are_refused_with_the_allowed_ones(self, keys: dict[str, object], message: str) -> None:
        """CLI-03."""
        assert refusal(**keys) == message

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (
                {"epoch__max_records": "many"},
                "epoch.max_records: 'many' is not allowed; input should be a valid integer",
            ),
            ({"epoch__max_records": 1.5}, "epoch.max_records: 1.5 is not allowed; input should be a valid integer"),
            (
                {"epoch__max_records": True},
                "epoch.max_records: True is not allowed; input should be a valid integer",
            ),
            ({"decode__metadata": "yes"}, "decode.metadata: 'yes' is not allowed; input should be a valid boolean"),
            ({"source__topics": "orders"}, "source.topics: 'orders' is not allowed; input should be a valid list"),
            ({"source__topics": ["a", 5]}, "source.topics: 5 is not allowed; input should be a valid string"),
            ({"table__name": 5}, "table.name: 5 is not allowed; input should be a valid string"),
            ({"source__kafka": "x"}, "source.kafka: 'x' is not allowed; input should be a valid dictionary"),
            ({"table": 5}, "table: 5 is not allowed; expected a section [table] with keys of its own"),
            (
                {"source": "kafka"},
                "source: 'kafka' is not allowed; expected a section [source] with keys of its own",
            ),
        ],
    )
    def test_of_the_wrong_type_are_refused_with_the_right_one(self, keys: dict[str, object], message: str) -> None:
        assert refusal(**keys) == message

    def test_a_wrong_starting_offset_is_answered_with_all_three_ways_to_write_one(self) -> None:
        told = refusal(source__starting_offsets="newest").splitlines()
        assert told == [
            "source.starting_offsets: 'newest' is not allowed; allowed are 'earliest' or 'latest'",
            "source.starting_offsets: 'newest' is not allowed; input should be a valid dictionary",
            "source.starting_offsets: 'newest' is not allowed; input should be a valid datetime",
        ]

    def test_an_unknown_catalog_is_an_error_of_its_own(self) -> None:
        """SINK-10, CFG-34."""
        with pytest.raises(UnsupportedCatalog, match=r"'rset' is not allowed.*did you mean 'rest'") as refused:
            spec(catalog__type="rset")
        assert refused.value.kind == "UnsupportedCatalog"
        with pytest.raises(ConfigError) as other:
            spec(catalog__type="rset", epoch__in_flight=0)
        assert type(other.value) is ConfigError, "more than the catalog is wrong"

    @pytest.mark.parametrize("kind", ["rest", "hive", "nessie", "jdbc"])
    def test_a_catalog_server_needs_an_address(self, kind: str) -> None:
        """CFG-35."""
        assert refusal(catalog__type=kind) == f"catalog: uri is required with type {kind}"
        spec(catalog={"type": kind, "uri": "http://127.0.0.1:8181"})

    @pytest.mark.parametrize("kind", ["sqlite", "memory"])
    def test_an_embedded_catalog_needs_none(self, kind: str) -> None:
        """CFG-35."""
        assert spec(catalog__type=kind).catalog.uri is None

    def test_what_does_not_go_together_is_refused(self) -> None:
        assert refusal(decode__schema=...) == "decode: schema is required with format json"
        assert "schema cannot be given with format raw" in refusal(decode={"format": "raw", "schema": "a INT"})
        assert "'returns', which is not among topics" in refusal(source__partitions={"returns": [0]})
        assert 'kafka."bootstrap.servers" is required' in refusal(source__kafka={"client.id": "x"})

    def test_everything_wrong_is_said_at_once(self) -> None:
        told = refusal(decode__format="jsn", epoch__in_flight=99, tabel={}, table__name=...).splitlines()
        assert len(told) == 4
        assert {line.split(":")[0] for line in told} == {"decode.format", "epoch.in_flight", "tabel", "table.name"}


class TestMissingKeys:
    @pytest.mark.parametrize("section", ["pipeline", "source", "decode", "table"])
    def test_a_missing_section_is_named(self, section: str) -> None:
        assert refusal(**{section: ...}) == f"{section}: required, but missing"

    @pytest.mark.parametrize(
        "key", ["pipeline.name", "source.topics", "source.kafka", "decode.format", "table.name"]
    )
    def test_a_missing_key_is_named(self, key: str) -> None:
        assert refusal(**{key.replace(".", "__"): ...}) == f"{key}: required, but missing"

    def test_an_empty_file_misses_every_section(self, tmp_path: Path) -> None:
        file = tmp_path / "empty.toml"
        file.touch()
        with pytest.raises(ConfigError) as refused:
            load_pipeline(file)
        assert len(str(refused.value).splitlines()) == 4


class TestFiles:
    def write(self, tmp_path: Path, content: bytes) -> Path:
        file = tmp_path / "orders.toml"
        file.write_bytes(content)
        return file

    def refused(self, file: Path) -> FrazilError:
        with pytest.raises(ConfigError) as refused:
            load_pipeline(file)
        assert str(file) in refused.value.message
        return refused.value

    def test_a_missing_file_comes_with_a_way_to_write_one(self, tmp_path: Path) -> None:
        refused = self.refused(tmp_path / "nowhere.toml")
        assert "there is no file" in refused.message
        assert "frazil init" in refused.remedy

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        assert "cannot be read: Is a directory" in self.refused(tmp_path).message

    def test_bad_toml_is_pointed_at(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, b'[pipeline]\nname = "orders\n')
        assert "line 2, column" in self.refused(file).message

    def test_a_key_given_twice_is_bad_toml(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, b'[pipeline]\nname = "a"\nname = "b"\n')
        assert "line 3" in self.refused(file).message

    def test_text_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, '[pipeline]\nname = "bestellungen-für"\n'.encode("latin-1"))
        assert "is not UTF-8" in self.refused(file).message


class TestSecrets:
    def test_a_missing_environment_variable_is_named_with_its_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SEC-02."""
        monkeypatch.delenv("FRAZIL_MISSING", raising=False)
        told = refusal(source__kafka={"bootstrap.servers": "x", "sasl.password": "${FRAZIL_MISSING}"})
        assert "source.kafka.sasl.password: the environment variable FRAZIL_MISSING is not set" in told
        assert "export FRAZIL_MISSING" in told

    @pytest.mark.parametrize("secret", ["hunter2", 'it\'s "quoted"', "back\\slash", "zwei\nZeilen", "ünïcödé"])
    @pytest.mark.parametrize("place", ["epoch__interval", "epoch__max_records", "decode__format", "table__name"])
    def test_a_secret_in_the_wrong_place_is_not_shown(
        self, monkeypatch: pytest.MonkeyPatch, secret: str, place: str
    ) -> None:
        """SEC-02: not even as Python would quote it."""
        monkeypatch.setenv("FRAZIL_SECRET", secret)
        told = refusal(**{place: "${FRAZIL_SECRET}"})
        assert "••••" in told
        assert secret not in told
        assert repr(secret)[1:-1] not in told

    def test_secrets_of_a_section_are_not_shown_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SEC-02: a whole section may be the wrong value."""
        monkeypatch.setenv("FRAZIL_SECRET", "hunter2")
        settings = {"sasl.password": "in-the-file", "other": "${FRAZIL_SECRET}", "list": ["hunter2"]}
        for told in (
            refusal(source__kafka=[settings]),
            refusal(table=[settings]),
            refusal(decode__format=settings),
            refusal(source__starting_offsets=settings),
        ):
            assert "hunter2" not in told
            assert "in-the-file" not in told


def test_a_named_warehouse_of_a_rest_catalog_is_not_a_folder() -> None:
    rest = spec(catalog={"type": "rest", "uri": "http://127.0.0.1:8181", "warehouse": "demo"})
    assert rest.at(Path("/srv")).catalog.warehouse == "demo"


def test_a_key_of_another_source_type_is_called_that() -> None:
    assert "source.seed: unknown key; it belongs to another source.type" in refusal(source__seed=1)


class TestKeyedTables:
    @pytest.mark.parametrize("envelope", ["none", "op-column"])
    def test_upsert_needs_keys_where_no_record_names_them(self, envelope: str) -> None:
        """CHG-02."""
        problem = refusal(table__mode="upsert", decode__envelope=envelope)
        assert "table.keys is required" in problem
        assert f'"{envelope}"' in problem
        delta = {"table__format": "delta", "table__path": "/tables/orders"}
        assert "table.keys is required" in refusal(table__mode="merge", decode__envelope=envelope, **delta)

    @pytest.mark.parametrize("envelope", ["debezium", "cockroachdb"])
    def test_keys_may_be_left_out_where_records_may_name_them(self, envelope: str) -> None:
        """CHG-03."""
        assert spec(table__mode="upsert", decode__envelope=envelope).table.keys == []

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"table__keys": ["*", "id"]}, '"*" is the whole row and stands alone'),
            ({"decode__envelope": "none"}, 'decode.envelope = "none" does not tell the whole row that goes'),
            ({"decode__envelope": "cockroachdb"}, "name the columns of the primary key"),
            ({"decode__metadata": True}, "set decode.metadata = false"),
            ({"decode__catch_all": "rest"}, "decode.catch_all do not go together"),
            ({"changes__sequence_by": "id"}, "changes.sequence_by has no meaning"),
            ({"changes__trust_inserts": True}, "changes.trust_inserts has no meaning"),
        ],
    )
    def test_rows_that_cannot_be_their_own_keys_are_refused(self, keys: dict[str, object], message: str) -> None:
        """LIM-04"""
        whole = {"table__mode": "upsert", "table__keys": ["*"], "decode__envelope": "debezium"}
        whole["decode__metadata"] = False
        assert spec(**whole).has_whole_rows
        assert message in refusal(**(whole | keys))

    def test_upsert_needs_columns(self) -> None:
        problem = refusal(table__mode="upsert", table__keys=["id"], decode__format="raw", decode__schema=...)
        assert 'use decode.format = "json"' in problem

    def test_rows_go_to_tasks_by_their_key_and_not_by_partition(self) -> None:
        problem = refusal(table__mode="upsert", table__keys=["order_id"], table__distribution="hash")
        assert 'table.distribution = "hash" cannot be' in problem

    def test_an_envelope_of_changes_is_for_upsert_only(self) -> None:
        problem = refusal(decode__envelope="debezium")
        assert problem == 'decode.envelope = "debezium" needs table.mode = "upsert"'

    def test_keys_have_their_name_of_other_tools(self) -> None:
        keyed = spec(table={"name": "shop.orders", "write.mode": "upsert", "equality.delete.columns": ["order_id"]})
        assert (keyed.table.mode, keyed.table.keys) == ("upsert", ["order_id"])
        merged = spec(table={"format": "delta", "path": "/t/orders", "mode": "merge", "keys": ["order_id"]})
        assert (merged.table.mode, merged.table.name) == ("upsert", "orders")

    def test_unknown_operations_stop_unless_told_otherwise(self) -> None:
        """CHG-05, CFG-29."""
        assert spec().changes.unknown_op == "fail"
        problem = refusal(changes__unknown_op="insert")
        assert "allowed are 'fail', 'warn-insert' or 'dead-letter'" in problem

    def test_resolved_times_are_for_changefeeds_and_on_by_default_there(self) -> None:
        """EPOCH-02."""
        keyed = {"table__mode": "upsert", "table__keys": ["id"]}
        feed = {**keyed, "decode__envelope": "cockroachdb"}
        assert spec(**keyed).resolved is None
        assert spec(**feed).resolved == "each"
        assert spec(**feed, changes__resolved="latest").resolved == "latest"
        assert spec(**feed, changes__resolved="off").resolved is None
        assert "needs decode.envelope" in refusal(**keyed, changes__resolved="each")
        assert 'set changes.resolved = "off"' in refusal(**feed, transform__sql="SELECT * FROM source")
        assert 'set changes.resolved = "off"' in refusal(**feed, changes__sequence_by="id")
        assert spec(**feed, changes__sequence_by="id", changes__resolved="off").changes.sequence_by == "id"
