"""What a pipeline file may say: one typed tree, one line of explanation under each key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from frazil.changes import KEY_TELLING, Decimals, Envelope, KeyFormat, Resolved, Truncate, UnknownOp
from frazil.pipeline.aliases import without_aliases
from frazil.pipeline.keys import is_whole, whole_row_problem
from frazil.pipeline.section import PassThrough, Section, last_part
from frazil.pipeline.sources import FilesSource, GeneratorSource, KafkaSource
from frazil.pipeline.stores import is_on_store, parse_address, require_known
from frazil.pipeline.values import Duration, FieldList, Size
from frazil.protocol.layout import MixedEpoch

_TABLE_ALIASES = {
    "partition.spec": "partition",
    "sort.order": "sort",
    "file.format": "file_format",
    "target.file.size": "target_file_size",
    "write.mode": "mode",
    "equality.delete.columns": "keys",
}
"""Names that other tools have for keys of `[table]`."""

_JOURNAL_ALIASES = {"max_log_files": "max_files", "checkpoint_seconds": "checkpoint_interval"}


class PipelineSection(Section):
    """Who writes."""

    name: str
    """the writer's stable name in its tables; renaming it starts over"""

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
            raise ValueError("letters, digits, '_', '.' and '-', at most 100 of them")
        return name


EpochUnit = Literal["s", "ms", "us", "ns"]


class DecodeSection(Section):
    """From bytes to columns."""

    format: Literal["json", "raw"]
    """json: the value is one JSON object; raw: key, value and headers as bytes"""
    envelope: Envelope = "none"
    """how the value wraps its row; the others are for table.mode upsert"""
    schema_: str | None = Field(default=None, alias="schema")
    """the columns of a JSON object, as Spark writes them: order_id BIGINT, amount DECIMAL(10,2)"""
    metadata: bool = True
    """add the columns _topic, _kafka_partition, _offset, _timestamp and _key"""
    on_error: Literal["dead-letter", "fail"] = "dead-letter"
    """what happens to a record that cannot be decoded"""
    catch_all: str | None = None
    """a declared STRING column that keeps the fields which are not declared, as one JSON object"""
    epoch_unit: EpochUnit | dict[str, EpochUnit] | None = None
    """what a number in a timestamp column counts since 1970, for all of them or by column: {placed_at = "ms"}"""
    binary: Literal["base64", "hex"] = "base64"
    """how a JSON text spells the bytes of BINARY and FIXED columns"""

    @model_validator(mode="after")
    def _declared(self) -> DecodeSection:
        if self.format == "json" and not self.schema_:
            raise ValueError("schema is required with format json")
        if self.format == "raw" and self.schema_:
            raise ValueError("schema cannot be given with format raw, its columns are key, value and headers")
        if self.format == "raw" and (self.catch_all or self.epoch_unit):
            raise ValueError("catch_all and epoch_unit cannot be given with format raw, which decodes nothing")
        return self


class TransformSection(Section):
    """Spark SQL between decoding and writing."""

    sql: str
    """a SELECT over the view `source`"""


