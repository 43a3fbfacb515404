"""Iceberg, through its own Java API on the driver."""

from frazil.table.iceberg.catalog import IcebergCatalog, spark_catalog_conf
from frazil.table.iceberg.contents import IcebergContents, sql_name
from frazil.table.iceberg.places import PinnedTable
from frazil.table.iceberg.schema import spark_to_iceberg
from frazil.table.iceberg.settings import new_table_properties, with_delete_settings, with_settings
from frazil.table.iceberg.table import IcebergTable

__all__ = [
    "IcebergCatalog",
    "IcebergContents",
    "IcebergTable",
    "PinnedTable",
    "new_table_properties",
    "spark_catalog_conf",
    "spark_to_iceberg",
    "sql_name",
    "with_delete_settings",
    "with_settings",
]
