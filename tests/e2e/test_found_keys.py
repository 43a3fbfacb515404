"""Keyed tables whose pipeline file names no key: the table tells it, or else the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.engine import assemble
from frazil.engine.check import check_connections
from frazil.engine.verify import verify_pipeline
from frazil.errors import ConfigError
from frazil.protocol.verify import Level
from frazil.table.iceberg import IcebergCatalog

pytestmark = pytest.mark.real

SCHEMA = "id BIGINT, region STRING, name STRING"
DEBEZIUM = {"format": "json", "schema": SCHEMA, "envelope": "debezium"}
COCKROACHDB = {"format": "json", "schema": SCHEMA, "envelope": "cockroachdb"}
UPSERT = {"mode": "upsert"}


def event(op: str, number: int, region: str, name: str = "") -> dict[str, Any]:
    row = {"id": number, "region": region, "name": name}
    return {"op": op, "before": None, "after": row if op != "d" else None}


def rows(rig: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in rig.sql("SELECT id, region, name FROM {t}"))


def told(rig: Any) -> str:
    """Who told the key, by the log of a start."""
    with capture_logs() as logs:
        rig.run()
    (found,) = [each for each in logs if each["event"] == "key found"]
    return str(found["told_by"])


def refusal(rig: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        assemble(rig.spec, rig.spark)
    assert "table.keys" in refused.value.remedy
    return refused.value


def test_message_keys_of_debezium_name_the_key_once_and_the_table_from_then_on(
    make_rig: Callable[..., Any],
) -> None:
    """CHG-03: with Kafka Connect's schema block; what the topic says later makes no difference."""
    rig = make_rig(decode=DEBEZIUM, table=UPSERT)

    def key(number: int, region: str) -> dict[str, Any]:
        return {"schema": {"type": "struct"}, "payload": {"region": region, "id": number}}

    rig.produce_keyed([(key(1, "eu"), event("c", 1, "eu", "a")), (key(1, "us"), event("c", 1, "us", "b"))])
    findings = list(check_connections(rig.spec, rig.spark))
    assert f"key: region, id, by the key at {rig.topic}[0] offset 0" in findings
    assert told(rig) == f"the key at {rig.topic}[0] offset 0"
    assert rows(rig) == [(1, "eu", "a"), (1, "us", "b")]
    assert rig.open_table().schema().identifier_field_names() == {"id", "region"}
    rig.produce_keyed([(key(1, "us"), event("d", 1, "us")), (key(2, "eu"), event("c", 2, "eu", "c"))])
    assert told(rig) == "the identifier fields of shop.orders"
    assert rows(rig) == [(1, "eu", "a"), (2, "eu", "c")]
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS
    assert "id, region" in str(verdict.checks[-1])


def test_a_changefeed_that_names_its_key_needs_none_in_the_file(make_rig: Callable[..., Any]) -> None:
    """CHG-03: a key of several columns has no order then, so that values without names are no key."""
    rig = make_rig(decode=COCKROACHDB, table=UPSERT, changes={"resolved": "off"})

    def change(row: dict[str, Any] | None) -> dict[str, Any]:
        return {"payload": {"after": row, "op": "c"}, "schema": {}}

    first, second = {"region": "eu", "id": 1}, {"region": "us", "id": 1}
    rig.produce_keyed([(None, {"resolved": "1.0"})])
    rig.produce_keyed([(key, change({**key, "name": "a"})) for key in (first, second)])
    rig.produce_keyed([(first, change(None)), (["us", 1], change(None))])
    rig.run()
    assert rows(rig) == [(1, "us", "a")]
    (letter,) = rig.sql("SELECT offset, error FROM {dead}")
    assert letter[0] == 4
    assert "only table.keys can tell" in letter[1]


def test_a_table_of_others_tells_its_key_by_its_identifier_fields(make_rig: Callable[..., Any]) -> None:
    """CHG-03: without them it is refused, because the source may say something else at every start."""
    rig = make_rig(decode={**DEBEZIUM, "metadata": False}, table=UPSERT)
    rig.produce_keyed([({"id": 1}, event("c", 1, "eu", "a"))])
    IcebergCatalog(rig.spark, rig.spec.catalog)  # makes the folder
    rig.sql("CREATE NAMESPACE IF NOT EXISTS " + rig.table.rsplit(".", 1)[0])
    rig.sql("CREATE TABLE {t} (id BIGINT NOT NULL, region STRING NOT NULL, name STRING)")
    assert "shop.orders is there and has no identifier fields" in refusal(rig).message
    rig.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id, region")
    assert told(rig) == "the identifier fields of shop.orders"
    assert rows(rig) == [(1, "eu", "a")]


def test_a_topic_without_records_tells_no_key(make_rig: Callable[..., Any]) -> None:
    """CHG-03"""
    rig = make_rig(decode=DEBEZIUM, table=UPSERT)
    assert f"{rig.topic} has no records yet" in refusal(rig).message


@pytest.mark.parametrize(
    ("decode", "key", "reason"),
    [
        (COCKROACHDB, [1], "the key at {t}[0] offset 0 does not name its columns"),
        (DEBEZIUM, "k1", "the key at {t}[0] offset 0 does not name its columns"),
        (DEBEZIUM, None, "none of the first 1 offsets of {t} has a key"),
        (DEBEZIUM, {"id": 1, "tenant": 7}, "decode.schema has no column tenant"),
    ],
    ids=["a list", "a text", "no key", "not declared"],
)
def test_a_key_that_nobody_names_is_refused(
    make_rig: Callable[..., Any], decode: dict[str, Any], key: object, reason: str
) -> None:
    """CHG-03: the refusal says what was looked at, and no table is made."""
    rig = make_rig(decode=decode, table=UPSERT)
    rig.produce_keyed([(key, event("c", 1, "eu"))])
    assert reason.format(t=rig.topic) in refusal(rig).message
    with pytest.raises(AssertionError):
        rig.open_table()


def test_topics_that_do_not_agree_on_the_key_are_refused(
    make_rig: Callable[..., Any], make_topic: Callable[..., str]
) -> None:
    """CHG-03"""
    rig = make_rig(decode=DEBEZIUM, table=UPSERT)
    rig.produce_keyed([({"id": 1}, event("c", 1, "eu"))])
    first, rig.topic = rig.topic, make_topic(1)
    rig.produce_keyed([({"id": 1, "region": "eu"}, event("c", 1, "eu"))])
    rig.tree["source"]["topics"] = [first, rig.topic]
    message = refusal(rig).message
    assert "topics do not agree on the key" in message
    assert first in message
    assert rig.topic in message


def test_only_the_beginning_of_a_topic_is_looked_through(make_rig: Callable[..., Any]) -> None:
    """CHG-03: a key far behind it is not found."""
    rig = make_rig(decode=DEBEZIUM, table=UPSERT)
    rig.produce_keyed([(None, event("c", 1, "eu"))] * 1_000 + [({"id": 1}, event("c", 1, "eu"))])
    assert "none of the first 1,000 offsets" in refusal(rig).message


def test_files_have_no_message_keys(make_rig: Callable[..., Any]) -> None:
    """CHG-03"""
    rig = make_rig(decode=DEBEZIUM, table=UPSERT)
    folder = rig.folder / "events"
    folder.mkdir()
    (folder / "1.jsonl").write_text(json.dumps(event("c", 1, "eu")) + "\n")
    rig.tree["source"] = {"type": "files", "path": str(folder)}
    assert "none of the first 1 offsets of events has a key" in refusal(rig).message
