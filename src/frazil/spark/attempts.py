"""How often Spark ran the tasks of a job: more often than once when it speculated, or lost an executor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from pyspark import SparkContext

log = structlog.get_logger()

_ONE_ATTEMPT = re.compile(r"local(\[[^,\]]+\])?")
"""Masters that run every task once: a failure is the job's."""


def ran_more_than_once(context: SparkContext, group: str) -> bool:
    """Whether tasks of a group's jobs were begun more often than there are tasks.

    Spark notes attempts on a thread of its own, so that one just begun may be missed; what it leaves behind then
    costs space. The same if Spark does not tell at all.
    """
    if _ONE_ATTEMPT.fullmatch(context.master or "local"):
        return False
    try:
        status, store = context.statusTracker(), context._jsc.sc().statusStore()
        jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        return any(_surplus(store.lastStageAttempt(stage)) for stage in stages)
    except Exception as error:
        log.debug("Spark does not tell how often it ran its tasks", group=group, error=str(error))
        return False


def _surplus(stage: Any) -> bool:
    ended = stage.numCompleteTasks() + stage.numFailedTasks() + stage.numKilledTasks()
    return stage.attemptId() > 0 or int(stage.numActiveTasks() + ended) > int(stage.numTasks())
