"""Kafka: topics are planned with an admin client on the driver and read with librdkafka on the workers."""

from frazil.source.kafka.plan import KafkaTopics
from frazil.source.kafka.read import KafkaReader
from frazil.source.kafka.retention import compacted_topics

__all__ = ["KafkaReader", "KafkaTopics", "compacted_topics"]
