"""Iceberg's Java readers and Spark find in each format what was written, by ids, by names and by bounds."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter
from frazil.write.avro.schema import avro_schema
from frazil.write.formats import file_format

pytestmark = pytest.mark.real

CATALOG = "formats"
HIGH, NULLS, LOW = 2**63 - 1, 0, -(2**63)

FILTERS = {
    "number = 2147483647": [HIGH],
    "number < 0": [LOW],
    "number IS NULL": [NULLS],
    "number IS NOT NULL": [LOW, HIGH],
    "single = 0.0": [LOW],
    "double < -1e308": [LOW],
    "small > 9999999": [HIGH],
    "wide = -1": [LOW],
    "day < date'1900-01-01'": [LOW],
    "moment >= timestamp'9999-12-31 23:59:59.999999'": [HIGH],
    "local < timestamp_ntz'1900-01-01 00:00:00'": [LOW],
    "text = 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz'": [HIGH],
    "text > 'zzzzzzzzzzzzzzzzzzzz~'": [LOW],
    "text LIKE 'ä%'": [LOW],
    "bytes = X'00FF'": [HIGH],
    "uuid = 'ffffffff-ffff-ffff-ffff-ffffffffffff'": [HIGH],
    "`we ird-1` = 'w'": [HIGH],
    "address.x = 1": [HIGH],
    "address.x IS NULL": [LOW, NULLS],
    "address.`y y` IS NULL": [LOW, NULLS],
    "address.`y y`.z = 'q'": [HIGH],
    "list IS NULL": [NULLS],
}


@dataclass
class Landed:
    """A table whose only file holds the rows of the zoo."""

    spark: Any
    name: str
    table: Any
    target: WriteTarget
    file: WrittenFile

    @property
    def iceberg(self) -> Any:
        return self.spark._jvm.org.apache.iceberg

    def planned(self, expression: Any) -> int:
        """How many files a scan with this filter reads."""
        tasks = self.table.newScan().filter(expression).planFiles()
        return len(list(java_list(tasks)))


def java_list(iterable: Any) -> Any:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def land(spark: Any, zoo: Any, folder: Path, name: str, form: str, *, rare: bool = False) -> Landed:
    """Creates the table, writes the rows with frazil and appends the file with Iceberg's Java API."""
    iceberg = spark._jvm.org.apache.iceberg
    schema = iceberg.SchemaParser.fromJson(zoo.schema(rare=rare).model_dump_json())
    table = create(spark, folder, name, schema, form, version=3 if rare else 2)
    target = WriteTarget(
        f"db.{name}",
        f"{table.location()}/data",
        iceberg.SchemaParser.toJson(table.schema()),
        iceberg.PartitionSpecParser.toJson(table.spec()),
        file_format=form,
        bloom_filters={"text": 0.01} if form != "avro" else {},
    )
    spelled = file_format(target, Schema.model_validate_json(target.schema_json)).arrow_schema
    writer = TableWriter(target, FileName("zoo", epoch=1, task=0))
    (file,) = writer.write(zoo.rows(spelled)) + writer.close()
    append(spark, table, file)
    return Landed(spark, f"{CATALOG}.db.{name}", table, target, file)


def create(spark: Any, folder: Path, name: str, schema: Any, form: str, version: int = 2) -> Any:
    """A table in a catalog that Spark SQL knows; SQL itself has no words for UUIDs and fixed bytes."""
    conf = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(folder)}
    for key, value in conf.items():
        spark.conf.set(f"spark.sql.catalog.{CATALOG}{key}", value)
    iceberg = spark._jvm.org.apache.iceberg
    catalog = iceberg.hadoop.HadoopCatalog(spark._jsc.hadoopConfiguration(), str(folder))
    properties = {"format-version": str(version), "write.format.default": form}
    identifier = iceberg.catalog.TableIdentifier.parse(f"db.{name}")
    return catalog.createTable(identifier, schema, iceberg.PartitionSpec.unpartitioned(), properties)


def append(spark: Any, table: Any, file: WrittenFile) -> None:
    iceberg = spark._jvm.org.apache.iceberg
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    content = iceberg.ContentFileParser.fromJson(mapper.readTree(file.content_file_json()), table.spec())
    table.newAppend().appendFile(content).commit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="module")
def lands(spark, zoo, folder):
    """`lands("orc")` is the table of that format, made when it is first asked for."""

    @cache
    def landed(form: str, *, rare: bool = False) -> Landed:
        return land(spark, zoo, folder, f"{form}_rare" if rare else form, form, rare=rare)

    return landed


in_each_format = pytest.mark.parametrize("form", ["parquet", "orc", "avro"])


