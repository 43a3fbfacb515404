"""Files lie where Iceberg's own writers would put them."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, IdentityTransform

from frazil.table.files import WriteTarget, WrittenFile
from frazil.table.iceberg.settings import data_location
from frazil.write import FileName

BY_DAY = (5, DayTransform(), "placed at/day")
BY_CUSTOMER = (2, IdentityTransform(), "customer")
CUSTOMERS = ["plain", "", "a/b c", "50 %", "k=v&w", "tschüß", "😀", "..", None]
HASHED = {"write.object-storage.enabled": "true"}
PROPERTIES = [
    {},
    {"write.object-storage.enabled": "false"},
    {"write.object-storage.enabled": "yes"},
    HASHED,
    {"write.object-storage.enabled": "TRUE"},
    HASHED | {"write.object-storage.partitioned-paths": "true"},
    HASHED | {"write.object-storage.partitioned-paths": "false"},
]


def written(shop, target: WriteTarget) -> list[WrittenFile]:
    count = len(CUSTOMERS)
    moments = shop.moments(*[dt.datetime(2026, 1, 1 + n % 2, tzinfo=dt.UTC) for n in range(count)])
    return shop.write(target, shop.orders(count, customer=pa.array(CUSTOMERS), placed_at=moments))


def java_location(spark, target: WriteTarget, file: WrittenFile, data_folder: str) -> str:
    """What Iceberg's Java library answers for the same table, partition and file name."""
    iceberg = spark._jvm.org.apache.iceberg
    schema = iceberg.SchemaParser.fromJson(target.schema_json)
    spec = iceberg.PartitionSpecParser.fromJson(schema, target.spec_json)
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    data_file = iceberg.ContentFileParser.fromJson(mapper.readTree(file.content_file_json()), spec)
    locations = iceberg.LocationProviders.locationsFor(data_folder.removesuffix("/data"), target.properties)
    name = re.sub("^[01]+-", "", file.path.rpartition("/")[2])  # the last bits of the hash may stand in front
    if spec.isUnpartitioned():
        return str(locations.newDataLocation(name))
    return str(locations.newDataLocation(spec, data_file.partition(), name))


@pytest.mark.real
@pytest.mark.parametrize("properties", PROPERTIES, ids=str)
@pytest.mark.parametrize("partition", [(), (BY_DAY, BY_CUSTOMER)], ids=["unpartitioned", "partitioned"])
def test_paths_are_those_of_icebergs_own_location_provider(shop, spark, partition, properties):
    """FILE-05"""
    target = shop.target(*partition, properties=properties)
    files = written(shop, target)
    assert len(files) == (len(CUSTOMERS) if partition else 1)
    folder = f"file:{shop.folder}"
    assert [file.path for file in files] == [java_location(spark, target, file, folder) for file in files]
    assert sum(file.record_count for file in files) == len(shop.ids(files)) == len(CUSTOMERS)


ELSEWHERE = [
    {"write.data.path": "{folder}/elsewhere"},
    {"write.data.path": "{folder}/elsewhere/"},
    {"write.data.path": "{folder}/new", "write.folder-storage.path": "{folder}/old"},
    HASHED | {"write.data.path": "{folder}/elsewhere"},
    HASHED | {"write.data.path": "{folder}/elsewhere", "write.object-storage.partitioned-paths": "false"},
    HASHED | {"write.data.path": "{folder}/shop/orders/inside"},
]


@pytest.mark.real
@pytest.mark.parametrize("wished", ELSEWHERE, ids=str)
def test_data_that_lies_elsewhere_lies_where_java_would_put_it(shop, spark, wished):
    """FILE-05"""
    properties = {key: value.format(folder=f"file:{shop.folder}") for key, value in wished.items()}
    table = f"file:{shop.folder}/shop/orders"
    plain = shop.target(BY_CUSTOMER, properties=properties)
    target = replace(plain, location=data_location(table, properties), table_location=table)
    files = written(shop, target)
    assert [file.path for file in files] == [java_location(spark, target, file, f"{table}/data") for file in files]


def test_hashed_paths_spread_the_files_over_folders(shop):
    files = written(shop, shop.target(BY_CUSTOMER, properties=HASHED))
    folders = {file.path.removeprefix(f"file:{shop.folder}/")[:4] for file in files}
    assert len(folders) > 3
    assert all(set(folder) <= {"0", "1"} for folder in folders)


@pytest.mark.parametrize("extension", ["parquet", "orc", "avro"])
def test_a_name_ends_with_its_format(extension):
    assert FileName("w", 1, 0, token="t").numbered(1, extension) == f"w-e1-t0-t-00001.{extension}"
