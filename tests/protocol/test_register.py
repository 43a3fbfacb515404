"""The register: what a table says of a writer, and who is fenced by it."""

from __future__ import annotations

import json
import re
import string
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import TableChanged
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import NAMESPACE, BatchId, Epoch, Generation, Register, batch_id, start_id

UINT64_MAX = 2**64 - 1
TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=40)
FRONTIERS = st.builds(
    Frontier,
    st.dictionaries(
        st.tuples(TOPICS, st.integers(0, 60)),
        st.builds(
            Position,
            st.integers(0, 2**63 - 1),
            st.none() | st.integers(0, 2**31 - 1),
            low=st.none() | st.integers(0, 2**63 - 1),
        ),
        max_size=12,
    ),
    st.dictionaries(TOPICS, st.uuids().map(str), max_size=4),
    st.none() | st.decimals(0, 2**63, places=10).map(str),
)
REGISTERS = st.builds(
    Register,
    generation=st.integers(1, 2**63).map(Generation),
    coordinator=st.text("0123456789abcdef", min_size=12, max_size=12),
    epoch=st.integers(0, UINT64_MAX).map(Epoch),
    batch_id=st.uuids().map(str).map(BatchId),
    frontier=FRONTIERS,
    table_uuid=st.uuids().map(str),
    snapshot_id=st.none() | st.integers(1, 2**63 - 1),
    sequence_number=st.integers(0, 2**63 - 1),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def register(generation: int = 2, coordinator: str = "us", epoch: int = 5, offset: int = 10) -> Register:
    return Register(
        Generation(generation),
        coordinator,
        Epoch(epoch),
        BatchId("batch"),
        Frontier({("t", 0): Position(offset)}),
        table_uuid="table",
        snapshot_id=7,
        sequence_number=3,
    )


@given(REGISTERS)
def test_a_register_survives_its_text_in_every_field(known: Register) -> None:
    """EPOCH-01, FAULT-22: an epoch of 64 bits and everything else a restart needs comes back from the table."""
    found = Register.decode(known.encode())
    assert found == known
    assert (found.table_uuid, found.snapshot_id, found.sequence_number) == (
        known.table_uuid,
        known.snapshot_id,
        known.sequence_number,
    )


def test_where_a_register_landed_makes_no_difference_to_what_it_says() -> None:
    """The predecessor is known ahead, the snapshot that will carry it is not."""
    assert register().at(99, 42) == register()
    assert (register().at(99, 42).snapshot_id, register().at(99, 42).sequence_number) == (99, 42)


@pytest.mark.parametrize(
    "other",
    [
        register(generation=3),
        register(coordinator="them"),
        register(epoch=6),
        register(offset=11),
        replace(register(), batch_id=BatchId("other")),
        replace(register(), frontier=Frontier({("t", 0): Position(10, leader_epoch=1)})),
        replace(register(), frontier=Frontier({("t", 0): Position(10)}, {"t": "id"})),
    ],
)
def test_registers_differ_when_anything_they_say_differs(other: Register) -> None:
    """COMMIT-13: compare-and-set is by value."""
    assert register() != other


@pytest.mark.parametrize(
    ("found", "fences"),
    [
        (register(generation=3, coordinator="them"), True),
        (register(generation=3, coordinator="us"), True),
        (register(generation=2, coordinator="them"), True),
        (register(generation=2, coordinator="us"), False),
        (register(generation=1, coordinator="them"), False),
        (register(generation=1, coordinator="us"), False),
    ],
)
def test_a_newer_generation_fences_and_so_does_ours_with_another_coordinator(found: Register, fences: bool) -> None:
    """COMMIT-12, FAULT-05."""
    assert found.overrides(register(generation=2, coordinator="us")) is fences


@pytest.mark.parametrize(
    ("later", "succeeds"),
    [
        (register(epoch=6, offset=20), True),
        (register(epoch=9, offset=10), True),
        (register(epoch=5, offset=10), False),
        (register(epoch=4, offset=20), False),
        (register(epoch=6, offset=9), False),
        (register(coordinator="them", epoch=6, offset=20), False),
        (register(generation=3, epoch=6, offset=20), False),
    ],
)
def test_only_a_later_epoch_of_the_same_coordinator_succeeds_a_register(later: Register, succeeds: bool) -> None:
    assert later.succeeds(register(epoch=5, offset=10)) is succeeds


def test_a_register_of_a_thousand_partitions_stays_small() -> None:
    """Some catalogs copy table properties into small columns."""
    positions = {("orders", p): Position(10**9 + p, 12) for p in range(1000)}
    assert len(replace(register(), frontier=Frontier(positions)).encode()) < 16_000


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "42", '"text"', "{}", '{"v":1}', "not json"])
def test_a_register_that_was_edited_by_hand_stops_with_its_text_and_a_remedy(text: str) -> None:
    with pytest.raises(TableChanged, match="cannot be read") as stop:
        Register.decode(text)
    assert repr(text) in stop.value.message
    assert "restore it" in stop.value.remedy