@in_each_format
def test_spark_reads_every_type_as_it_was_written(lands, form, zoo):
    """FILE-01, DEC-02"""
    landed = lands(form)
    stored = {
        "day": "unix_date(day)",
        "moment": "unix_micros(moment)",
        "local": "unix_micros(CAST(local AS TIMESTAMP))",
    }
    columns = ", ".join(
        f"{stored.get(field.name, f'`{field.name}`')} AS `{field.name}`" for field, _ in zoo.columns
    )
    rows = {row["id"]: row for row in landed.spark.sql(f"SELECT {columns} FROM {landed.name}").collect()}
    for number, row_id in enumerate((HIGH, NULLS, LOW)):
        for field, values in zoo.columns:
            assert repr(plain(rows[row_id][field.name], field.name)) == repr(values[number]), field.name


def plain(value, name):
    """Spark has dicts for maps, rows for structs, and text for UUIDs."""
    if value is None:
        return None
    if name == "uuid":
        return uuid.UUID(value).bytes
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, tuple):
        return tuple(plain(each, "") for each in value)
    if isinstance(value, list):
        return [plain(each, "") for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


@in_each_format
def test_filters_find_their_rows_and_no_others(lands, form):
    """FILE-12"""
    landed = lands(form)
    asked = [
        f"SELECT {number} AS question, id FROM {landed.name} WHERE {condition}"
        for number, condition in enumerate(FILTERS)
    ]
    answers: dict[str, list[int]] = {condition: [] for condition in FILTERS}
    for row in landed.spark.sql(" UNION ALL ".join(asked)).collect():
        answers[list(FILTERS)[row.question]].append(row.id)
    assert {condition: sorted(ids) for condition, ids in answers.items()} == FILTERS


@in_each_format
def test_bounds_spare_a_scan_the_file(lands, form):
    """FILE-12"""
    landed = lands(form)
    expressions = landed.iceberg.expressions.Expressions
    assert landed.planned(expressions.equal("text", "z" * 17)) == 1
    assert landed.planned(expressions.equal("text", "z" * 15)) == 0
    assert landed.planned(expressions.greaterThan("text", "b")) == 1
    assert landed.planned(expressions.lessThan("local", "0001-01-01T00:00:00")) == 0
    assert landed.planned(expressions.greaterThan("single", 1.5)) == 0
    assert landed.planned(expressions.isNull("id")) == 0
    assert landed.planned(expressions.isNull("number")) == 1


@in_each_format
def test_a_renamed_column_is_found_by_its_id(lands, form):
    """DEC-05"""
    landed = lands(form)
    sql = landed.spark.sql
    renames = [("again", "once_more"), ("address.x", "house")]
    for old, new in renames:
        sql(f"ALTER TABLE {landed.name} RENAME COLUMN {old} TO {new}")
    try:
        rows = sql(f"SELECT once_more, address.house FROM {landed.name} WHERE id = {HIGH}").collect()
        assert [(str(row[0]), row[1]) for row in rows] == [("0.01", 1)]
    finally:
        sql(f"ALTER TABLE {landed.name} RENAME COLUMN once_more TO again")
        sql(f"ALTER TABLE {landed.name} RENAME COLUMN address.house TO x")


@in_each_format
def test_javas_own_reader_reads_times_and_nanoseconds(lands, form, zoo):
    """FILE-01"""
    rare = lands(form, rare=True)
    records = list(java_list(rare.iceberg.data.IcebergGenerics.read(rare.table).build()))
    names = [field.name for field, _ in zoo.rare]
    texts = {record.getField("id"): [str(text(record.getField(name))) for name in names] for record in records}
    first, second = uuid.UUID(bytes=b"\x01" * 16), uuid.UUID(bytes=b"\x02" * 16)
    assert texts == {
        HIGH: [
            "23:59:59.999999",
            "2262-04-11T23:47:16.854775807",
            "1970-01-01T00:00:00.000000001Z",
            "[12:00, null]",
            f"{{{first}={second}}}",
        ],
        NULLS: ["None"] * 5,
        LOW: ["00:00", "1969-12-31T23:59:59", "1970-01-01T00:00Z", "[]", "{}"],
    }


def text(value):
    return value.toString() if hasattr(value, "toString") else value


@in_each_format
def test_spark_says_which_types_it_does_not_know(lands, form):
    """FILE-01: time first, nanoseconds once the time is gone"""
    rare = lands(form, rare=True)
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="Spark does not support time fields"):
        rare.spark.table(rare.name)


@in_each_format
def test_a_type_is_spelled_as_javas_writer_spells_it(lands, form):
    """FILE-01, DEC-05: the same names, ids, annotations and attributes"""
    rare = lands(form, rare=True)
    {"parquet": same_parquet, "orc": same_orc, "avro": same_avro}[form](rare)


