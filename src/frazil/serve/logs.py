"""Structured logs: one JSON object a line for machines, one readable line for people. Secrets never appear."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    Event,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.pipeline.secrets import masked


def set_up_logs(*, json: bool, stream: TextIO | None = None) -> None:
    """Sends every log line of the process to `stream`."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=False, event_key="message")
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            structlog.processors.EventRenamer("message"),
            _mask_secrets,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stdout),
        cache_logger_on_first_use=False,
    )


def _mask_secrets(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: masked(value) for key, value in entry.items()}


def log_events(pipeline: str, table: str) -> Callable[[Event], None]:
    """An observer that writes each event as one log line."""
    log = structlog.get_logger().bind(pipeline=pipeline, table=table)

    def observe(event: Event) -> None:
        match event:
            case PipelineStarted():
                frontier = event.frontier.encode()
                log.info("started", generation=event.generation, epoch=event.epoch, frontier=frontier, ui=event.ui)
            case EpochPlanned():
                if event.skipped:
                    log.warning("records lost by the source", epoch=event.epoch, span=event.skipped.encode())
                log.info("epoch begun", epoch=event.epoch, records=event.span.records, span=event.span.encode())
            case EpochWritten():
                log.info("epoch written", epoch=event.epoch, rows=event.records, duration_ms=_ms(event.seconds))
            case EpochLanded(landed, seconds):
                log.info(
                    "epoch committed",
                    epoch=landed.epoch,
                    batch_id=landed.register.batch_id,
                    snapshot_id=landed.register.snapshot_id,
                    rows=landed.counts.landed,
                    filtered=landed.counts.filtered,
                    deleted=landed.counts.deleted,
                    dead_letters=landed.counts.dead,
                    files=landed.files,
                    commit_ms=landed.commit_ms,
                    duration_ms=_ms(seconds),
                )
            case EpochCarried():
                log.info("epoch without rows", epoch=event.epoch)
            case Retrying():
                log.warning("retrying", reason=event.reason, attempt=event.attempt, delay_ms=_ms(event.delay_s))
            case Stopping():
                log.info("stopping", reason=event.reason)
            case BacklogSeen():
                pass

    return observe


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