class TableSection(Section):
    """Where rows land. A key of the files' looks that is left out is the table's own property, if it has one."""

    format: Literal["iceberg", "delta"] = "iceberg"
    """the table format"""
    path: str | None = None
    """the folder of a Delta table, or s3://bucket/folder; if absent, its name is looked up in Spark's catalog"""
    storage: PassThrough = {}
    """how to reach the store of a Delta table, under Iceberg's names: {"s3.endpoint" = "http://127.0.0.1:9000"}"""
    unsafe_rename: bool = False
    """take a store on which two drivers could overwrite each other; you make sure that there is only one"""
    name: str
    """namespace and table, such as shop.orders; with a path, what frazil calls it: the folder's name if absent"""
    mode: Literal["append", "upsert", "overwrite"] = "append"
    """append: rows come; upsert (merge): they change the row with their key; overwrite (delta): whole partitions"""
    keys: list[str] = []
    """upsert: columns that name a row, in the order of its own key; looked for if absent; ["*"]: all of them"""
    partition: FieldList = []
    """partition fields: a column, day(column), bucket(16, column) AS name, …"""
    sort: FieldList = []
    """the order of rows inside a file: placed_at desc nulls last, …"""
    distribution: Literal["none", "hash", "auto"] | None = None
    """who writes which partition: none: whoever meets it; hash: one task each; auto, if absent: what pays"""
    location: str | None = None
    """where a new table is created; the catalog decides if absent"""
    file_format: Literal["parquet", "orc", "avro"] | None = None
    """the format of data files; parquet if absent"""
    target_file_size: Size | None = None
    """data files are closed at about this size; 128MB if absent"""
    compression: Literal["zstd", "snappy", "lz4", "gzip", "none"] | None = None
    """the codec of data files; zstd if absent"""
    compression_level: int | None = None
    """the codec's own level; its default if absent"""
    row_group_rows: int = Field(default=131_072, ge=1)
    """rows in a Parquet row group at most; bounds a worker's memory"""
    page_size: Size | None = None
    """bytes in a Parquet page; 1MB if absent"""
    dictionary: bool = True
    """dictionary encoding of repeated values"""
    bloom_filters: list[str] | None = None
    """columns whose values readers look up one by one, such as order_id"""
    properties: PassThrough = {}
    """table properties of a new table, under Iceberg's names"""

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, section: object) -> object:
        if not isinstance(section, dict):
            return section
        named = without_aliases(section, _TABLE_ALIASES)
        if named.get("mode") == "merge":
            named["mode"] = "upsert"
        if isinstance(named.get("path"), str):
            named.setdefault("name", last_part(named["path"]))
        return named

    @model_validator(mode="after")
    def _placed(self) -> TableSection:
        if self.format == "iceberg" and self.path is not None:
            raise ValueError('path is for format = "delta"; an Iceberg table is found by its name')
        if self.format == "iceberg" and self.mode == "overwrite":
            raise ValueError('mode = "overwrite" is for format = "delta"; allowed are "append" and "upsert"')
        if self.format == "iceberg" and self.storage:
            raise ValueError('storage is for format = "delta"; of an Iceberg table it belongs to catalog.prop')
        if self.unsafe_rename and (self.format == "iceberg" or self.path is None or not is_on_store(self.path)):
            raise ValueError("unsafe_rename is for a path in a store, such as s3://bucket/orders")
        if self.path is None:
            require_known(self.storage)
        elif is_on_store(self.path):
            parse_address(self.path, self.storage)
        elif self.storage:
            raise ValueError("storage is for a path in a store, such as s3://bucket/orders; this one is a folder")
        if self.format == "delta":
            told = {"file_format": self.file_format, "location": self.location}
            for key in [key for key, value in told.items() if value not in (None, "parquet")]:
                raise ValueError(f'{key} cannot be given with format = "delta": its files are parquet, below path')
        return self

    @field_validator("name")
    @classmethod
    def _qualified(cls, name: str, info: ValidationInfo) -> str:
        parts = name.split(".")
        if info.data.get("path") is None and (len(parts) < 2 or not all(parts)):
            raise ValueError("a namespace and a table, such as shop.orders")
        return name


class ChangesSection(Section):
    """How records change rows, for `table.mode = "upsert"`."""

    trust_inserts: bool = False
    """believe the source that an inserted key is new: nothing is deleted for it, as fast as an append"""
    sequence_by: str | None = None
    """a column that orders the changes of a key; needed when a key's changes come from several Kafka partitions"""
    unknown_op: UnknownOp = "fail"
    """what happens to an operation that nobody knows: fail, warn-insert or dead-letter"""
    truncate: Truncate = "fail"
    """what happens when the source empties its table: fail, ignore, or apply (topics of one partition)"""
    op_column: str | None = None
    """envelope op-column: the field that holds the operation; _op or __op if absent"""
    key_format: KeyFormat = "json"
    """how message keys are written, where a record has no value: json or text"""
    decimals: Decimals | None = None
    """how texts in DECIMAL columns are written: plain, or bytes as Debezium does; bytes with debezium if absent"""
    resolved: Resolved | None = None
    """a snapshot for each resolved time of a changefeed, for the latest, or off; each with cockroachdb if absent"""


