"""Catalogs: which one, and the tables in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from frazil.errors import CatalogUnavailable, ConfigError
from frazil.pipeline.atomic import HIVE_LOCK_SETTING, catalog_kind, require_hive_lock, require_no_nessie
from frazil.pipeline.keys import require_possible
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.schema import format_version_needed
from frazil.pipeline.sort import parse_sort
from frazil.pipeline.spec import CatalogSection
from frazil.spark import java_exception_classes, jvm
from frazil.table.iceberg.contents import IcebergContents
from frazil.table.iceberg.keys import grow_partition_fields, needs_plain_spec, require_deletes, require_same_keys
from frazil.table.iceberg.schema import (
    require_compatible,
    require_same_partition,
    require_same_sort,
    require_unreserved,
)
from frazil.table.iceberg.table import IcebergTable
from frazil.table.wish import TableWish

_MISSING = {
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.iceberg.exceptions.NoSuchNamespaceException",
}
_EXISTS = "org.apache.iceberg.exceptions.AlreadyExistsException"
_SERVER_TYPES = {"rest", "hive", "glue", "nessie", "jdbc"}

NEW_TABLE_PROPERTIES = {
    # Every epoch rewrites the metadata file; without this, old ones pile up by the thousand.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def catalog_properties(section: CatalogSection) -> dict[str, str]:
    """What Iceberg calls the things that the pipeline file says."""
    properties = {"warehouse": _warehouse(section)} if section.names_warehouse else {}
    if section.type in {"sqlite", "memory"}:
        properties["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
        properties["uri"] = _sqlite_uri(section)
        properties["jdbc.schema-version"] = "V1"
    elif section.type in _SERVER_TYPES and "catalog-impl" not in section.prop:
        properties["type"] = section.type
    if section.uri and section.type in _SERVER_TYPES:
        properties["uri"] = section.uri
    return {**properties, **section.prop}


def spark_catalog_conf(section: CatalogSection) -> dict[str, str]:
    """Makes the catalog visible to Spark SQL under its name.

    Spark's own cache of tables is off: others commit to them all the time.
    """
    prefix = f"spark.sql.catalog.{section.name}"
    conf = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"}
    return conf | {f"{prefix}.{key}": value for key, value in catalog_properties(section).items()}


class IcebergCatalog:
    """Loads tables, and creates the ones that are truly missing."""

    def __init__(self, spark: SparkSession, section: CatalogSection) -> None:
        self._spark = spark
        self._jvm = jvm(spark)
        self._section = section
        self._uri = catalog_properties(section).get("uri", section.type)
        self.address = f"{section.type} at {self._uri}"
        if section.type == "sqlite":
            _make_folder(section)
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()
        with self._answering("opened"):
            self._catalog = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                section.name, catalog_properties(section), self._settings
            )
        if catalog_kind(section) == "rest":
            require_no_nessie(section, self._catalog.properties())

    def find(self, name: str) -> IcebergTable | None:
        """The table, or None if the catalog says that there is none; any other answer is an error."""
        try:
            self._load(name)
        except Py4JJavaError as error:
            if _MISSING & java_exception_classes(error)[0]:
                return None
            raise self._unavailable(f"{name} could not be loaded", error) from error
        return self._table(name)

    def open(self, wish: TableWish) -> IcebergTable:
        """The table as wished: created if missing, otherwise checked."""
        if not self.fits(wish):
            self._create(wish)
            if not self.fits(wish):
                raise CatalogUnavailable(f"{wish.name} was created but cannot be found ({self.address})")
        table = self._table(wish.name)
        if wish.evolves and (evolution := wish.evolution(table.schema())):
            with self._answering(f"asked to evolve {wish.name}"):
                table.evolve(evolution)
        return table

    def fits(self, wish: TableWish) -> bool:
        """Whether the table is there; one that is there and cannot take the pipeline's rows is an error."""
        require_unreserved(wish.name, wish.schema)
        spec, order = parse_partition(wish.partition, wish.schema), parse_sort(wish.sort, wish.schema)
        table = self.find(wish.name)
        if catalog_kind(self._section) == "hive":
            properties = wish.properties if table is None else table.loaded().properties()
            require_hive_lock(self._section, wish.name, properties, self._settings.get(HIVE_LOCK_SETTING))
        if table is None:
            return False
        columns = table.schema()
        require_compatible(wish.name, wish.schema, wish.evolution(columns).of(columns))
        if wish.partition:
            require_same_partition(wish.name, spec, wish.schema, table.partition_spec(), columns)
        if wish.sort:
            require_same_sort(wish.name, order, wish.schema, table.sort_order(), columns)
        if wish.keys:
            require_deletes(wish.name, table.loaded().operations().current().formatVersion())
            require_possible(wish.keys, columns)
            require_same_keys(wish.name, wish.keys, columns)
        return True

    def contents(self, name: str) -> IcebergContents | None:
        table = self.find(name)
        return None if table is None else IcebergContents(self._spark, self._section.name, table)

    def _create(self, wish: TableWish) -> None:
        spec, order = parse_partition(wish.partition, wish.schema), parse_sort(wish.sort, wish.schema)
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(wish.schema.model_dump_json())
        with self._answering(f"asked to create {wish.name}", tolerate=_EXISTS):
            self._create_namespace(wish.name)
            builder = self._catalog.buildTable(self._identifier(wish.name), schema)
            builder.withSortOrder(iceberg.SortOrderParser.fromJson(schema, order.model_dump_json()))
            builder.withProperties(_properties(wish))
            if wish.location:
                builder.withLocation(wish.location)
            if not needs_plain_spec(spec, wish.schema, wish.keys):
                builder.withPartitionSpec(iceberg.PartitionSpecParser.fromJson(schema, spec.model_dump_json()))
                builder.create()
                return
            creation = builder.createTransaction()
            grow_partition_fields(iceberg, creation.updateSpec(), spec, wish.schema)
            creation.commitTransaction()

    def _create_namespace(self, name: str) -> None:
        namespace = self._identifier(name).namespace()
        with self._answering(f"asked to create namespace {namespace}", tolerate=_EXISTS):
            if not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace)

    def _table(self, name: str) -> IcebergTable:
        return IcebergTable(self._spark, name, lambda: self._load(name), self._unavailable)

    def _load(self, name: str) -> Any:
        return self._catalog.loadTable(self._identifier(name))

    def _identifier(self, name: str) -> Any:
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(name)

    @contextmanager
    def _answering(self, what: str, tolerate: str | None = None) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            if tolerate is None or tolerate not in java_exception_classes(error)[0]:
                raise self._unavailable(f"catalog could not be {what}", error) from error

    def _unavailable(self, what: str, error: Py4JError) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"{what} ({self._section.type} catalog at {self._uri}): {_first_line(error)}",
            "check that the address is right, that the catalog is up, and that nobody holds a lock on it",
        )


