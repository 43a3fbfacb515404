"""Plays a script on a stage: breaks, waits, starts again, and verifies after every life."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.certify.life import LONG_S, Broken, Life
from tests.certify.oracle import compare
from tests.certify.report import Report
from tests.certify.script import Round, Step
from tests.certify.stage import Stage

DEEP_EVERY = 10
"""So many verifications later, one compares with the topic too."""

Tell = Callable[[str], None]


class Supervisor:
    """One certification; `report` is up to date at any moment."""

    def __init__(
        self,
        stage: Stage,
        script: Sequence[Round],
        report: Report,
        tell: Tell = lambda _: None,
        *,
        verify_apart: bool = True,
    ) -> None:
        """With `verify_apart` the last verification is a process of its own, and starts a JVM for it."""
        self.report = report
        self._verify_apart = verify_apart
        self._stage = stage
        self._script = script
        self._tell = tell
        self._dice = random.Random(f"moments {report.seed}")
        self._life: Life | None = None

    def run(self, minutes: float = math.inf) -> None:
        """Every round that begins in time, then a quiet run to the end of the topic, and all compared with it."""
        began = time.monotonic()
        self._stage.workload.start()
        try:
            self._establish()
            for each in self._script:
                if time.monotonic() - began > minutes * 60:
                    break
                self._tell(str(each))
                self._play(each)
            self._finish()
        except Exception as error:
            self.report.broken = str(error)
            raise
        finally:
            self.report.seconds = round(time.monotonic() - began, 1)

    def _establish(self) -> None:
        """A first life that nothing happens to, so that there is something to verify."""
        self._begin().await_commit()

    def _play(self, each: Round) -> None:
        life = self._life or self._begin()
        if each.starts:
            life.await_said("started")
            for step in each.within:
                self._do(step, life)
                life.await_commit()
        self._do(each.end, life)
        self._verify()
        for step in each.between:
            self._do(step, life)

    def _do(self, step: Step, life: Life) -> None:
        time.sleep(step.pause_s)
        self._tell(step.fault.name)
        life.kin()  # who is known now is looked for when the driver is gone
        successor = step.fault.act(self._stage, life, self._dice)
        self._stage.proxy.heal()
        if step.fault.when == "end":
            self._life = successor
            self.report.lives += successor is not None
            self.report.fenced += successor is not None
        self.report.faults[step.fault.name] += 1
        self.report.kills += step.fault.kills

    def _begin(self) -> Life:
        self.report.lives += 1
        self._life = self._stage.start()
        return self._life

    def _verify(self) -> None:
        deep = self.report.verifications % DEEP_EVERY == DEEP_EVERY - 1
        self._tell("verify --deep" if deep else "verify")
        self._take_down(self._stage.verify(deep=deep))

    def _take_down(self, verdict: dict[str, Any]) -> None:
        self.report.verifications += 1
        self.report.deep_verifications += verdict["deep"]

    def _finish(self) -> None:
        self._tell("the producers stop, and one last run lands what is left")
        self._stage.workload.stop()
        if self._life is not None:
            self._life.close()
        self.report.lives += 1
        last = self._stage.start("--available-now")
        if code := last.await_end(LONG_S):
            raise Broken(f"the last run ended with {code}\n{last.tail}")
        self._tell("verify --deep")
        verdict = self._stage.verify_apart() if self._verify_apart else self._stage.verify(deep=True)
        self._take_down(verdict)
        self._tell("the topic beside the tables, read by others")
        found = compare(self._stage)
        for name, count in found.items():
            setattr(self.report, name, count)
        workload = self._stage.workload
        self.report.transactions_committed, self.report.transactions_aborted = workload.committed, workload.aborted
        if found["records"] < workload.acknowledged:
            raise Broken(f"{workload.acknowledged:,} records were acknowledged, {found['records']:,} are there")
        self.report.generations = last.said("started")[-1]["generation"]
        register = next(check for check in verdict["checks"] if check["check"] == "register")
        self.report.epochs = register["numbers"]["epoch"]
