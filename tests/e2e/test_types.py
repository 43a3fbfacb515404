"""Every type from Kafka bytes through a pipeline into an Iceberg table, and out again through other readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from json_tables import IN_SPARK, PLAIN, Drawn, plainly, tables
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import Row

pytestmark = pytest.mark.real

ALL = ", ".join(f"c{i} {ddl}" for i, ddl in enumerate(PLAIN))


def drawn(strategy: Any, count: int) -> list[Any]:
    """The same few examples in every run."""
    examples: list[Any] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Any) -> None:
        examples.append(example)

    collect()
    return examples[-count:]


def from_spark(value: Any) -> Any:
    """Rows of Spark in the form of rows of Arrow."""
    match value:
        case Row():
            return {key: from_spark(each) for key, each in value.asDict().items()}
        case dict():
            return [(key, from_spark(each)) for key, each in value.items()]
        case list():
            return [from_spark(each) for each in value]
        case _:
            return plainly(value)


def by_key(value: Any) -> Any:
    """Maps have no order once Spark has read them."""
    match value:
        case [(str(), _), *_]:
            return sorted((key, by_key(each)) for key, each in value)
        case dict():
            return {key: by_key(each) for key, each in value.items()}
        case list():
            return [by_key(each) for each in value]
        case _:
            return value


def test_rows_of_random_schemas_come_back_from_spark_as_they_were(make_rig: Callable[..., Any]) -> None:
    """DEC-04, TEST-01"""
    # PySpark hands TIMESTAMP out in the machine's own zone, so that it is left to the next test.
    plain = [ddl for ddl in IN_SPARK if ddl != "TIMESTAMP"]
    for number, (ddl, rows) in enumerate(drawn(tables(plain, depth=2, rows=6), 4)):
        rig = make_rig(decode={"schema": ddl}, table={"name": f"shop.t{number}"})
        rig.produce([text for text, _ in rows])
        rig.run()
        columns = ", ".join(f"f{i}" for i in range(len(rows[0][1])))
        landed = [from_spark(row) for row in rig.sql(f"SELECT {columns} FROM {{t}} ORDER BY _offset")]
        assert by_key(landed) == by_key(plainly([row for _, row in rows])), ddl


def loaded(rig: Any) -> list[dict[str, Any]]:
    warehouse = rig.spec.catalog.warehouse
    catalog = SqlCatalog(rig.spec.catalog.name, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse)
    rows = catalog.load_table(rig.spec.table.name).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["_offset"])


def test_every_type_comes_back_from_pyiceberg_as_it_was(make_rig: Callable[..., Any]) -> None:
    """DEC-04: also those that Spark does not read."""
    rig = make_rig(decode={"schema": ALL}, table={"properties": {"format-version": "3"}})
    values: dict[str, list[Drawn]] = {ddl: drawn(kind.values, 20) for ddl, kind in PLAIN.items()}
    count = min(map(len, values.values()))
    expected = [{f"c{i}": plainly(values[ddl][n][1]) for i, ddl in enumerate(PLAIN)} for n in range(count)]
    rig.produce(
        ["{" + ", ".join(f'"c{i}": {values[ddl][n][0]}' for i, ddl in enumerate(PLAIN)) + "}" for n in range(count)]
    )
    rig.run()
    landed = [{key: plainly(each) for key, each in row.items() if key.startswith("c")} for row in loaded(rig)]
    assert landed == expected


def test_what_is_not_declared_is_kept_and_bad_records_die_alone(make_rig: Callable[..., Any]) -> None:
    """DEC-04, FAULTS 45"""
    rig = make_rig(
        decode={
            "schema": "id BIGINT NOT NULL, at TIMESTAMP, rest STRING",
            "catch_all": "rest",
            "epoch_unit": {"at": "ms"},
        }
    )
    rig.produce(
        [
            '{"id": 1, "at": 1700000000123, "more": {"x": [1.50]}}',
            '{"id": 2, "at": "2026-01-02T03:04:05Z"}',
            '{"id": 1e-30}',
            '{"id": 3, "at": 1e30}',
            '{"id": 4, "broken": [1,]}',
            '{"id": 5}',
        ]
    )
    rig.run()
    rows = rig.sql("SELECT id, unix_millis(at), rest FROM {t} ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (1, 1_700_000_000_123, '{"more":{"x": [1.50]}}'),
        (2, 1_767_323_045_000, None),
        (5, None, None),
    ]
    assert rig.dead_offsets() == [(0, 2), (0, 3), (0, 4)]


def test_uuids_and_fixed_bytes_pass_through_sql(make_rig: Callable[..., Any]) -> None:
    text = "123e4567-e89b-12d3-a456-426614174000"
    rig = make_rig(
        decode={"schema": "id BIGINT, u UUID, f FIXED(2)"},
        transform={"sql": "SELECT id, u, hex(f) AS f, _offset FROM source WHERE u LIKE '123e%'"},
    )
    rig.produce([f'{{"id": 1, "u": "{text.upper()}", "f": "QUI="}}', '{"id": 2}'])
    rig.run()
    assert [tuple(row) for row in rig.sql("SELECT id, u, f FROM {t}")] == [(1, text, "4142")]
