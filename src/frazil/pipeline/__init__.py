"""What the user declares: a typed spec, read from TOML."""

from frazil.pipeline.load import load_pipeline, parse_pipeline
from frazil.pipeline.sources import FilesSource, GeneratorSource, KafkaSource
from frazil.pipeline.spec import PipelineSpec

__all__ = ["FilesSource", "GeneratorSource", "KafkaSource", "PipelineSpec", "load_pipeline", "parse_pipeline"]