def same_parquet(rare):
    """But for fields inside of columns, which keep their own names."""
    java = rare.iceberg.parquet.ParquetSchemaUtil.convert(rare.table.schema(), "schema").toString()
    ours = parquet_reader(rare).getFileMetaData().getSchema().toString()
    assert ours == java.replace("y_x20y", "y y")


def parquet_reader(landed):
    parquet = landed.iceberg.shaded.org.apache.parquet.hadoop
    path = landed.spark._jvm.org.apache.hadoop.fs.Path(landed.file.path)
    conf = landed.spark._jsc.hadoopConfiguration()
    return parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(path, conf))


def same_orc(rare):
    java = rare.iceberg.orc.ORCSchemaUtil.convert(rare.table.schema())
    assert described(orc_reader(rare).getSchema()) == described(java)


def orc_reader(landed):
    jvm = landed.spark._jvm
    options = jvm.org.apache.orc.OrcFile.readerOptions(landed.spark._jsc.hadoopConfiguration())
    return jvm.org.apache.orc.OrcFile.createReader(jvm.org.apache.hadoop.fs.Path(landed.file.path), options)


def described(kind):
    attributes = {name: kind.getAttributeValue(name) for name in kind.getAttributeNames()}
    return kind.toString(), attributes, [described(child) for child in kind.getChildren() or []]


def same_avro(rare):
    java = rare.iceberg.avro.AvroSchemaUtil.convert(rare.table.schema(), "table")
    assert avro_schema(Schema.model_validate_json(rare.target.schema_json)) == json.loads(java.toString())


def test_metrics_of_an_orc_file_are_those_that_javas_writer_gives_it(lands, folder):
    """FILE-12: Spark writes the same rows once more, and the metrics of its file are held against ours"""
    landed = lands("orc")
    create(landed.spark, folder, "twin", landed.table.schema(), "orc")
    landed.spark.sql(f"INSERT INTO {CATALOG}.db.twin SELECT /*+ COALESCE(1) */ * FROM {landed.name}")
    facts = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    ours, javas = (
        landed.spark.table(f"{name}.files").select(*facts).first().asDict()
        for name in (landed.name, f"{CATALOG}.db.twin")
    )
    # Java counts a required field only where the optional struct around it is there, and so denies its nulls.
    required = landed.table.schema().findField("address.y y.z").fieldId()
    assert (ours["null_value_counts"].pop(required), javas["null_value_counts"].pop(required)) == (2, 0)
    assert (ours["value_counts"].pop(required), javas["value_counts"].pop(required)) == (3, 1)
    assert ours == javas


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_pyiceberg_reads_what_it_can_of_each_format(lands, form, zoo):
    """FILE-01: no Avro data files, and of ORC neither UUIDs, fixed bytes nor moments beyond 2262"""
    landed = lands(form)
    names = [
        "id",
        "number",
        "double",
        "wide",
        "text",
        "bytes",
        "we ird-1",
        "straße",
        "list",
        "by_number",
        "address",
    ]
    table = StaticTable.from_metadata(landed.table.operations().current().metadataFileLocation())
    read = table.scan(selected_fields=tuple(names)).to_arrow()
    for field, values in zoo.columns:
        if field.name in names:
            assert [tuple_of(value) for value in read[field.name].to_pylist()] == values, field.name


def tuple_of(value):
    return tuple(tuple_of(each) for each in value.values()) if isinstance(value, dict) else value


@in_each_format
def test_spark_reads_a_file_in_several_splits(spark, shop, folder, form):
    """FILE-01: row groups, stripes and blocks each belong to exactly one split"""
    schema = spark._jvm.org.apache.iceberg.SchemaParser.fromJson(shop.schema.model_dump_json())
    table = create(spark, folder, f"{form}_splits", schema, form)
    table.updateProperties().set("read.split.target-size", "200000").set("read.split.open-file-cost", "1").commit()
    rows = 40_000
    customers = pa.array([None if n % 11 == 0 else f"customer {n} {n * n % 9973}" for n in range(rows)])
    tags = pa.array([None if n % 7 == 0 else [str(n)] * (n % 3) for n in range(rows)])
    numbered = spark._jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
    target = shop.target(file_format=form, row_group_rows=8000, schema_json=numbered)
    (file,) = shop.write(target, shop.orders(rows, customer=customers, tags=tags))
    append(spark, table, file)
    read = spark.table(f"{CATALOG}.db.{form}_splits")
    assert read.rdd.getNumPartitions() > 1
    found = read.select("order_id", "customer", "tags").toArrow().sort_by("order_id")
    assert found["order_id"].to_pylist() == list(range(rows))
    assert found["customer"].to_pylist() == customers.to_pylist()
    assert found["tags"].to_pylist() == tags.to_pylist()


