"""The journal of a pipeline, read by somebody who does not write it."""

from __future__ import annotations

from pathlib import Path

from frazil.errors import ConfigError
from frazil.journal import JournalRead, read_journal
from frazil.pipeline import PipelineSpec


def journal_of(spec: PipelineSpec) -> JournalRead:
    """All that its files still hold; empty if it never ran here."""
    if not spec.journal.enabled or spec.journal.dir is None:
        raise ConfigError("this pipeline keeps no journal", "set journal.enabled = true to keep one from now on")
    try:
        return read_journal(Path(spec.journal.dir))
    except OSError as error:
        raise ConfigError(f"{spec.journal.dir} cannot be read: {error.strerror}", "check journal.dir") from error
