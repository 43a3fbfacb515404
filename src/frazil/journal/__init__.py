"""The journal: an append-only record of epochs in progress, for cleaning up and for people to read.

The table is the authority. Losing, tearing or corrupting the journal changes nothing about any row.

    frame      length, entry, CRC: how damage is found
    encode     entries as JSON
    files      logs and checkpoints in a folder
    journal    appending, checkpoints, rotation
"""

from frazil.journal.encode import Recorded, kind_of, plain
from frazil.journal.files import JournalRead, read_journal, recover
from frazil.journal.journal import NO_JOURNAL, Journal, JournalSettings

__all__ = [
    "NO_JOURNAL",
    "Journal",
    "JournalRead",
    "JournalSettings",
    "Recorded",
    "kind_of",
    "plain",
    "read_journal",
    "recover",
]
