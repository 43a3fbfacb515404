"""Which catalogs can keep the promise: those that replace a table's metadata by one atomic compare-and-set.

Everything rests on it: of two commits on top of the same metadata, one lands and the other is refused, however
late it arrives. A catalog of which that is not known is refused, unless somebody vouches for it.

| catalog | how it swaps | |
|---|---|---|
| JDBC, so sqlite and memory | one UPDATE that names the old metadata | taken |
| REST | requirements, checked by the server with the commit | taken, except Nessie's |
| Glue | the update names the table's version | taken; not with a `lock-impl`, a lease instead |
| Nessie | the commit names the expected head of the branch | taken |
| BigQuery, DynamoDB, ECS | etag or version as a condition of the write | taken |
| Hive | under a lock of the metastore | taken; not without it: only newer metastores then compare |
| Hadoop | renames a file, which few file systems do atomically | refused |
| any other class | unknown | refused |
"""

from __future__ import annotations

from collections.abc import Mapping

from frazil.errors import UnsupportedCatalog
from frazil.pipeline.spec import CatalogSection, SparkSection, TableSection

HIVE_LOCK_SETTING = "iceberg.engine.hive.lock-enabled"
_HIVE_LOCK_PROPERTY = "engine.hive.lock-enabled"
_NESSIE_MARK = "nessie.is-nessie-catalog"
_KINDS = {
    "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog": "dynamodb",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.dell.ecs.EcsCatalog": "ecs",
    "org.apache.iceberg.gcp.bigquery.BigQueryMetastoreCatalog": "bigquery",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.nessie.NessieCatalog": "nessie",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
}


def require_atomic_swap(catalog: CatalogSection, table: TableSection, spark: SparkSection) -> None:
    """Refuses what the pipeline file alone makes doubtful; a Delta table has its log in place of a catalog."""
    kind = catalog_kind(catalog)
    if catalog.vouched or table.format == "delta":
        return
    if kind is None:
        raise _refusal(
            f"catalog.prop: nothing is known of {_class_of(catalog)}; it may not replace metadata atomically",
            "use a catalog that is known",
        )
    if kind == "hadoop":
        raise _refusal(
            "catalog.prop: Iceberg's Hadoop catalog commits by renaming a file. Object stores and local disks do "
            "not refuse the second of two renames, so that a commit could be lost",
            'use type = "sqlite" on one machine, or a catalog server',
        )
    if kind == "glue" and "lock-impl" in catalog.prop:
        raise _refusal(
            "catalog.prop: with a lock-impl, Iceberg does not let Glue compare the table's version; a process that "
            "was paused until its lock expired could overwrite the commits of others",
            "leave lock-impl out",
        )
    require_hive_lock(catalog, table.name, table.properties, spark.conf.get(f"spark.hadoop.{HIVE_LOCK_SETTING}"))


def require_hive_lock(
    catalog: CatalogSection, table: str, properties: Mapping[str, str], setting: str | None
) -> None:
    """Refuses commits to Hive without its lock; the table's own property wins over the setting, as in Iceberg."""
    enabled = properties.get(_HIVE_LOCK_PROPERTY) or setting or "true"
    if catalog_kind(catalog) == "hive" and enabled.lower() != "true" and not catalog.vouched:
        raise _refusal(
            f"{table}: Hive's lock is off. Without it, only a metastore that compares the old metadata by itself "
            "(HIVE-26882) refuses the second of two commits",
            f"remove the table property {_HIVE_LOCK_PROPERTY} and the setting {HIVE_LOCK_SETTING}",
        )


def require_no_nessie(catalog: CatalogSection, told: Mapping[str, str]) -> None:
    """Refuses a REST server that says it is Nessie: it acknowledged concurrent commits of which some were lost."""
    if told.get(_NESSIE_MARK) == "true" and not catalog.vouched:
        raise _refusal(
            f"catalog.uri: {catalog.uri} is Nessie's REST interface. Of concurrent commits that it had "
            "acknowledged, some were not in the table (measured with Nessie 0.99)",
            'use type = "nessie", or another catalog',
        )


def catalog_kind(catalog: CatalogSection) -> str | None:
    """What Iceberg will open; None if nothing is known of it."""
    if implementation := _class_of(catalog):
        return _KINDS.get(implementation)
    return "jdbc" if catalog.type in {"sqlite", "memory"} else catalog.type


def _class_of(catalog: CatalogSection) -> str | None:
    return catalog.prop.get("catalog-impl")


def _refusal(message: str, remedy: str) -> UnsupportedCatalog:
    return UnsupportedCatalog(
        message, f"{remedy}; if you know that commits to this one are atomic, say so: catalog.vouched = true"
    )