class SchemaSection(Section):
    """How the table's schema may change."""

    evolution: bool = False
    """a start adds declared columns that the table lacks, and widens types; otherwise it stops at them"""
    mixed_epoch: MixedEpoch = "split"
    """epochs under way when it is altered: split: they land as written; next-epoch: they are written again"""


class CatalogSection(Section):
    """Which catalog keeps the table."""

    type: Literal["sqlite", "rest", "hive", "glue", "nessie", "jdbc", "memory"] = "sqlite"
    """sqlite: a file in the warehouse; memory: gone with the process; the others are servers"""
    name: str = "frazil"
    """the catalog's name in Spark SQL, and in catalogs shared by several"""
    uri: str | None = None
    """the server's address"""
    warehouse: str = "./warehouse"
    """where tables are stored: a folder or a URI"""
    prop: PassThrough = {}
    """any further catalog property, under Iceberg's names"""
    vouched: bool = False
    """you know that commits to the catalog are atomic, and vouch for it where frazil cannot know"""

    @property
    def names_warehouse(self) -> bool:
        """A REST server knows its own: without a word from the user, none is asked for."""
        return self.type != "rest" or "warehouse" in self.model_fields_set

    @property
    def is_local(self) -> bool:
        """Whether the warehouse is a folder; servers may give theirs a name, which looks like a relative path."""
        if ":" in self.warehouse or not self.names_warehouse:
            return False
        return self.type in {"sqlite", "memory"} or self.warehouse.startswith((".", "/"))

    @model_validator(mode="after")
    def _addressed(self) -> CatalogSection:
        if self.type in {"rest", "hive", "nessie", "jdbc"} and not self.uri:
            raise ValueError(f"uri is required with type {self.type}")
        if "type" in self.prop:
            raise ValueError(
                "prop.type is not allowed; say it as catalog.type, or name a class as prop.catalog-impl"
            )
        return self


class EpochSection(Section):
    """When an epoch closes: whichever comes first."""

    interval: Duration = 30.0
    """longest time a record waits before its epoch closes"""
    max_records: int = Field(default=1_000_000, ge=1)
    """most records in an epoch"""
    max_bytes: Size = 512 * 2**20
    """most bytes in an epoch, as estimated from the epochs before"""
    in_flight: int = Field(default=3, ge=1, le=16)
    """epochs written while earlier ones commit"""
    heartbeat: Duration | Literal["off"] = 300.0
    """an empty snapshot carries the frontier on when nothing landed for this long"""


class JournalSection(Section):
    """A local record of epochs in progress: lets a start delete what a crash left behind. No row depends on it."""

    enabled: bool = True
    """whether it is kept"""
    dir: str | None = None
    """its folder, on a local disk; .frazil/<pipeline> beside the pipeline file if absent"""
    checkpoint_entries: int = Field(default=10_000, ge=1)
    """a checkpoint, and a new file, after this many entries"""
    checkpoint_interval: Duration = 300.0
    """a checkpoint after this long"""
    max_files: int = Field(default=10, ge=1)
    """files kept; older ones are deleted"""

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, section: object) -> object:
        return without_aliases(section, _JOURNAL_ALIASES) if isinstance(section, dict) else section


class SparkSection(Section):
    """The Spark session."""

    master: str | None = None
    """local[*] if absent; spark-submit's own under spark-submit"""
    conf: PassThrough = {}
    """Spark settings, under its own names"""