def _properties(wish: TableWish) -> dict[str, str]:
    """Those of a new table; its format version is as high as its types need."""
    needed = format_version_needed(wish.schema)
    given = {**NEW_TABLE_PROPERTIES, "format-version": str(needed), **wish.properties}
    version = given["format-version"]
    if not version.isdecimal() or int(version) < needed:
        raise ConfigError(
            f'table.properties: "format-version" = "{version}", but {wish.name} needs {needed} for its columns',
            "leave it out: it is chosen by the columns",
        )
    return given


def _first_line(error: Py4JError) -> str:
    java_exception = getattr(error, "java_exception", None)
    text = str(java_exception.toString()) if java_exception is not None else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def _warehouse(section: CatalogSection) -> str:
    return Path(section.warehouse).resolve().as_uri() if section.is_local else section.warehouse


def _sqlite_uri(section: CatalogSection) -> str:
    if section.type == "memory":
        return f"jdbc:sqlite:file:frazil-{section.name}?mode=memory&cache=shared"
    return f"jdbc:sqlite:{_sqlite_file(section)}"


def _sqlite_file(section: CatalogSection) -> Path:
    if section.uri:
        return Path(section.uri.removeprefix("jdbc:").removeprefix("sqlite:"))
    parsed = urlparse(section.warehouse)
    if parsed.scheme not in {"", "file"}:
        raise ConfigError(
            f"catalog.warehouse: {section.warehouse} is not a local folder, so the sqlite catalog has no place",
            'give catalog.uri a path for its file, or use another type such as "rest"',
        )
    return Path(parsed.path).resolve() / "catalog.db"


def _make_folder(section: CatalogSection) -> None:
    folder = _sqlite_file(section).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"catalog.warehouse: {folder} cannot be created: {error.strerror}",
            "choose a folder that this user may write to",
        ) from error
