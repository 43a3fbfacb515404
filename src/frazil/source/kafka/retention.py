"""Whether a topic forgets records in its middle, which nobody but its configuration tells."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException, admin

from frazil.pipeline import KafkaSource
from frazil.source.kafka.failures import Complaints
from frazil.source.kafka.settings import open_admin, planning_settings

# confluent_kafka exports them, though its types do not say so.
_ConfigResource: Any = admin.ConfigResource  # type: ignore[attr-defined]
_Type: Any = admin.ResourceType  # type: ignore[attr-defined]


def compacted_topics(spec: KafkaSource) -> frozenset[str]:
    """The topics whose older records of a key may be gone; none where the brokers do not let us ask."""
    settings = planning_settings(spec.kafka)
    client = open_admin(settings, Complaints(settings).note)
    asked = client.describe_configs([_ConfigResource(_Type.TOPIC, topic) for topic in spec.topics])
    compacted = set()
    for resource, future in asked.items():
        try:
            policy = future.result(timeout=spec.timeout)["cleanup.policy"].value
        except (KafkaException, TimeoutError):
            continue
        if policy is not None and "compact" in policy:
            compacted.add(resource.name)
    return frozenset(compacted)