class PipelineSpec(Section):
    """One pipeline: from one source to one table."""

    pipeline: PipelineSection
    source: Annotated[KafkaSource | FilesSource | GeneratorSource, Field(discriminator="type")]
    decode: DecodeSection
    transform: TransformSection | None = None
    table: TableSection
    changes: ChangesSection = ChangesSection()
    schema_: SchemaSection = Field(default=SchemaSection(), alias="schema")
    catalog: CatalogSection = CatalogSection()
    epoch: EpochSection = EpochSection()
    journal: JournalSection = JournalSection()
    spark: SparkSection = SparkSection()

    @model_validator(mode="before")
    @classmethod
    def _guaranteed(cls, tree: object) -> object:
        """Sinks may choose how often an epoch lands; here there is but one answer, which may be written down."""
        if not isinstance(tree, dict) or not isinstance(told := tree.get("delivery"), dict):
            return tree
        if told.get("guarantee") == "at-least-once":
            raise ValueError(
                'delivery.guarantee = "at-least-once" is not for pipelines: the table is their checkpoint, without '
                "what it remembers none could go on; leave the key out"
            )
        rest = {key: section for key, section in tree.items() if key != "delivery"}
        return rest if told == {"guarantee": "exactly-once"} else tree

    @model_validator(mode="after")
    def _keyed(self) -> PipelineSpec:
        upsert = self.table.mode == "upsert"
        if upsert and not self.table.keys and self.decode.envelope not in KEY_TELLING:
            raise ValueError(
                'table.keys is required with mode = "upsert": name the columns that name a row; with '
                f'decode.envelope = "{self.decode.envelope}" no record names them'
            )
        if upsert and self.decode.format == "raw":
            raise ValueError('table.mode = "upsert" needs columns: use decode.format = "json"')
        if upsert and self.table.distribution == "hash":
            raise ValueError('table.distribution = "hash" cannot be: upsert brings changes together by their key')
        if not upsert and self.decode.envelope != "none":
            raise ValueError(f'decode.envelope = "{self.decode.envelope}" needs table.mode = "upsert"')
        if self.has_whole_rows and (problem := whole_row_problem(self)):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _resolvable(self) -> PipelineSpec:
        if self.resolved is None:
            return self
        if self.decode.envelope != "cockroachdb":
            raise ValueError('changes.resolved needs decode.envelope = "cockroachdb", which has resolved messages')
        told = "transform" if self.transform else "changes.sequence_by" if self.changes.sequence_by else None
        if told is not None:
            raise ValueError(
                f"{told} and resolved times do not go together, changes are ordered by their own time: "
                f'set changes.resolved = "off", or leave {told} out'
            )
        return self

    @property
    def resolved(self) -> Literal["each", "latest"] | None:
        """For which resolved times of a changefeed there is an epoch; None if it has epochs as any other source."""
        told = self.changes.resolved or ("each" if self.decode.envelope == "cockroachdb" else "off")
        return None if told == "off" else told

    @property
    def has_whole_rows(self) -> bool:
        """Whether each row of the table is its own key."""
        return self.table.mode == "upsert" and is_whole(self.table.keys)

    @property
    def dead_letters(self) -> str | None:
        """The table that takes what cannot be decoded."""
        if self.decode.on_error == "fail" or self.decode.format == "raw":
            return None
        return f"{self.table.name}__dead_letters"

    @property
    def table_names(self) -> list[str]:
        """The main table and, if it has one, that of its dead letters."""
        return [self.table.name, *([self.dead_letters] if self.dead_letters else [])]

    def at(self, folder: Path) -> PipelineSpec:
        """The same pipeline with relative paths taken from `folder`, where its file lies."""
        catalog: dict[str, Any] = {}
        if self.catalog.is_local:
            catalog["warehouse"] = str((folder / self.catalog.warehouse).resolve())
            if self.catalog.type == "sqlite" and self.catalog.uri and ":" not in self.catalog.uri:
                catalog["uri"] = str((folder / self.catalog.uri).resolve())
        source = self.source
        if isinstance(source, FilesSource) and source.is_local:
            source = source.model_copy(update={"path": str((folder / source.path).resolve())})
        table = self.table
        if table.path is not None and "://" not in table.path:
            table = table.model_copy(update={"path": str((folder / table.path).resolve())})
        journal = folder / (self.journal.dir or f".frazil/{self.pipeline.name}")
        return self.model_copy(
            update={
                "source": source,
                "table": table,
                "catalog": self.catalog.model_copy(update=catalog),
                "journal": self.journal.model_copy(update={"dir": str(journal.resolve())}),
            }
        )