def test_spark_reads_every_codec_of_every_format(spark, shop, folder):
    """FILE-03: LZ4 in Parquet is LZ4_RAW; all files lie in one table, which Iceberg allows"""
    schema = spark._jvm.org.apache.iceberg.SchemaParser.fromJson(shop.schema.model_dump_json())
    table = create(spark, folder, "codecs", schema, "parquet")
    codecs = {
        "parquet": ["zstd", "snappy", "lz4", "gzip", "none"],
        "orc": ["zstd", "snappy", "lz4", "gzip", "none"],
        "avro": ["zstd", "snappy", "gzip", "none"],
    }
    rows = 3000
    for form, names in codecs.items():
        for codec in names:
            batch = shop.orders(rows, customer=pa.array([f"{form} {codec}"] * rows))
            (file,) = shop.write(shop.target(file_format=form, compression=codec), batch)
            append(spark, table, file)
    found = spark.sql(
        f"SELECT customer, count(*), sum(order_id) FROM {CATALOG}.db.codecs GROUP BY customer"
    ).collect()
    expected = {f"{form} {codec}" for form, names in codecs.items() for codec in names}
    assert {tuple(row) for row in found} == {(name, rows, sum(range(rows))) for name in expected}


SPREAD = 7919
ROWS = 20_000


def customer(number):
    """Wide enough for a row group to fill a stripe."""
    return f"{number:06d}" * 8


def with_bloom_filter(spark, shop, form):
    """Four row groups whose customers all lie between the same bounds."""
    customers = pa.array([customer(n * SPREAD % ROWS * 2) for n in range(ROWS)])
    target = shop.target(file_format=form, row_group_rows=5000, bloom_filters={"customer": 0.01, "order_id": 0.01})
    (file,) = shop.write(target, shop.orders(ROWS, customer=customers))
    schema = spark._jvm.org.apache.iceberg.SchemaParser.fromJson(target.schema_json)
    return Landed(spark, "", schema, target, file), customers.to_pylist()


def test_icebergs_parquet_reader_skips_row_groups_by_their_bloom_filter(spark, shop):
    """FILE-02: it holds every value of its row group, and denies nearly all others"""
    written, customers = with_bloom_filter(spark, shop, "parquet")
    iceberg = written.iceberg
    reader = parquet_reader(written)
    schema = reader.getFileMetaData().getSchema()

    def is_read(block, column, value):
        condition = iceberg.expressions.Expressions.equal(column, value)
        chosen = iceberg.parquet.ParquetBloomRowGroupFilter(written.table, condition)
        return chosen.shouldRead(schema, block, reader.getBloomFilterDataReader(block))

    blocks = list(reader.getRowGroups())
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        present = customers[number * 5000 : (number + 1) * 5000 : 100]
        assert all(is_read(block, "customer", value) for value in present)
        assert sum(is_read(block, "customer", customer(value * 2 + 1)) for value in range(100)) <= 10
        assert is_read(block, "order_id", number * 5000 + 7)
        assert not is_read(block, "order_id", 10**9)
        assert reader.readColumnIndex(block.getColumns().get(0)) is not None
        assert reader.readOffsetIndex(block.getColumns().get(0)).getPageCount() >= 1


def test_javas_orc_reader_finds_the_stripes_and_skips_by_their_bloom_filter(spark, shop):
    """FILE-02, FILE-12"""
    written, customers = with_bloom_filter(spark, shop, "orc")
    reader = orc_reader(written)
    assert [stripe.getOffset() for stripe in reader.getStripes()] == list(written.file.split_offsets)
    assert len(written.file.split_offsets) == 4
    assert rows_read(spark, reader, customers[12_345]) == 5000
    assert [rows_read(spark, reader, customer(value * 2 + 1)) for value in range(20)].count(0) >= 16


def rows_read(spark, reader, name):
    """How many rows ORC's reader cannot rule out for one customer; it decides by groups of 10,000 or a stripe."""
    sarg = spark._jvm.org.apache.hadoop.hive.ql.io.sarg
    kind = getattr(sarg, "PredicateLeaf$Type").valueOf("STRING")
    condition = sarg.SearchArgumentFactory.newBuilder().equals("customer", kind, name).build()
    columns = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 1)
    columns[0] = "customer"
    rows = reader.rows(reader.options().searchArgument(condition, columns))
    batch = reader.getSchema().createRowBatch()
    count = 0
    while rows.nextBatch(batch):
        count += batch.count()
    return count
