"""The sink: for programs, and Structured Streaming queries, that land their own rows."""

from frazil.sink.batches import BatchLander, foreach_batch
from frazil.sink.checkpoints import CheckpointAdapter, EpochSink
from frazil.sink.config import SinkConfig
from frazil.sink.connectors import ConnectorRegistry, ConnectorRuntime, SinkHandle, pass_through
from frazil.sink.facts import (
    Capabilities,
    Committed,
    ConfigKey,
    ConnectorInfo,
    Health,
    Metrics,
    State,
    Written,
)
from frazil.sink.pipelines import PipelineHandle, start_pipeline
from frazil.sink.sink import Sink
from frazil.sink.status import Condition, Stage, Status, StatusStream

__all__ = [
    "BatchLander",
    "Capabilities",
    "CheckpointAdapter",
    "Committed",
    "Condition",
    "ConfigKey",
    "ConnectorInfo",
    "ConnectorRegistry",
    "ConnectorRuntime",
    "EpochSink",
    "Health",
    "Metrics",
    "PipelineHandle",
    "Sink",
    "SinkConfig",
    "SinkHandle",
    "Stage",
    "State",
    "Status",
    "StatusStream",
    "Written",
    "foreach_batch",
    "pass_through",
    "start_pipeline",
]
