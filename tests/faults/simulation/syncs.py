"""The syncs: sterna's own stages, one task after another as Airflow runs them, each tried again after it died or failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from sterna.errors import Remedy, SternaError
from sterna.sync import run as stages
from sterna.sync.context import Context
from sterna.sync.model import Options, StageReport
from tests.faults.simulation.store import Objects, Violation
from tests.faults.simulation.turns import Crash, Fiber


@dataclass(frozen=True)
class Run:
    """How far a run has come, as Airflow would know it: the plan, and what each task that ended well said."""

    planned: stages.Planned
    copied: tuple[StageReport, ...] = ()
    localized: StageReport | None = None


class Syncing:
    """One scheduler of syncs.

    Args:
        name: its name in the trace.
        rng: decides everything.
        context: the region, as this actor sees it.
        options: what it asks of each sync.
        tell: called with a line for the trace.
    """

    def __init__(self, name: str, rng: Random, context: Context, options: Options, tell: Callable[[str], None]) -> None:
        self.name = name
        self.context = context
        self.objects: Objects = context.objects  # type: ignore[assignment] - it stands in for the real one
        self.turn = self.objects.turn
        self.running = False
        self._rng = rng
        self._options = options
        self._tell = lambda line: tell(f"{name}: {line}")
        self._run: Run | None = None

    def go_on(self, others: Sequence[Syncing]) -> None:
        """Let it go on until it is somebody else's turn; start the next try, or the next run, when nothing is under way."""
        if self.turn.fiber is None:
            self._begin(others)
            self.turn.fiber = Fiber(self._work)
        self.running = True
        try:
            self.turn.fiber.resume()
        finally:
            self.running = False
        if self.turn.fiber.done:
            self.turn.fiber = None

    def end(self) -> None:
        """Kill what is under way."""
        if self.turn.fiber is not None:
            self.turn.fiber.end()
            self.turn.fiber = None

    def _begin(self, others: Sequence[Syncing]) -> None:
        """A run that died goes on at its last task, or is given up; or a task of another one is taken for dead and started twice."""
        theirs = [other._run for other in others if other._run is not None and other is not self]
        if theirs and self._rng.random() < 0.2:
            self._tell("takes the other one's task for dead, and starts it again")
            self._run = replace(theirs[0])
        elif self._run is not None and self._rng.random() < 0.3:
            self._tell("gives its run up")
            self._run = None

    def _work(self) -> None:
        try:
            self._stages()
        except Crash:
            pass
        except SternaError as error:
            self._tell(f"fails: {type(error).__name__}: {error}")
            if error.remedy is not Remedy.RETRY:
                raise Violation(
                    f"{self.name} stops though nothing is wrong that time wouldn't heal: {type(error).__name__}: {error}"
                ) from error

    def _stages(self) -> None:
        context = self.context
        if self._run is None:
            self._tell("plan")
            planned = stages.plan(context, self._options, self._tell)
            if planned.report is not None:
                return
            self._run = Run(planned)
        while len(self._run.copied) < len(self._run.planned.batches):
            batch = len(self._run.copied)
            self._tell(f"copy {batch}")
            report = stages.copy(context, self._run.planned.run, batch, self._tell)
            self._run = replace(self._run, copied=(*self._run.copied, report))
        copied = sum(self._run.copied, StageReport())
        if self._run.localized is None:
            self._tell("localize")
            localized = stages.localize(context, self._run.planned.run, copied, self._tell, no_engine)
            self._run = replace(self._run, localized=localized)
        self._tell("publish")
        stages.publish(context, self._run.planned.run, copied, self._run.localized or StageReport(), self._tell)
        self._run = None


def no_engine(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    raise Violation("the registry says that everything is localized here")
