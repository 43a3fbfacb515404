"""Where records come from."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.section import PassThrough, Section, last_part
from frazil.pipeline.values import Duration

_TOPIC = r"[A-Za-z0-9_.-]+"
"""What Kafka allows in the name of a topic."""


class KafkaSource(Section):
    """Kafka topics."""

    type: Literal["kafka"]
    """where records come from; files and generator are the others, with keys of their own"""
    topics: list[str] = Field(min_length=1)
    """topics to read; all of them land in the same table"""
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[str, int]] | datetime = "earliest"
    """the first start begins here: earliest, latest, {topic = {"0" = 42}} (-1 latest, -2 earliest), or a time"""
    fail_on_data_loss: bool = True
    """stop when the topic dropped records before they were read"""
    partitions: dict[str, list[int]] = {}
    """read only these partitions of a topic; all of them if absent"""
    group_id: str | None = None
    """offsets are also committed to this consumer group, for lag monitors only; frazil-<pipeline> if absent"""
    timeout: Duration = 30.0
    """how long to wait for a broker's answer"""
    kafka: PassThrough
    """settings of librdkafka, under its own names"""

    @model_validator(mode="after")
    def _reachable(self) -> KafkaSource:
        if not self.kafka.get("bootstrap.servers"):
            raise ValueError('kafka."bootstrap.servers" is required, such as "127.0.0.1:9092"')
        strangers = sorted(set(self.partitions) - set(self.topics))
        if strangers:
            raise ValueError(f"partitions names {strangers[0]!r}, which is not among topics")
        return self


class FilesSource(Section):
    """The files of a folder or bucket, in the order of their names."""

    type: Literal["files"]
    """where records come from"""
    path: str
    """the folder, or its URI, such as s3://bucket/folder; folders inside of it belong to it"""
    name: str | None = None
    """what _topic says; the folder's own name if absent"""
    pattern: str = "*"
    """which files: matched with the whole name below path, so that * reaches into folders"""
    format: Literal["jsonl", "csv", "parquet"] | None = None
    """what is in the files; by the end of each name if absent"""
    starting_from: str = "earliest"
    """the first start begins here: earliest, or behind the file of this name"""
    settle: Duration | Literal["off"] = "off"
    """a file younger than this, and all behind it, wait: for producers that do not rename finished files"""
    on_late_file: Literal["fail", "ignore"] = "fail"
    """what to do with a file that appears, or grows, where everything was read already"""
    fail_on_data_loss: bool = True
    """stop when a file was removed before it was read"""

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(_TOPIC, name):
            raise ValueError("letters, digits, '_', '.' and '-'")
        return name

    @property
    def topic(self) -> str:
        """The name that stands where Kafka has a topic."""
        return self.name or last_part(self.path) or "files"

    @property
    def is_local(self) -> bool:
        return "://" not in self.path


class GeneratorSource(Section):
    """Made-up orders, the same ones for the same seed: for demos and tests without Kafka."""

    type: Literal["generator"]
    """where records come from"""
    seed: int = 1
    """the same seed always makes the same records"""
    partitions: int = Field(default=2, ge=1)
    """how many partitions to pretend"""
    records: int = Field(default=100_000, ge=0)
    """how many records there are in all"""
    records_per_second: int | None = Field(default=None, ge=1)
    """let them appear over time; all at once if absent"""
