"""What is fixed for the length of one history, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from frazil.pipeline import PipelineSpec, parse_pipeline

DISASTERS = (
    "rollback of the anchor",
    "rollback of the dead letters",
    "rollback of both tables",
    "recreation of the anchor",
    "recreation of the dead letters",
    "loss of records",
    "recreation of a topic",
    "truncation of a log",
)


@dataclass
class Settings:
    """One kind of world; most are stormy, some have a disaster in the middle."""

    spec: PipelineSpec
    steps: int
    topics: int
    has_dead_letters: bool
    latest: bool
    """whether the pipeline starts at the end of the topics instead of their beginning"""
    storminess: float
    """how often calls fail"""
    restlessness: float
    """how often a process loses its turn where it touches the world"""
    liar: bool
    """whether the catalog may acknowledge what it did not do"""
    skew_ms: int
    """how far the clock of the second host is ahead"""
    disaster: str | None
    disaster_step: int
    alters: bool
    """whether users alter tables"""
    is_delta: bool = False
    """whether tables are Delta's, and changes land by MERGE"""

    @property
    def pipeline(self) -> str:
        return self.spec.pipeline.name

    @property
    def allows_loss(self) -> bool:
        return not getattr(self.spec.source, "fail_on_data_loss", True)

    @classmethod
    def draw(cls, chance: random.Random) -> Settings:
        steps = chance.randint(60, 220)
        return cls(
            spec=spec(
                max_records=chance.choice((5, 20, 1000)),
                in_flight=chance.choice((1, 2, 3, 3)),
                heartbeat=chance.choice(("off", "1s", "20s")),
                loss=chance.random() < 0.3,
                mixed_epoch="split" if steps % 4 < 2 else "next-epoch",
            ),
            steps=steps,
            topics=chance.choice((1, 1, 2)),
            has_dead_letters=chance.random() < 0.8,
            latest=chance.random() < 0.3,
            storminess=chance.choice((0.0, 0.1, 0.3, 0.5)),
            restlessness=chance.choice((0.1, 0.3, 0.6)),
            liar=chance.random() < 0.1,
            skew_ms=chance.choice((0, 0, -3_600_000, 3_600_000)),
            disaster=chance.choice(DISASTERS) if chance.random() < 0.4 else None,
            disaster_step=chance.randint(steps // 4, steps * 3 // 4),
            alters=steps % 2 == 0,
        )


@cache
def spec(max_records: int, in_flight: int, heartbeat: str, loss: bool, mixed_epoch: str = "split") -> PipelineSpec:
    return parse_pipeline(
        {
            "pipeline": {"name": "orders"},
            "source": {
                "type": "kafka",
                "topics": ["orders"],
                "kafka": {"bootstrap.servers": "nowhere:9092"},
                "fail_on_data_loss": not loss,
            },
            "decode": {"format": "raw"},
            "table": {"name": "shop.orders"},
            "schema": {"mixed_epoch": mixed_epoch},
            "epoch": {
                "interval": "2s",
                "max_records": max_records,
                "in_flight": in_flight,
                "heartbeat": heartbeat,
            },
        }
    )
