"""Following `main` in a warm process: each small change is synced at once, and what is large is left to others.

Nothing is remembered that matters. The watermark stands on the replica branch, and the compare-and-swap keeps two
followers, or a follower and a DAG, apart: whoever comes second publishes nothing, and looks again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Protocol

from sterna.errors import ReferenceNotFound, Remedy, SternaError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.backoff import Backoff
from sterna.replica.held import Held
from sterna.replica.records import Report
from sterna.replica.region import Progress, RegionContext
from sterna.replica.transit import read_transit
from sterna.sync import stages
from sterna.sync.engine import Engine, engine_or_spark
from sterna.sync.options import SyncOptions
from sterna.sync.run import carry_out
from sterna.sync.small import Small

log = logging.getLogger(__name__)
# What is large is left in transit where it can be, so that the rest of a plan is small.
_OPTIONS = SyncOptions(lane="small")


class Warm(Protocol):
    """A region that is kept open."""

    def now(self) -> RegionContext:
        """Return it."""

    def forget(self) -> None:
        """Close it; the next one is opened anew."""


@dataclass(frozen=True)
class FollowOptions:
    """How `main` is followed.

    Args:
        small: what is done here.
        quick: seconds between two looks while commits follow one another.
        slow: the same when nothing happens.
        brought: seconds between two looks at what the large lane has brought, while something is in transit.
        busy: seconds after a commit in which the next one is looked for quickly.
        pause: seconds after a first failure, and after a first plan that was left to others; doubled with each further.
        longest: the longest such pause.
        anew: syncs after which everything is opened anew: what is remembered of folders grows with each run's.
        yields: whether it ends for what is left to others, where they can't begin before.
    """

    small: Small = Small()  # noqa: RUF009 - it is frozen
    quick: float = 0.2
    slow: float = 1.0
    brought: float = 5.0
    busy: float = 30.0
    pause: float = 1.0
    longest: float = 30.0
    anew: int = 1_000
    yields: bool = False


@dataclass(frozen=True)
class _Left:
    """A plan that somebody else has to carry out.

    Args:
        head: of the replica branch, as the region's own catalog showed it then.
        why: the reason.
        pause: seconds until it is looked at again, though nobody has published.
        due: when that is.
    """

    head: str
    why: str
    pause: float
    due: float


@dataclass
class Follower:
    """Whoever follows `main` for a region.

    Args:
        region: the region.
        told: called with the report of each publication.
        say: called with lines for people about what else is worth telling.
        options: how it follows.
        progress: called with lines about each step.
        engine: where to localize; default: here, since what Spark is for is not small.
        stop: set by who wants it to end at the next chance.
    """

    region: Warm
    told: Callable[[Report], None]
    say: Progress
    options: FollowOptions = FollowOptions()
    progress: Progress = lambda line: None
    engine: Engine | None = None
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._seen: tuple[str, ...] = ()  # heads of `main` that need no look any more
        self._busy_until = 0.0
        self._backoff = Backoff()
        self._left: _Left | None = None
        self.moving: tuple[Held, ...] = ()
        """What is in transit."""
        self._brought, self._brought_due = frozenset[tuple[str, str]](), 0.0
        self.failures = 0
        """Looks in a row that went wrong."""
        self._problem = ""
        self._syncs = 0

    def run(self, seconds: float | None = None) -> None:
        """Follow until somebody sets `stop`, for so many seconds, or until an error that time does not cure.

        Whatever interrupts it may do so anywhere: what is half-done is taken up by the next sync, or not needed.

        Raises:
            SternaError: one whose remedy is `stop`.
        """
        end = None if seconds is None else time.monotonic() + seconds
        try:
            while not self.stop.is_set() and (end is None or time.monotonic() < end):
                pause = self._turn()
                self.stop.wait(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
        finally:
            self.region.forget()

    def _turn(self) -> float:
        """Look once, sync where that is needed, and return how long to wait then."""
        try:
            pause = self._look()
        except SternaError as error:
            if error.remedy is Remedy.STOP:
                raise
            return self._failed(error)
        except Exception as error:
            log.exception("a sync failed in a way that nobody expects")
            return self._failed(error)
        if self._problem:
            self.say(f"goes on after {self.failures} failures")
        self.failures, self._problem = 0, ""
        return pause

    def _look(self) -> float:
        context = self.region.now()
        head = context.catalog.reference(SOURCE_BRANCH).hash
        now = time.monotonic()
        if not self._is_wanted(context, head, now):
            return self._pause(now)
        if head not in self._seen:
            self._busy_until = now + self.options.busy
        return self._sync(context, head, now)

    def _is_wanted(self, context: RegionContext, head: str, now: float) -> bool:
        if self._left is not None:
            return now >= self._left.due or _replica(context) != self._left.head
        return head not in self._seen or now >= self._backoff.next or self._is_brought(context, now)

    def _is_brought(self, context: RegionContext, now: float) -> bool:
        """Tell whether the large lane has brought a table whole since the last look.

        A DAG that lingers keeps the run waiting that is to publish it.
        """
        if not self.moving or now < self._brought_due:
            return False
        self._brought_due, before = now + self.options.brought, self._brought
        try:
            found = read_transit(context.objects, context.region)
        except SternaError:
            return False  # a sync tells it, where there is something to do
        here = (item for item in self.moving if found and found.round.moving(item) and found.is_here(item.key))
        self._brought = frozenset((item.key, item.since) for item in here)
        if self._brought <= before:
            return False
        self._seen = ()  # until a sync has done it
        return True

    def _sync(self, context: RegionContext, head: str, now: float) -> float:
        due = now >= self._backoff.next
        self._backoff = self._backoff.after_retry(now) if due else self._backoff.after_run(now)
        before, started = _replica(context), time.monotonic()
        planned = stages.plan(context, _OPTIONS, self.progress, self.options.small.refuses)
        if planned.left:
            return self._leave(planned.left, before)
        self._left = None
        if planned.report is not None:
            return self._after(planned.report, head)
        with engine_or_spark(context, self.progress, self.engine) as engine:
            report = carry_out(context, planned, _OPTIONS, self.progress, engine)
        if report.outcome == "published":
            self.told(replace(report, seconds=time.monotonic() - started))
        if report.large:
            self._yield()
        return self._after(report, head)

    def _after(self, report: Report, head: str) -> float:
        now = time.monotonic()
        self._syncs += 1
        if self._syncs % self.options.anew == 0:
            self.region.forget()
        self._backoff = self._backoff.after_look((*report.held, *report.transit), now)
        if report.outcome == "superseded":  # whoever was first may have left something, and need not be done
            self._seen = ()
            return self.options.quick
        if report.more:
            return 0.0
        self.moving = tuple(item for item in report.transit if item.bytes)
        # The region's own catalog may be behind the primary, for which the plan was made.
        self._seen = (head, report.source_hash)
        return self._pause(now)

    def _leave(self, why: str, before: str) -> float:
        """Leave a plan to a DAG, and wait until it has published, or doesn't seem to."""
        last = self._left
        if last is None or last.why != why:
            self.say(f"left to the DAG: {why}")
        self._yield()
        pause = min(2 * last.pause, self.options.longest) if last and last.head == before else self.options.pause
        self._left = _Left(before, why, pause, time.monotonic() + pause)
        return self._pause(time.monotonic())

    def _yield(self) -> None:
        if self.options.yields:
            self.stop.set()

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        problem = f"{type(error).__name__}: {error}"
        if problem != self._problem:
            self.say(problem)
        self._problem = problem
        self.region.forget()
        longest = min(self.options.longest, self.options.pause * (1 << min(self.failures - 1, 16)))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that not all regions come back at once

    def _pause(self, now: float) -> float:
        return self.options.quick if now < self._busy_until else self.options.slow


def _replica(context: RegionContext) -> str:
    try:
        return context.catalog.reference(context.region.replica_branch).hash
    except ReferenceNotFound:
        return ""
