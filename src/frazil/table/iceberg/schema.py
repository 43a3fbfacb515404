"""Whether rows as declared fit into a table as it is."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.schema import render_schema
from frazil.spark import jvm
from frazil.table.evolve import widens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType as SparkStruct

_RESERVED = {
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
}


def spark_to_iceberg(spark: SparkSession, schema: SparkStruct) -> Schema:
    """The Iceberg schema that Iceberg's own Spark writer would give these columns."""
    struct = jvm(spark).org.apache.spark.sql.types.DataType.fromJson(schema.json())
    iceberg = jvm(spark).org.apache.iceberg
    return Schema.model_validate_json(iceberg.SchemaParser.toJson(iceberg.spark.SparkSchemaUtil.convert(struct)))


def require_compatible(table: str, declared: Schema, actual: Schema) -> None:
    """Refuses a declared schema whose rows the table cannot take; nothing has been written by then."""
    problems = _problems("", declared.fields, actual.fields)
    if not problems:
        return
    raise SchemaMismatch(
        f"the declared schema does not fit the table {table}:\n"
        + "\n".join(f"  - {problem}" for problem in problems)
        + "\n"
        + _side_by_side(declared, actual),
        "change decode.schema (or transform.sql) to fit the table, or evolve the table first",
        expected=render_schema(declared),
        actual=render_schema(actual),
    )


def require_unreserved(table: str, declared: Schema) -> None:
    """Refuses names that Iceberg keeps for its own columns: Spark could not read such a table."""
    taken = sorted(_RESERVED & {field.name for field in declared.fields})
    if taken:
        raise ConfigError(
            f"{table}: Iceberg reserves the column name{'s' if len(taken) > 1 else ''} {', '.join(taken)}",
            "give the column another name in decode.schema or transform.sql",
        )


def require_same_partition(
    table: str, wished: PartitionSpec, wished_schema: Schema, actual: PartitionSpec, actual_schema: Schema
) -> None:
    """Refuses a declared partitioning that an existing table does not have."""
    _require_same(
        f"{table} is declared to be partitioned by",
        _fields(wished, wished_schema),
        _fields(actual, actual_schema),
        "declare what the table has, or leave table.partition out: files follow the table's own spec",
    )


def require_same_sort(
    table: str, wished: SortOrder, wished_schema: Schema, actual: SortOrder, actual_schema: Schema
) -> None:
    """Refuses a declared order that an existing table does not have."""
    _require_same(
        f"{table} is declared to be sorted by",
        _sort_fields(wished, wished_schema),
        _sort_fields(actual, actual_schema),
        "ALTER TABLE … WRITE ORDERED BY …, or leave table.sort out: files follow the table's own order",
    )


def _require_same(declared: str, expected: list[str], found: list[str], remedy: str) -> None:
    if expected != found:
        raise SchemaMismatch(
            f"{declared} [{', '.join(expected)}], but is by [{', '.join(found)}]",
            remedy,
            expected=", ".join(expected),
            actual=", ".join(found),
        )


def _fields(spec: PartitionSpec, schema: Schema) -> list[str]:
    return [_term(field, schema) for field in spec.fields]


def _sort_fields(order: SortOrder, schema: Schema) -> list[str]:
    return [f"{_term(field, schema)} {field.direction} {field.null_order}".lower() for field in order.fields]


def _term(field: PartitionField | SortField, schema: Schema) -> str:
    return f"{field.transform}({schema.find_column_name(field.source_id)})"


def _problems(path: str, declared: tuple[NestedField, ...], actual: tuple[NestedField, ...]) -> list[str]:
    problems = []
    columns = {field.name: field for field in actual}
    for field in declared:
        name = f"{path}{field.name}"
        column = columns.pop(field.name, None)
        if column is None:
            problems.append(f"column {name} is not in the table")
        elif column.required and not field.required:
            problems.append(_nullable(name))
        else:
            problems += _type_problems(name, field.field_type, column.field_type)
    problems += [
        f"column {path}{c.name} is required by the table, but not declared" for c in columns.values() if c.required
    ]
    return problems


def _type_problems(name: str, declared: IcebergType, actual: IcebergType) -> list[str]:
    match declared, actual:
        case StructType(), StructType():
            return _problems(f"{name}.", declared.fields, actual.fields)
        case ListType(), ListType():
            element = f"{name}.element"
            if actual.element_required and not declared.element_required:
                return [_nullable(element)]
            return _type_problems(element, declared.element_type, actual.element_type)
        case MapType(), MapType():
            keys = _type_problems(f"{name}.key", declared.key_type, actual.key_type)
            if actual.value_required and not declared.value_required:
                return [*keys, _nullable(f"{name}.value")]
            return keys + _type_problems(f"{name}.value", declared.value_type, actual.value_type)
        case _ if declared == actual or _fits(declared, actual):
            return []
        case _:
            return [f"column {name} is {declared} as declared, but {actual} in the table"]


def _nullable(name: str) -> str:
    return f"column {name} may be null as declared, but not in the table"


def _fits(declared: IcebergType, actual: IcebergType) -> bool:
    """Whether every declared value is a value of the table's type as well, or is refused by itself.

    Spark shows UUIDs as texts and bytes of a fixed length as bytes, so that both may come out of a query.
    """
    match declared, actual:
        case (StringType(), UUIDType()) | (BinaryType(), FixedType()):
            return True
        case _:
            return widens(declared, actual)


def _side_by_side(declared: Schema, actual: Schema) -> str:
    left, right = ["declared", *_columns(declared)], ["in the table", *_columns(actual)]
    width = max(len(line) for line in left)
    return "\n".join(f"  {a:<{width}}  |  {b}".rstrip() for a, b in zip_longest(left, right, fillvalue=""))


def _columns(schema: Schema) -> list[str]:
    return [render_schema(Schema(field)) for field in schema.fields]