@given(st.sampled_from("vgcebtsnf"), JSON)
def test_a_field_of_the_wrong_kind_never_ends_in_anything_but_a_clear_stop(key: str, value: object) -> None:
    fields = json.loads(register().encode())
    fields[key] = value
    try:
        found = Register.decode(json.dumps(fields))
    except TableChanged:
        return
    assert found.overrides(register()) in (True, False)
    assert Register.decode(found.encode()) == found


def test_a_register_of_a_later_format_asks_for_an_upgrade() -> None:
    text = register().encode().replace('"v":1', '"v":2')
    with pytest.raises(TableChanged, match="format 2") as stop:
        Register.decode(text)
    assert "upgrade" in stop.value.remedy


SPAN = Span({("orders", 0): Range(0, 10), ("orders", 1): Range(5, 7)})


def test_a_batch_id_is_a_uuid5_of_pipeline_table_and_span() -> None:
    """COMMIT-03: the namespace is fixed, so that anybody can compute it."""
    text = 'orders:shop.orders:{"orders":"0:0-10 1:5-7"}'
    assert batch_id("orders", "shop.orders", SPAN) == str(uuid.uuid5(NAMESPACE, text))
    assert str(NAMESPACE) == "6f1c8e0a-5d0b-5a55-9a37-0e2f7a4b9c11"


def test_another_pipeline_table_or_span_has_another_batch_id() -> None:
    """COMMIT-03."""
    ids = {
        batch_id("orders", "shop.orders", SPAN),
        batch_id("other", "shop.orders", SPAN),
        batch_id("orders", "shop.other", SPAN),
        batch_id("orders", "shop.orders", Span({("orders", 0): Range(0, 10)})),
        batch_id("orders", "shop.orders", Span({("orders", 0): Range(0, 11), ("orders", 1): Range(5, 7)})),
    }
    assert len(ids) == 5
    assert all(re.fullmatch(r"[0-9a-f-]{36}", each) for each in ids)


def test_every_start_has_a_name_of_its_own() -> None:
    starts = {start_id("p", "t", Generation(g), c) for g in (1, 2) for c in ("us", "them")}
    assert len(starts) == 4


def test_a_resolved_time_is_the_name_of_its_epoch() -> None:
    """COMMIT-03: in place of the span, which says less of it."""
    text = "orders:shop.orders:15.0000000000"
    assert batch_id("orders", "shop.orders", SPAN, "15.0000000000") == str(uuid.uuid5(NAMESPACE, text))


def test_a_register_without_a_resolved_time_is_written_as_ever() -> None:
    """Pipelines of other sources, and those of before, know nothing of it."""
    assert "r" not in json.loads(register().encode())
    resolved = replace(register(), frontier=Frontier({("t", 0): Position(501, 0, low=480)}, {}, "15.0"))
    fields = json.loads(resolved.encode())
    assert (fields["v"], fields["r"], fields["f"]) == (1, "15.0", {"t": ["", "501@0<480"]})
