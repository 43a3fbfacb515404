"""Iceberg's own Java code understands a written file, and Spark reads it once it is committed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform

from frazil.table.files import WriteTarget

pytestmark = pytest.mark.real

BY_DAY_AND_CUSTOMER = ((5, DayTransform(), "placed_at_day"), (2, BucketTransform(4), "customer_bucket"))


def java_data_file(spark, target, file):
    """Schema, spec and `DataFile` as Iceberg's Java API has them."""
    iceberg = spark._jvm.org.apache.iceberg
    schema = iceberg.SchemaParser.fromJson(target.schema_json)
    spec = iceberg.PartitionSpecParser.fromJson(schema, target.spec_json)
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    return schema, spec, iceberg.ContentFileParser.fromJson(mapper.readTree(file.content_file_json()), spec)


def java_table(spark, target, place):
    iceberg = spark._jvm.org.apache.iceberg
    schema = iceberg.SchemaParser.fromJson(target.schema_json)
    spec = iceberg.PartitionSpecParser.fromJson(schema, target.spec_json)
    return iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).create(schema, spec, place)


def target_of(spark, table):
    """A new table numbers its fields and its spec itself, so a worker's target is read from the table."""
    iceberg = spark._jvm.org.apache.iceberg
    schema_json = iceberg.SchemaParser.toJson(table.schema())
    spec_json = iceberg.PartitionSpecParser.toJson(table.spec())
    return WriteTarget("shop.orders", f"{table.location()}/data", schema_json, spec_json)


def java_bound(spark, schema, bounds, field_id):
    kind = schema.findType(field_id)
    return spark._jvm.org.apache.iceberg.types.Conversions.fromByteBuffer(kind, bounds.get(field_id))


def orders(shop):
    return shop.orders(
        3,
        customer=pa.array(["abc", "abd", None]),
        amount=pa.array([Decimal("1.20"), Decimal("-3.00"), None], pa.decimal128(10, 2)),
        weight=pa.array([1.5, float("nan"), None]),
        placed_at=shop.moments(*[dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in (1, 2, 3)]),
    )


def test_java_reads_the_metrics_as_they_were_measured(shop, spark):
    """FILE-12, FILE-13"""
    target = shop.target()
    (file,) = shop.write(target, orders(shop))
    schema, _, java = java_data_file(spark, target, file)
    assert (java.recordCount(), java.fileSizeInBytes()) == (3, file.file_size_bytes)
    assert (java.location(), java.format().toString()) == (file.path, "PARQUET")
    assert dict(java.columnSizes()) == file.column_sizes
    assert dict(java.nullValueCounts()) == file.null_value_counts
    assert dict(java.nanValueCounts()) == file.nan_value_counts
    assert list(java.splitOffsets()) == list(file.split_offsets)
    assert java_bound(spark, schema, java.lowerBounds(), 2).toString() == "abc"
    assert java_bound(spark, schema, java.lowerBounds(), 3) == Decimal("-3.00")
    assert java_bound(spark, schema, java.upperBounds(), 4) == 1.5
    assert java_bound(spark, schema, java.upperBounds(), 1) == 2


def test_java_puts_a_file_into_the_partition_and_folder_it_was_written_for(shop, spark):
    """FILE-08, FILE-12"""
    target = shop.target(*BY_DAY_AND_CUSTOMER)
    files = shop.write(target, orders(shop))
    for file in files:
        _, spec, java = java_data_file(spark, target, file)
        assert f"/{spec.partitionToPath(java.partition())}/" in file.path
    assert sum(file.record_count for file in files) == 3


def test_spark_reads_the_rows_of_committed_files_and_prunes_by_their_bounds(shop, spark):
    """FILE-12"""
    place = str(shop.folder.parent / "table")
    table = java_table(spark, shop.target(*BY_DAY_AND_CUSTOMER), place)
    target = target_of(spark, table)
    append = table.newAppend()
    for file in shop.write(target, orders(shop)):
        append.appendFile(java_data_file(spark, target, file)[2])
    append.commit()
    rows = spark.read.format("iceberg").load(place)
    assert sorted(row.order_id for row in rows.collect()) == [0, 1, 2]
    assert [row.order_id for row in rows.where("customer = 'abd'").collect()] == [1]
    assert rows.where("customer = 'zzz'").count() == 0
