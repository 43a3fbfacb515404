"""Delta tables, by the folders they lie in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deltalake import CommitProperties, DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError
from obstore.exceptions import BaseError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from frazil.errors import CatalogUnavailable, ConfigError
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.terms import quoted
from frazil.spark import first_line
from frazil.table.delta.contents import DeltaContents
from frazil.table.delta.features import require_keeping
from frazil.table.delta.merge import Merger
from frazil.table.delta.place import Place, in_one_line
from frazil.table.delta.probe import require_one_winner
from frazil.table.delta.reach import require_spark_writes
from frazil.table.delta.schema import write_schema
from frazil.table.delta.settings import new_table_configuration
from frazil.table.delta.table import DeltaLakeTable
from frazil.table.iceberg.schema import require_compatible, require_same_partition
from frazil.table.refusal import CommitRefused
from frazil.table.wish import TableWish


class DeltaLake:
    """Finds Delta tables, and creates the ones that are truly missing.

    A table without a path among `paths` is one of Spark's own catalog, which knows where it lies, or else where the
    tables of its database lie. Without Spark there are none of these, and no changes can be landed.

    `storage` tells how to reach the store they lie in, `unsafe` takes one where drivers could overwrite each other.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        spark: SparkSession | None = None,
        *,
        storage: Mapping[str, str] | None = None,
        unsafe: bool = False,
    ) -> None:
        self._given = frozenset(paths)
        self._storage = dict(storage or {})
        self._unsafe = unsafe
        self._places = {name: Place.at(path, self._storage) for name, path in paths.items()}
        self._spark = spark
        self._merger = None if spark is None else Merger(spark)
        places = ", ".join(place.described for place in self._places.values())
        self.address = f"delta at {places}" if paths else "delta, in Spark's own catalog"

    def find(self, name: str) -> DeltaLakeTable | None:
        try:
            self._place(name).load()
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise CatalogUnavailable(
                f"{name} could not be loaded from {self._place(name).described}: {in_one_line(error)}",
                "check that you may read the folder and its _delta_log",
            ) from error
        return self._table(name)

    def open(self, wish: TableWish) -> DeltaLakeTable:
        require_one_winner(wish.name, self._place(wish.name), unsafe=self._unsafe)
        if wish.keys and self._spark is not None:
            require_spark_writes(wish.name, self._place(wish.name), self._spark, unsafe=self._unsafe)
        if not self.fits(wish):
            self._create(wish)
            if not self.fits(wish):
                raise CatalogUnavailable(f"{wish.name} was created but cannot be found")
        self._enter(wish.name)
        table = self._table(wish.name)
        if wish.evolves:
            self._evolve(table, wish)
        return table

    def fits(self, wish: TableWish) -> bool:
        require_keeping(wish.name, wish.properties)
        write_schema(wish.name, wish.schema, wish.partition)
        table = self.find(wish.name)
        if table is None:
            return False
        table.require_writable(table.loaded(), only_appends=not wish.keys)
        columns = table.columns()
        evolved = wish.evolution(columns.schema).of(columns.schema)
        require_compatible(wish.name, wish.schema, evolved)
        if wish.partition:
            spec = parse_partition(wish.partition, wish.schema)
            require_same_partition(wish.name, spec, wish.schema, columns.spec, columns.schema)
        return True

    def contents(self, name: str) -> DeltaContents | None:
        table = self.find(name)
        return None if table is None else DeltaContents(table)

    def _create(self, wish: TableWish) -> None:
        schema, partition_columns = write_schema(wish.name, wish.schema, wish.partition)
        place = self._place(wish.name)
        try:
            DeltaTable.create(
                place.uri,
                DeltaSchema.from_json(schema),
                mode="ignore",
                partition_by=partition_columns,
                configuration=new_table_configuration(wish.properties),
                storage_options=place.options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as error:
            if self.find(wish.name) is not None:  # by us, and the answer was lost, or by somebody who was first
                return
            raise CatalogUnavailable(
                f"{wish.name} could not be created at {place.described}: {in_one_line(error)}",
                "check that you may write to the folder",
            ) from error

    def _evolve(self, table: DeltaLakeTable, wish: TableWish) -> None:
        try:
            table.evolve(wish)
        except (DeltaError, OSError, BaseError, CommitRefused) as error:
            if not wish.evolution(table.schema()):  # as above
                return
            raise CatalogUnavailable(
                f"{table.name} could not be given the columns that are declared: {in_one_line(error)}",
                "ALTER TABLE … in Spark, and start again",
            ) from error

    def _place(self, name: str) -> Place:
        if name not in self._places:
            with self._asking_spark(name) as spark:
                path = _path_in_catalog(spark, name)
            self._places[name] = Place.at(path, self._storage)
        return self._places[name]

    def _enter(self, name: str) -> None:
        """Makes a table known to Spark's catalog; one that keeps nothing has forgotten it since the last start."""
        if name in self._given:
            return
        location = self._place(name).spark_uri.replace("'", r"\'")
        with self._asking_spark(name) as spark:
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(name.rpartition('.')[0])}")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {_quoted(name)} USING delta LOCATION '{location}'")

    @contextmanager
    def _asking_spark(self, name: str) -> Iterator[SparkSession]:
        if self._spark is None:
            raise ConfigError(f"{name} is looked up in Spark's catalog, and there is no Spark", "give table.path")
        try:
            yield self._spark
        except (Py4JJavaError, PySparkException) as error:
            raise CatalogUnavailable(
                f"{name} could not be looked up in Spark's catalog: {first_line(error)}",
                "give table.path, or set the catalog up in [spark] conf",
            ) from error

    def _table(self, name: str) -> DeltaLakeTable:
        return DeltaLakeTable(name, self._place(name), self._merger)


def _path_in_catalog(spark: SparkSession, name: str) -> str:
    """Where the catalog has the table, or would have it."""
    if spark.catalog.tableExists(name):
        return str(spark.sql(f"DESCRIBE DETAIL {_quoted(name)}").collect()[0]["location"])
    database, _, table = name.rpartition(".")
    if spark.catalog.databaseExists(database):
        return f"{spark.catalog.getDatabase(database).locationUri.rstrip('/')}/{table}"
    return f"{spark.conf.get('spark.sql.warehouse.dir')}/{database}.db/{table}"


def _quoted(name: str) -> str:
    return ".".join(map(quoted, name.split(".")))
