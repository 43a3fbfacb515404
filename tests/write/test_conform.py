"""Values that Spark hands over in another type than the table's: UUIDs as texts, fixed bytes as binary."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from frazil.errors import SchemaMismatch
from frazil.write.conform import Conformer

TEXT = "123e4567-e89b-12d3-a456-426614174000"


def conformed(values: pa.Array, held: pa.DataType) -> pa.Array:
    conformer = Conformer("shop.orders", ["a"], pa.schema([pa.field("a", held)]))
    return conformer.conform(pa.record_batch({"a": values})).column(0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_the_text_of_a_uuid_becomes_the_uuid(kind: pa.DataType) -> None:
    """DEC-04"""
    assert conformed(pa.array([TEXT, None, TEXT.upper()], kind), pa.uuid()).to_pylist() == [
        UUID(TEXT),
        None,
        UUID(TEXT),
    ]


def test_sixteen_bytes_are_a_uuid_too() -> None:
    assert conformed(pa.array([UUID(TEXT).bytes], pa.binary()), pa.uuid()).to_pylist() == [UUID(TEXT)]


def test_the_texts_of_uuids_are_found_within_structs_lists_and_maps() -> None:
    arriving = pa.array(
        [{"l": [TEXT, None], "m": [(TEXT, 1)], "x": 5}, None, {"l": None, "m": None, "x": None}],
        pa.struct([("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int32())), ("x", pa.int32())]),
    )
    held = pa.struct([("l", pa.large_list(pa.uuid())), ("m", pa.map_(pa.uuid(), pa.int64())), ("x", pa.int64())])
    assert conformed(arriving, held).to_pylist() == [
        {"l": [UUID(TEXT), None], "m": [(UUID(TEXT), 1)], "x": 5},
        None,
        {"l": None, "m": None, "x": None},
    ]


@pytest.mark.parametrize("text", ["", "x", TEXT.replace("-", ""), f"{{{TEXT}}}", TEXT + "0"])
def test_another_text_is_refused_by_the_column_name(text: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"column a of shop.orders does not fit .*not a UUID"):
        conformed(pa.array([text]), pa.uuid())


def test_fixed_bytes_must_have_the_length_of_the_column() -> None:
    assert conformed(pa.array([b"ab", None], pa.binary()), pa.binary(2)).to_pylist() == [b"ab", None]
    with pytest.raises(SchemaMismatch, match=r"column a of shop\.orders does not fit"):
        conformed(pa.array([b"abc"], pa.binary()), pa.binary(2))


def test_a_text_is_nothing_but_a_uuid() -> None:
    with pytest.raises(SchemaMismatch, match="another type"):
        conformed(pa.array([TEXT]), pa.binary(16))
