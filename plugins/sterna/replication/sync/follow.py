"""Following `main` in a warm process: each small change is synced at once, and what is large is left to a DAG.

A follower has no state of its own that matters. The watermark is on the replica branch, and two followers, or a
follower and a DAG, are kept apart by compare-and-swap: the second one publishes nothing, and plans again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Protocol

from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound, Remedy, SternaError
from sterna.libraries import pa
from sterna.replication.execution.executor import plan_placements
from sterna.replication.execution.spark_executor import Engine, engine_or_spark
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.bulk_state import read_bulk_state
from sterna.replication.replica.file_list import files_to_localize
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Plan, Report
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.retry import Backoff
from sterna.replication.sync import stages
from sterna.replication.sync.run import execute_plan
from sterna.replication.sync.stage_spans import report_attributes, sync_attributes
from sterna.runtime.failures import Failures, unexpected_error
from sterna.runtime.retry_delay import RetryDelay
from sterna.tracing.span import annotate, open_span, own_attributes

log = logging.getLogger(__name__)
_NAME = "follow"
SMALL_SYNC = SyncOptions(lane="small")
"""What is large is left in transit where it can be, so that the rest of a plan is small."""


class RegionSource(Protocol):
    """A region that is kept open."""

    def current(self) -> RegionContext:
        """Return it."""

    def disconnect(self) -> None:
        """Close it; the next one has new connections."""


@dataclass(frozen=True)
class FollowerLimits:
    """The largest plan that a follower executes itself; a larger one is left to a DAG, which has time and workers.

    Args:
        max_bytes: what is to be copied.
        max_files: what is to be copied or localized.
    """

    max_bytes: int = 256 << 20
    max_files: int = 1_000

    def exceeded_by(self, context: RegionContext, plan: Plan, files: pa.Table | None) -> str:
        """Return which limit a plan with such a list of files exceeds, "" for none."""
        size = sum(batch.bytes for batch in plan.batches)
        if size > self.max_bytes:
            return f"{size} bytes to copy, more than {self.max_bytes}"
        localized = 0 if files is None else files_to_localize(files).num_rows
        count = sum(batch.files for batch in plan.batches) + localized
        if count > self.max_files:
            return f"{count} files to copy and localize, more than {self.max_files}"
        on_spark = (
            placement
            for placement in (() if files is None else plan_placements(context.region, files))
            if placement.where == "spark"
        )
        first = next(on_spark, None)
        return f"{first.files} {first.role} files are for Spark: {first.why}" if first else ""


@dataclass(frozen=True)
class FollowOptions:
    """How `main` is followed.

    Args:
        limits: the largest plan that is carried out here.
        busy_poll_seconds: seconds between two polls while commits follow one another.
        idle_poll_seconds: the same without commits.
        bulk_poll_seconds: seconds between two polls of the large lane's progress, while something is in transit.
        busy_seconds: seconds after a commit for which polling stays fast.
        initial_backoff_seconds: seconds after a first failure, and after a first plan that was left to others; doubled
            with each further.
        max_backoff_seconds: the longest such pause.
        reopen_after_syncs: syncs after which everything is reopened: the cache of folders grows with each run's.
        stop_on_handover: whether it ends when a plan is left to others that can't begin before it has ended.
    """

    limits: FollowerLimits = FollowerLimits()
    busy_poll_seconds: float = 0.2
    idle_poll_seconds: float = 1.0
    bulk_poll_seconds: float = 5.0
    busy_seconds: float = 30.0
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 30.0
    reopen_after_syncs: int = 1_000
    stop_on_handover: bool = False


@dataclass(frozen=True)
class _DeferredPlan:
    """A plan that is left to others, such as a DAG.

    Args:
        replica_hash: head of the replica branch, as the region's own catalog had it then.
        reason: the limit that the plan exceeds.
        backoff_seconds: seconds until the next plan, though the branch has no new commit.
        retry_at: the time of that plan.
    """

    replica_hash: str
    reason: str
    backoff_seconds: float
    retry_at: float


@dataclass
class Follower:
    """A process that follows `main` for a region.

    Args:
        on_published: called with the report of each publication.
        notify: called with lines for people about failures and recoveries.
        progress: called with lines about each step.
        engine: where to localize; default: here, since what Spark is for is not small.
        stop: ends it after the current step.
    """

    region: RegionSource
    on_published: Callable[[Report], None]
    notify: Progress
    options: FollowOptions = FollowOptions()
    progress: Progress = lambda line: None
    engine: Engine | None = None
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._synced_hashes: tuple[str, ...] = ()  # heads of `main` that are already synced
        self._busy_until = 0.0
        self._backoff = Backoff()
        self._deferred: _DeferredPlan | None = None
        self.in_transit: tuple[Held, ...] = ()
        """What is in transit."""
        self._completed, self._bulk_poll_at = frozenset[tuple[str, str]](), 0.0
        self.failures = 0
        """Consecutive failed polls."""
        self._failures = Failures(self.notify)
        self._sync_count = 0

    def run(self, seconds: float | None = None) -> None:
        """Follow until `stop` is set, for so many seconds, or until an error that a retry does not cure.

        It may be interrupted anywhere: the next sync resumes what is half-done, or doesn't need it.

        Raises:
            SternaError: one whose remedy is `stop`.
        """
        end = None if seconds is None else time.monotonic() + seconds
        try:
            while not self.stop.is_set() and (end is None or time.monotonic() < end):
                pause = self._step()
                self.stop.wait(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
        finally:
            self.region.disconnect()

    def _step(self) -> float:
        """Poll once, sync where that is needed, and return how long to wait then."""
        try:
            pause = self._poll()
        except SternaError as error:
            if error.remedy is Remedy.STOP:
                raise
            return self._record_failure(error)
        except Exception as error:
            log.exception("a sync failed unexpectedly")
            return self._record_failure(unexpected_error(error))
        if self._failures.get(_NAME) is not None:
            self.notify(f"continues after {self.failures} failures")
            self._failures.clear(_NAME)
        self.failures = 0
        return pause

    def _poll(self) -> float:
        context = self.region.current()
        head = context.catalog.reference(SOURCE_BRANCH).hash
        now = time.monotonic()
        if not self._is_sync_due(context, head, now):
            return self._poll_interval(now)
        if head not in self._synced_hashes:
            self._busy_until = now + self.options.busy_seconds
        with open_span("sterna.sync", sync_attributes(context, SMALL_SYNC)):
            return self._sync(context, head, now)

    def _is_sync_due(self, context: RegionContext, head: str, now: float) -> bool:
        if self._deferred is not None:
            return now >= self._deferred.retry_at or _replica_hash(context) != self._deferred.replica_hash
        return (
            head not in self._synced_hashes
            or now >= self._backoff.next_attempt_at
            or self._has_newly_completed(context, now)
        )

    def _has_newly_completed(self, context: RegionContext, now: float) -> bool:
        """Return whether the large lane has completed a table since the last poll.

        A DAG that still follows delays the run that is to publish it.
        """
        if not self.in_transit or now < self._bulk_poll_at:
            return False
        self._bulk_poll_at, before = now + self.options.bulk_poll_seconds, self._completed
        try:
            bulk_state = read_bulk_state(context.objects, context.region)
        except SternaError:
            return False  # a sync reports it, where there is something to do
        completed = (
            held_key
            for held_key in self.in_transit
            if bulk_state and bulk_state.run.find_table(held_key) and bulk_state.is_complete(held_key.key)
        )
        self._completed = frozenset((held_key.key, held_key.since) for held_key in completed)
        if self._completed <= before:
            return False
        self._synced_hashes = ()  # until a sync has done it
        return True

    def _sync(self, context: RegionContext, head: str, now: float) -> float:
        is_retry = now >= self._backoff.next_attempt_at
        self._backoff = self._backoff.after_retry(now) if is_retry else self._backoff.after_run(now)
        replica_hash, started = _replica_hash(context), time.monotonic()
        planned = stages.plan(context, SMALL_SYNC, self.progress, self.options.limits.exceeded_by)
        if planned.deferred:
            return self._defer(planned.deferred, replica_hash)
        self._deferred = None
        if planned.report is not None:
            return self._record_report(planned.report, head)
        with engine_or_spark(context, self.progress, self.engine) as engine:
            report = execute_plan(context, planned, SMALL_SYNC, self.progress, engine)
        if report.outcome == "published":
            self.on_published(replace(report, seconds=time.monotonic() - started))
        if report.large:
            self._hand_over()
        return self._record_report(report, head)

    def _record_report(self, report: Report, head: str) -> float:
        annotate(report_attributes(report))
        now = time.monotonic()
        self._sync_count += 1
        if self._sync_count % self.options.reopen_after_syncs == 0:
            self.region.disconnect()
        self._backoff = self._backoff.after_poll((*report.held, *report.transit), now)
        if report.outcome == "superseded":  # the other run may have left something, or be still running
            self._synced_hashes = ()
            return self.options.busy_poll_seconds
        if report.more:
            return 0.0
        self.in_transit = tuple(held_key for held_key in report.transit if held_key.bytes)
        # The region's own catalog may be behind the primary, for which the plan was made.
        self._synced_hashes = (head, report.source_hash)
        return self._poll_interval(now)

    def _defer(self, reason: str, replica_hash: str) -> float:
        """Leave a plan to a DAG, and wait until it has published, or doesn't seem to."""
        annotate(own_attributes(outcome="deferred"))
        last = self._deferred
        if last is None or last.reason != reason:
            self.notify(f"left to the DAG: {reason}")
        self._hand_over()
        pause = self.options.initial_backoff_seconds
        if last and last.replica_hash == replica_hash:
            pause = min(2 * last.backoff_seconds, self.options.max_backoff_seconds)
        self._deferred = _DeferredPlan(replica_hash, reason, pause, time.monotonic() + pause)
        return self._poll_interval(time.monotonic())

    def _hand_over(self) -> None:
        if self.options.stop_on_handover:
            self.stop.set()

    def _record_failure(self, error: SternaError) -> float:
        self.failures += 1
        self._failures.record(_NAME, error)
        self.region.disconnect()
        # At random, so that not all regions come back at once.
        return RetryDelay(self.options.initial_backoff_seconds, self.options.max_backoff_seconds).draw(self.failures)

    def _poll_interval(self, now: float) -> float:
        return self.options.busy_poll_seconds if now < self._busy_until else self.options.idle_poll_seconds


def _replica_hash(context: RegionContext) -> str:
    try:
        return context.catalog.reference(context.region.replica_branch).hash
    except ReferenceNotFound:
        return ""
