"""The syncs.

Sterna's own stages, one task after another as Airflow runs them, each tried again after it died or failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from sterna.errors import UsageError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from tests.simulation.actor import Actor
from tests.simulation.store import Violation


@dataclass(frozen=True)
class Run:
    """How far a run has come, as Airflow would know it: the plan, and what each task that ended well said."""

    planned: stages.PlannedRun
    copied: tuple[StageReport, ...] = ()
    localized: StageReport | None = None


class Syncing(Actor):
    """One scheduler of syncs.

    Args:
        name, context, tell: as in `Actor`.
        rng: decides everything.
        options: what it asks of each sync.
    """

    def __init__(
        self, name: str, context: RegionContext, tell: Callable[[str], None], rng: Random, options: SyncOptions
    ) -> None:
        super().__init__(name, context, tell)
        self.others: list[Syncing] = []
        self._rng = rng
        self._options = options
        self._run: Run | None = None

    def work(self) -> None:
        """A run that died goes on at its last task, or is given up.

        Or a task of another one is taken for dead and started twice.
        """
        other_runs = [other._run for other in self.others if other._run is not None]
        if other_runs and self._rng.random() < 0.2:
            self.tell("takes the other one's task for dead, and starts it again")
            self._run = other_runs[0]
        elif self._run is not None and self._rng.random() < 0.3:
            self.tell("gives its run up")
            self._run = None
        try:
            self._stages()
        except UsageError as error:
            if "plan is gone" not in error.message:
                raise
            self.tell("its run is so old that the clean-up took it away")
            self._run = None

    def begin(self) -> None:
        """Plan, and die when the first batch is copied."""
        planned = stages.plan(self.context, self._options, self.tell)
        if planned.batches:
            stages.copy(self.context, planned.run, 0, self.tell)

    def once(self) -> Report:
        """One sync from its beginning to its end."""
        self._run = None
        return sync(self.context, self._options, self.tell, engine=no_engine)

    def forget(self) -> None:
        """Give up what was under way: sterna is another version from now on."""
        self._run = None

    def _stages(self) -> None:
        context = self.context
        if self._run is None:
            self.tell("plan")
            planned = stages.plan(context, self._options, self.tell)
            if planned.report is not None:
                return
            self._run = Run(planned)
        while len(self._run.copied) < len(self._run.planned.batches):
            batch = len(self._run.copied)
            self.tell(f"copy {batch}")
            report = stages.copy(context, self._run.planned.run, batch, self.tell)
            self.tell(f"copied: {report.sent > 0}")
            self._run = replace(self._run, copied=(*self._run.copied, report))
        copied = sum(self._run.copied, StageReport())
        if self._run.localized is None:
            self.tell("localize")
            localized = stages.localize(context, self._run.planned.run, copied, self.tell, no_engine)
            self._run = replace(self._run, localized=localized)
        last = stages.finish_bulk if self._options.lane == "large" else stages.publish
        self.tell(last.__name__)
        last(context, self._run.planned.run, copied, self._run.localized or StageReport(), self.tell)
        self._run = None


def no_engine(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    raise Violation("the registry says that everything is localized here")
