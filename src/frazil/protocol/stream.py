"""A stream of epochs: what a program of one's own, or a Structured Streaming query, has in place of offsets.

Theory. A stream hands its rows over epoch by epoch, and after a crash it begins again with an epoch that may have
landed. So its source is one partition, and the epoch itself is the offset: the frontier says which epoch came last,
and an epoch up to it has landed. Epochs rise; where they leave numbers out, the span reaches over the gap.

That holds for one numbering only. A query whose checkpoint was lost counts from 0 again, and taken by their numbers
its rows would be skipped in silence. So the frontier also has the stream's id, in the place of a topic's: that of a
query lives and dies with its checkpoint.

    the frontier                        the stream goes on
    speaks of this stream               behind its last epoch
    speaks of another one               Stop, unless told by name that this one replaces it
    the same, told so                   from its first epoch on, in the next partition: no position ever goes back
    speaks of no stream at all          Stop: the writer is a pipeline's
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import ConfigError, SourceChanged, TerminalError
from frazil.protocol.positions import Frontier, Partition, Position, Range, Span

TOPIC = "sink:epochs"
"""No topic of Kafka's can be called so."""
EPOCH_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream stands."""

    stream: str
    number: int
    """how many streams this writer had before"""
    last: int
    """the last epoch that landed; 0 if none did"""

    @property
    def partition(self) -> Partition:
        return (TOPIC, self.number)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {TOPIC: self.stream}

    def span(self, epoch: int) -> Span:
        """From the last epoch to this one."""
        return Span({self.partition: Range(self.last, epoch)})


def beginning(stream: str) -> Frontier:
    """Of a writer that landed nothing yet."""
    return Frontier({(TOPIC, 0): Position(0)}, {TOPIC: stream})


def find_place(writer: str, frontier: Frontier, stream: str, replaces: str | None = None) -> Place | TerminalError:
    """Where the stream goes on, by what the table says of its writer; the table above is the whole of it."""
    found = frontier.topic_ids.get(TOPIC)
    if found is None:
        return _of_a_pipeline(writer, frontier)
    number = max(partition for topic, partition in frontier.positions if topic == TOPIC)
    last = frontier.positions[TOPIC, number].offset
    if found == stream:
        return Place(stream, number, last)
    if last == 0:
        return Place(stream, number, 0)  # the other one never landed anything
    return Place(stream, number + 1, 0) if replaces == found else _another_stream(writer, found, stream, last)


def _of_a_pipeline(writer: str, frontier: Frontier) -> ConfigError:
    topics = ", ".join(sorted({topic for topic, _ in frontier.positions})) or "no stream"
    return ConfigError(
        f"writer.name: {writer} is the name of a pipeline in this table, which has read {topics}",
        "give the sink a writer.name of its own",
    )


def _another_stream(writer: str, found: str, stream: str, last: int) -> SourceChanged:
    return SourceChanged(
        f"{writer} has landed epochs up to {last} of the stream {found}, and this is the stream {stream}: its "
        "epochs are others, and would be skipped where the numbers are the same",
        "if the checkpoint of the query was lost or moved, bring it back; to land this stream behind the other "
        f'one, from its first epoch on, set writer.replaces = "{found}": rows that both have then land twice',
    )
