"""What a sink may be told, and how it says what it does not understand."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError, UnsupportedCatalog
from frazil.sink import SinkConfig
from frazil.sink.info import config_keys

DELTA = {"table.format": "delta", "table.path": "/lake/orders"}


def test_flat_texts_become_typed_sections() -> None:
    """SINK-02"""
    config = SinkConfig.from_options(
        {
            "table.name": "shop.orders",
            "table.partition": "day(placed_at), bucket(16, customer)",
            "table.keys": "id",
            "table.mode": "upsert",
            "table.compression_level": "3",
            "table.dictionary": "false",
            "table.properties.write.metadata.metrics.default": "full",
            "catalog.type": "rest",
            "catalog.uri": "http://127.0.0.1:8181",
            "catalog.prop.header.x": "1",
            "columns.schema": "id BIGINT, customer STRING, placed_at TIMESTAMP",
            "buffer.max_records": "500",
            "buffer.max_age": "2m",
            "writer.adopt": "TRUE",
        }
    )
    assert config.table.partition == ["day(placed_at)", "bucket(16, customer)"]
    assert (config.table.keys, config.table.compression_level, config.table.dictionary) == (["id"], 3, False)
    assert config.table.properties == {"write.metadata.metrics.default": "full"}
    assert config.catalog.prop == {"header.x": "1"}
    assert (config.buffer.max_records, config.buffer.max_age) == (500, 120.0)
    assert config.writer.adopt


def test_options_of_the_store_come_with_a_prefix_of_their_own() -> None:
    """STORE-02: which is stripped; they go where the table's format looks for them."""
    store = {"storage.s3.region": "eu-central-1"}
    delta = SinkConfig.from_options({"table.format": "delta", "table.path": "s3://lake/orders", **store})
    assert delta.table.storage == {"s3.region": "eu-central-1"}
    assert SinkConfig.from_options({"table.name": "shop.orders", **store}).catalog.prop == delta.table.storage
    with pytest.raises(
        ConfigError, match=r"storage\.s3\.regoin: unknown setting; did you mean storage\.s3\.region"
    ):
        SinkConfig.from_options({"table.format": "delta", "table.path": "s3://a/b", "storage.s3.regoin": "x"})


def test_names_of_other_tools_are_understood() -> None:
    """SINK-02: as in a pipeline file, and a few that only options have"""
    config = SinkConfig.from_options(
        {
            **DELTA,
            "table.partition.spec": "day(placed_at)",
            "target.file.size": "64MB",
            "write.mode": "append",
            "max.buffer.records": "7",
            "max.buffer.duration": "5",
            "writer.id": "loader",
        }
    )
    assert config.table.partition == ["day(placed_at)"]
    assert config.table.target_file_size == 64 * 2**20
    assert (config.buffer.max_records, config.buffer.max_age) == (7, 5.0)
    assert config.writer_name == "loader"


def test_the_defaults_are_those_that_are_written_down() -> None:
    """SINK-02, CFG-03: the writer's name is the same after every start."""
    config = SinkConfig.from_options(DELTA)
    assert (config.buffer.max_records, config.buffer.max_age) == (100_000, 30.0)
    assert config.writer_name == config.stream == "sink-orders"
    assert config.delivery.guarantee == "exactly-once"
    assert config == SinkConfig.parse({"table": {"format": "delta", "path": "/lake/orders"}})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table.pth": "/lake"}, "table.pth: unknown key; did you mean table.path?"),
        ({"buffer.path": "/lake"}, "buffer.path: unknown key; did you mean table.path?"),
        ({"tabel.path": "/lake"}, "tabel: unknown key; did you mean table?"),
        ({"path": "/lake"}, "path: unknown option"),
        ({"buffer.max_records": "many"}, "buffer.max_records: 'many' is not allowed"),
        ({"buffer.max_age": "long"}, "a duration such as"),
        ({"writer.name": "or ders"}, "writer.name: 'or ders' is not allowed; expected letters"),
        ({"delivery.guarantee": "at-most-once"}, "allowed are 'exactly-once' or 'at-least-once'"),
        ({"table.mode": "upsert", "table.keys": "*"}, "is for pipelines"),
        ({"columns.sequence_by": "at"}, "columns.sequence_by needs"),
        ({"max.buffer.records": "1", "buffer.max_records": "2"}, "given twice"),
    ],
)
def test_what_is_wrong_is_said_as_of_a_pipeline_file(options: dict[str, str], said: str) -> None:
    """SINK-02, SINK-10: the nearest key is named."""
    with pytest.raises(ConfigError) as error:
        SinkConfig.from_options({**DELTA, **options})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table.mode": "upsert", "table.keys": "id"}, 'table.mode = "upsert", where the order of epochs counts'),
        ({"table.mode": "overwrite"}, 'table.mode = "overwrite", where the order of epochs counts'),
        ({"writer.adopt": "true"}, "writer.adopt needs"),
        ({"writer.stream": "mine"}, "writer.stream needs"),
        ({"writer.on_rollback": "keep"}, "writer.on_rollback needs"),
    ],
)
def test_what_needs_a_register_is_refused_without_one(options: dict[str, str], said: str) -> None:
    """COMMIT-24"""
    with pytest.raises(ConfigError) as error:
        SinkConfig.from_options({**DELTA, **options, "delivery.guarantee": "at-least-once"})
    assert said in str(error.value)


@pytest.mark.parametrize("table", [{"table.name": "shop.orders"}, DELTA])
def test_upserts_need_a_key(table: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"table\.keys is required"):
        SinkConfig.from_options({**table, "table.mode": "upsert"})


def test_overwrites_are_for_delta_tables_as_in_a_pipeline_file() -> None:
    """CHG-13"""
    assert SinkConfig.from_options({**DELTA, "table.mode": "overwrite"}).table.mode == "overwrite"
    with pytest.raises(ConfigError, match='mode = "overwrite" is for format = "delta"'):
        SinkConfig.from_options({"table.name": "shop.orders", "table.mode": "overwrite"})


def test_a_catalog_that_may_lose_commits_is_refused() -> None:
    """SINK-10: UnsupportedCatalog"""
    options = {"table.name": "shop.orders", "catalog.prop.catalog-impl": "org.example.Unknown"}
    with pytest.raises(UnsupportedCatalog):
        SinkConfig.from_options(options)
    SinkConfig.from_options({**options, "catalog.vouched": "true"})


def test_a_secret_is_taken_from_the_environment_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK_TOKEN", "hush-hush")
    told = {"table.name": "shop.orders", "catalog.prop.token": "${SINK_TOKEN}"}
    assert SinkConfig.from_options(told).catalog.prop == {"token": "hush-hush"}
    with pytest.raises(ConfigError) as error:
        SinkConfig.from_options({**told, "table.mode": "hush-hush"})
    assert "hush-hush" not in str(error.value)


def test_every_example_of_an_option_can_be_given() -> None:
    """SINK-07: what info() shows is what from_options() takes."""
    for key in config_keys():
        name, _, value = key.example.rpartition(" = ")
        told = {name or key.name: value}
        base = {"table.name": "shop.orders", "table.mode": "upsert", "table.keys": "id"}
        if key.name in ("table.format", "table.path"):
            base = {"table.format": "delta", "table.name": "orders", "table.path": "/lake/orders"}
        if key.name == "table.storage":
            base = {"table.format": "delta", "table.path": "s3://lake/orders"}
        if key.name == "catalog.type":
            base["catalog.uri"] = "http://127.0.0.1:8181"
        if key.name == "catalog.prop":
            told = {"catalog.prop.x": "y"}
        SinkConfig.from_options({**base, **told})
