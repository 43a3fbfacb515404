"""Raw records on their way from a source to a decoder.

They come as Python lists because that is how librdkafka's binding hands them over; Arrow begins with the
decoder, so that no value is copied before it is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Headers = list[tuple[str, bytes | None]] | None


@dataclass(slots=True)
class Records:
    """A run of records of one topic partition in offset order; every list has the same length.

    `keys`, `timestamps_ms` and `headers` are empty lists when the pipeline did not ask for them.
    """

    topic: str
    partition: int
    offsets: list[int]
    values: list[bytes | None]
    keys: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    leader_epoch: int | None = None
    """of the last record, where the source knows such a thing"""
    file: str = ""
    """the file they come from, where it is one"""
    file_start: int = 0
    """the offset of that file's first row"""

    def __len__(self) -> int:
        return len(self.offsets)

    def place(self, position: int) -> str:
        """For people: where the record at this position comes from."""
        offset = self.offsets[position]
        place = f"{self.topic}[{self.partition}] offset {offset}"
        return f"{place}, {self.file}:{offset - self.file_start + 1}," if self.file else place
