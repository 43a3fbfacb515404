"""Landing one proposal in one table, whatever the network does.

1. Try to commit; the proposal is judged inside.
2. On any error, whatever its class, nobody knows the outcome: load the table afresh until it answers.
3. It landed: done. Another coordinator took over: stop. It has not landed: wait a little, and try again with
   the same files. An attempt that was thought lost may land meanwhile; the judgement then says so.
4. An earlier commit of ours landed late: what was planned without it is given up.
5. The table was altered so that what was written for it as it was does not fit, or rows that are deleted by their
   places have moved: it is given up, and written again.
6. The table itself says that it can never take it: that is raised at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from frazil.commit.world import World
from frazil.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    FrazilError,
    RowsMoved,
    TerminalError,
)
from frazil.protocol.commit import (
    AlreadyCommitted,
    Altered,
    Fenced,
    Overtaken,
    Proceed,
    Proposal,
    TableObserved,
    Unexpected,
    altered,
    fenced,
    judge,
)
from frazil.protocol.register import Register
from frazil.protocol.retry import COMMIT, Backoff
from frazil.table import Table, WrittenFile

log = structlog.get_logger()


def land(
    table: Table,
    proposal: Proposal,
    files: Sequence[WrittenFile],
    world: World,
    backoff: Backoff = COMMIT,
) -> Register:
    """Returns the register that landed, or raises once it is certain that this proposal cannot."""
    for failures in range(1, backoff.attempts + 1):
        try:
            return table.commit(proposal, files)
        except Exception as error:  # every class of error leaves the outcome open
            cause = error
        seen = _probe(table, proposal, cause, world, backoff)
        match judge(seen, proposal):
            case AlreadyCommitted(found) if found.coordinator == proposal.register.coordinator:
                log.info("commit had landed", table=table.name, epoch=found.epoch, error=_brief(cause))
                return found
            case AlreadyCommitted(found) | Fenced(found):
                raise fenced(table.name, found) from cause
            case Overtaken(found):
                raise CommitOutcomeUnknown(
                    f"{table.name}: a commit of epoch {found.epoch}, given up for lost, has landed after all",
                    "what follows is planned again behind it",
                ) from cause
            case Altered() as misfit:
                raise altered(table.name, proposal, misfit) from cause
            case Unexpected(error=terminal):
                raise terminal from cause
            case Proceed() if isinstance(cause, RowsMoved | TerminalError):
                raise cause
            case Proceed():
                log.warning("commit failed", table=table.name, attempt=failures, error=_brief(cause))
                if failures < backoff.attempts:
                    world.sleep(backoff.delay_s(failures, world.chance()))
    raise CommitConflict(
        f"{table.name}: epoch {proposal.register.epoch} could not be committed in {backoff.attempts} attempts; "
        f"the last error was: {_brief(cause)}",
        "its files are kept; see who else commits to this table, or whether the catalog and storage are well",
    ) from cause


def _probe(table: Table, proposal: Proposal, cause: Exception, world: World, backoff: Backoff) -> TableObserved:
    """A fresh look at the table, and at its head; nothing is sent again before it answers."""
    for failures in range(1, backoff.attempts + 1):
        try:
            table.check_head()
            return table.observe(proposal.writer, proposal)
        except CatalogUnavailable as silence:
            log.warning("catalog gives no answer", table=table.name, attempt=failures, error=_brief(silence))
            if failures < backoff.attempts:
                world.sleep(backoff.delay_s(failures, world.chance()))
    raise CommitOutcomeUnknown(
        f"{table.name}: a commit of epoch {proposal.register.epoch} ended with {_brief(cause)}, and the catalog "
        f"did not say in {backoff.attempts} attempts whether it landed",
        "its files are kept; the next start reads the outcome from the table",
    ) from cause


def _brief(error: Exception) -> str:
    text = error.message if isinstance(error, FrazilError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:400]}"
