"""Files as a whole pipeline writes them: sorted, sized, in every format, by the table's own wishes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest

from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.schema import parse_schema
from frazil.table.iceberg import IcebergCatalog
from frazil.table.wish import TableWish

pytestmark = pytest.mark.real

COUNT = 24_000
"""few enough for one task"""


def local(path: str) -> Path:
    return Path(unquote(urlparse(path).path))


def test_sorted_files_obey_the_order_and_record_it(make_rig: Callable[..., Any]) -> None:
    """FILE-11: with nulls where the order wants them, next to partitions, and over a restart."""
    rig = make_rig(table={"partition": ["bucket(2, id)"], "sort": ["name desc nulls last", "id"]})
    rig.produce_orders(0, COUNT)
    rig.produce([{"id": COUNT + n} for n in range(10)])
    rig.run()
    rig.produce_orders(COUNT + 10, 1_000)
    rig.run()
    files = rig.sql("SELECT file_path, sort_order_id FROM {t}.files")
    assert {file.sort_order_id for file in files} == {1}
    for file in files:
        rows = pq.ParquetFile(local(file.file_path)).read(["name", "id"]).to_pylist()
        keys = [(row["name"] is None, [-ord(c) for c in (row["name"] or "").ljust(12)], row["id"]) for row in rows]
        assert keys == sorted(keys)
    assert rig.offsets() == rig.every(COUNT + 1_010)
    orders = rig.open_table().sort_order()
    assert [(str(f.direction), str(f.null_order)) for f in orders.fields] == [
        ("DESC", "NULLS LAST"),
        ("ASC", "NULLS FIRST"),
    ]


def test_a_declared_order_that_the_table_does_not_have_is_refused(make_rig: Callable[..., Any]) -> None:
    """FILE-11: before anything is written; without the key files follow the table."""
    rig = make_rig()
    rig.run()
    rig.tree["table"]["sort"] = ["id desc"]
    with pytest.raises(SchemaMismatch, match=r"sorted by \[identity\(id\) desc nulls last\], but is by \[\]"):
        rig.run()
    rig.sql("ALTER TABLE {t} WRITE ORDERED BY bucket(4, id), name")
    del rig.tree["table"]["sort"]
    rig.produce_orders(0, 2_000)
    rig.run()
    (file,) = rig.sql("SELECT file_path, sort_order_id FROM {t}.files")
    assert file.sort_order_id == rig.open_table().sort_order().order_id > 0


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_a_pipeline_writes_other_formats_that_spark_reads(make_rig: Callable[..., Any], file_format: str) -> None:
    """FILE-01: and compaction by Spark keeps the format, because the table says so."""
    rig = make_rig(table={"file_format": file_format, "partition": ["day(placed_at)"], "compression": "gzip"})
    rig.produce_orders(0, 3_000)
    rig.run()
    rig.produce([{"id": 3_000, "name": "last", "amount": "1.25", "placed_at": "2026-03-05T10:00:00Z"}])
    rig.run()
    assert rig.offsets() == rig.every(3_001)
    assert rig.sql("SELECT name, amount FROM {t} WHERE id = 3000 AND placed_at > '2026-03-05'")[0].name == "last"
    rig.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    formats = rig.sql("SELECT DISTINCT file_format AS f, right(file_path, 4) AS ending FROM {t}.files")
    assert {row.f.lower() for row in formats} == {file_format}
    assert rig.offsets() == rig.every(3_001)


def test_a_tables_own_properties_are_followed(
    make_rig: Callable[..., Any],
) -> None:
    """FILE-04: target size, codec, metrics, data path and object-store layout, as users set them."""
    rig = make_rig()
    rig.run()
    elsewhere = rig.folder / "elsewhere"
    rig.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ("
        f"'write.data.path' = 'file:{elsewhere}', 'write.object-storage.enabled' = 'true', "
        "'write.target-file-size-bytes' = '100000', 'write.parquet.compression-codec' = 'gzip', "
        "'write.metadata.metrics.column.name' = 'none')"
    )
    rig.produce_orders(0, COUNT)
    rig.run()
    files = rig.sql("SELECT file_path, file_size_in_bytes AS size, lower_bounds FROM {t}.files")
    sizes = sorted(file.size for file in files)
    assert len(sizes) > 1
    assert all(90_000 <= size <= 110_000 for size in sizes[1:]), sizes
    for file in files:
        inside = local(file.file_path).relative_to(elsewhere)
        assert all(set(folder) <= {"0", "1"} for folder in inside.parts[:4])
        assert pq.ParquetFile(local(file.file_path)).metadata.row_group(0).column(0).compression == "GZIP"
        assert 1 in file.lower_bounds
        assert 2 not in file.lower_bounds


def test_the_pipeline_file_goes_before_the_tables_properties(make_rig: Callable[..., Any]) -> None:
    """FILE-02, FILE-03"""
    rig = make_rig()
    rig.run()
    rig.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip', "
        "'write.parquet.bloom-filter-enabled.column.id' = 'true')"
    )
    assert land_and_look(rig, 0) == [("id", "GZIP", True), ("name", "GZIP", False)]
    rig.tree["table"] |= {"compression": "snappy", "bloom_filters": ["name"]}
    assert land_and_look(rig, 1) == [("id", "SNAPPY", False), ("name", "SNAPPY", True)]


def land_and_look(rig: Any, number: int) -> list[tuple[str, str, bool]]:
    """Codec and bloom filter of the first columns of what lands now."""
    rig.produce_orders(number, 1)
    rig.run()
    (latest,) = rig.sql("SELECT data_file.file_path FROM {t}.entries ORDER BY sequence_number DESC LIMIT 1")
    row_group = pq.ParquetFile(local(latest.file_path)).metadata.row_group(0)
    columns = [row_group.column(n) for n in range(2)]
    return [(each.path_in_schema, each.compression, bool(each.bloom_filter_length)) for each in columns]


def test_a_table_whose_locations_only_java_knows_is_refused(make_rig: Callable[..., Any]) -> None:
    rig = make_rig()
    rig.run()
    rig.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.location-provider.impl' = 'com.example.Mine')")
    rig.produce_orders(0, 10)
    with pytest.raises(ConfigError, match=r"write\.location-provider\.impl"):
        rig.run()
    rig.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('write.location-provider.impl')")
    rig.run()
    assert rig.offsets() == rig.every(10)


def test_types_that_need_it_make_a_table_of_format_three(make_rig: Callable[..., Any]) -> None:
    """DEC-04"""
    schema = parse_schema("id BIGINT, at TIMESTAMP_NS")
    rig = make_rig()
    catalog = IcebergCatalog(rig.spark, rig.spec.catalog)
    table = catalog.open(TableWish("shop.fine", schema))
    assert table.schema().find_type("at") == schema.find_type("at")
    with pytest.raises(ConfigError, match='"format-version" = "2"'):
        catalog.open(TableWish("shop.coarse", schema, properties={"format-version": "2"}))
    assert catalog.find("shop.coarse") is None
