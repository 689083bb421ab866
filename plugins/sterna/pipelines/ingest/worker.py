"""A worker: claims closed batches, one after another, until there are none, or for a while.

While one batch is published the next one is prepared: read, and written as data files. They are published in the order
in which they were taken, by one thread. After a promotion a worker continues at the new primary.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sterna.errors import LeaseLost, OutOfTurn, Remedy, Rewound, SternaError
from sterna.pipelines.ingest.batch_publisher import BatchOutcome, BatchPublisher, StepContext
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.counts import Counts, count_states, sum_counts
from sterna.pipelines.ingest.direct_topics import DirectTopics
from sterna.pipelines.ingest.failover_recovery import FailoverRecovery, Recovery
from sterna.pipelines.ingest.heartbeat import BEATS_PER_LEASE, LEASE_SECONDS, STALL_SECONDS, Heartbeat, heartbeating
from sterna.pipelines.ingest.model import Batch
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.step_context import open_step_context
from sterna.replication.replica.region import RegionContext
from sterna.runtime.failures import Failures, describe_error, unexpected_error
from sterna.runtime.reconciler import Idle, Reconciler
from sterna.runtime.retry_delay import RetryDelay
from sterna.runtime.runner import MAX_STEPS, Runner, RunSummary

log = logging.getLogger(__name__)
_SHORT_WAIT_SECONDS = 0.3
_RETRY_DELAY = RetryDelay(2.0, 60.0)  # between two tries of what time may cure
_STOPPED_WAIT_SECONDS = 300.0  # of what waits for an operator: `sterna ingest run --once` retries it sooner
_IDLE_SECONDS = 0.5
_ONCE_SECONDS = 600.0


@dataclass(frozen=True)
class WorkerSummary(RunSummary[BatchOutcome]):
    """What a worker has done: its steps are batches that it settled, its errors are of batches that it requeued.

    Args:
        moved: the new primary region, where the worker ended because of it; "": it didn't.
        waiting: batches by state, of all workers; None: they weren't counted.
    """

    moved: str = ""
    waiting: Counts | None = None

    def fields(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {**super().fields(), "moved": self.moved, "waiting": self.waiting}


class Worker(Reconciler["Batch | None", "Batch | None", int]):
    """Processes batches in one region: it observes the queue, and a step prepares one batch and publishes another.

    Args:
        on_settled: called with the outcome of each batch that it settled.
        report: called with a line for each error that differs from the last one of its batch.
        close_due: closes batches that are due; called before each claim.
        recover: finds batches that `main` has lost, when it is due; True: at once.
        clock: seconds.
        lease: seconds for which it holds a batch since its last heartbeat.
        stall: seconds without progress after which it sends no more heartbeats; more than any step takes.
    """

    retry_seconds = _IDLE_SECONDS  # of a tracker that doesn't answer

    def __init__(
        self,
        step_context: StepContext,
        on_settled: Callable[[BatchOutcome], object],
        report: Callable[[str], object],
        close_due: Callable[[], object] = lambda: None,
        recover: Callable[[bool], Recovery] = lambda urgent: Recovery(),
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        lease: float = LEASE_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> None:
        self._context, self._on_settled, self._close_due, self._recover = step_context, on_settled, close_due, recover
        self._clock, self._lease, self._stall = clock, lease, stall
        self._last_progress, self._is_stalled = clock(), False
        self._host, self._pid = socket.gethostname(), os.getpid()
        self.name = f"{self._host}-{self._pid}-{uuid.uuid4().hex[:8]}"
        self._ended = threading.Event()
        self._runner = Runner([self], report, sleep, clock, self._ended, _IDLE_SECONDS)
        self._failures = Failures(report)
        self._settled: deque[BatchOutcome] = deque(maxlen=MAX_STEPS)
        self._counts: Counter[str] = Counter()
        self._requeued: set[str] = set()
        self._report, self._new_primary, self._is_once = report, "", False
        self._publishers: dict[str, BatchPublisher] = {}
        self._pending: tuple[BatchPublisher, Future[BatchOutcome]] | None = None
        self._executor: ThreadPoolExecutor
        self._rng = Random()  # noqa: S311 - spreads waiting

    def run(self, seconds: float | None = None, *, once: bool = False) -> WorkerSummary:
        """Process closed batches.

        Args:
            seconds: for how long to poll for more; None: for ever.
            once: only what is closed now, also what was requeued with a delay; and what waits for that to be
                published.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker doesn't answer; a worker that runs on waits for it.
        """
        queue, self._is_once = self._context.queue, once
        if once:
            queue.clear_delays()
        try:
            with (
                heartbeating(self.send_heartbeat, self._lease / BEATS_PER_LEASE),
                ThreadPoolExecutor(1, thread_name_prefix="sterna-ingest-publisher") as self._executor,
            ):
                limit = _ONCE_SECONDS if once else float("inf") if seconds is None else seconds
                summary = self._runner.run(limit, until_idle=once)
                self._wait_for_pending()
            if self._ended.is_set() and self.name in summary.errors:
                raise summary.errors[self.name]
        except BaseException:
            # On any end of this process: the next worker needn't wait for the lease.
            with suppress(SternaError):
                for id in self._publishers:
                    queue.requeue(id, self.name, "the worker was ended")
            raise
        finally:
            with suppress(SternaError):
                queue.deregister(self.name)
            for publisher in self._publishers.values():
                publisher.close()
        errors = self._failures.snapshot()
        return WorkerSummary(tuple(self._settled), summary.idle, errors, dict(self._counts), self._new_primary)

    def observe(self, previous: Batch | None = None) -> Batch | None:
        """Close what is due, recover what `main` has lost, and claim a batch; None: there is none to claim.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker doesn't answer.
        """
        self._record_progress()
        self._close_due()
        self._recover_lost()
        return None if self._new_primary else self._context.queue.claim(self.name, self._lease)

    def decide(self, state: Batch | None) -> Batch | Idle | None:
        """Return the batch to prepare; None: the one that is being published is to be waited for."""
        if state is None and self._pending is None:
            return Idle("no batch to claim", is_final=not self._requeued)
        return state

    def apply(self, state: Batch | None, work: Batch | None) -> int:
        """Prepare a batch, wait until the one before is published, and let this one be published; return how many
        batches are settled."""
        settled_before = self._counts.total()
        if work is None:
            self._wait_for_pending()
        else:
            self._requeued.discard(work.id)
            publisher = BatchPublisher(self._context, work, self.name, self._record_progress)
            self._publishers[work.id] = publisher
            is_prepared = self._run_stage(publisher, publisher.prepare)
            self._wait_for_pending()
            if is_prepared:
                self._pending = publisher, self._executor.submit(publisher.publish)
        return self._counts.total() - settled_before

    def summarize(self, result: int) -> str:
        """Return "": `on_settled` is called with each batch."""
        return ""

    def record_failure(self, error: BaseException) -> None:
        """End the worker, unless the error is one that a worker that runs on waits for."""
        if self._is_once or not isinstance(error, SternaError) or error.remedy is not Remedy.RETRY:
            self._ended.set()

    def _record_progress(self) -> None:
        """Record progress: in claiming batches, or on one of them."""
        self._last_progress = self._clock()

    def send_heartbeat(self) -> None:
        """Send a heartbeat, unless the worker is stalled: then others claim its batches, and it counts as dead."""
        stalled_seconds = self._clock() - self._last_progress
        if stalled_seconds <= self._stall:
            self._is_stalled = False
            self._context.queue.send_heartbeat(self._build_heartbeat())
        elif not self._is_stalled:
            self._is_stalled = True
            log.error(
                "no step forward for %.0f s: batches %s are free for others",
                stalled_seconds,
                ", ".join(self._publishers) or "-",
            )

    def _build_heartbeat(self) -> Heartbeat:
        return Heartbeat(self.name, self._host, self._pid, self._lease, tuple(self._publishers))

    def _recover_lost(self, batch: Batch | None = None) -> bool:
        """Find batches that `main` has lost; return whether that is why a batch isn't published."""
        recovery = self._recover(batch is not None)
        if recovery.new_primary:
            self._new_primary = recovery.new_primary
            self._ended.set()
        for (table, channel), numbers in recovery.reopened.items():
            self._report(
                f"main has lost batches {numbers[0]} to {numbers[-1]} of {table}, channel {channel}: once more"
            )
        for (table, channel), cause in recovery.undecided.items():
            error = Rewound(cause, table=table, hint=f"sterna ingest replay --table {table} --channel {channel} --to …")
            self._failures.record(f"{table} {channel}", error)
        return batch is not None and (batch.destination.table, batch.destination.channel) in recovery.reopened

    def _wait_for_pending(self) -> None:
        if self._pending is not None:
            (publisher, future), self._pending = self._pending, None
            self._run_stage(publisher, future.result)

    def _run_stage(self, publisher: BatchPublisher, run_stage: Callable[[], BatchOutcome | None]) -> bool:
        """Run one of a batch's two stages; return whether the batch continues: it is not settled, requeued or lost."""
        batch = publisher.batch
        try:
            outcome = run_stage()
        except LeaseLost:
            self._release(publisher)  # another worker holds it, and does all of it
        except SternaError as error:
            self._release(publisher)
            self._requeue(batch, error)
        except Exception as error:
            # Unexpected, maybe by one tenant's content: it must not end the work for all tenants, each time again.
            log.exception("batch %s failed", batch.id)
            self._release(publisher)
            self._requeue(batch, unexpected_error(error))
        else:
            if outcome is None:
                return True
            self._release(publisher)
            self._record_settled(batch, outcome)
        return False

    def _release(self, publisher: BatchPublisher) -> None:
        """Name a batch in no further heartbeat: whatever becomes of the tracker, its lease ends."""
        del self._publishers[publisher.batch.id]
        publisher.close()

    def _record_settled(self, batch: Batch, outcome: BatchOutcome) -> None:
        self._failures.clear(_batch_name(batch))
        self._settled.append(outcome)
        self._counts[outcome.table] += 1
        self._on_settled(outcome)

    def _requeue(self, batch: Batch, error: SternaError) -> None:
        is_reopened = isinstance(error, Rewound) and self._recover_lost(batch)
        delay = _SHORT_WAIT_SECONDS if is_reopened else self._retry_delay(batch, error)
        try:
            self._context.queue.requeue(batch.id, self.name, describe_error(error), delay=delay)
        except SternaError as unreachable:
            if unreachable.remedy is not Remedy.RETRY:
                raise
            log.warning("batch %s isn't requeued, and is free once its lease ends: %s", batch.id, unreachable)
        # An earlier batch was requeued by this worker: it isn't worth waiting for.
        if is_reopened or (isinstance(error, OutOfTurn) and not self._failures.snapshot()):
            self._requeued.add(batch.id)
        else:
            self._failures.record(_batch_name(batch), error)

    def _retry_delay(self, batch: Batch, error: SternaError) -> float:
        if isinstance(error, OutOfTurn):
            return _SHORT_WAIT_SECONDS * self._rng.uniform(0.5, 1.5)
        if error.remedy is Remedy.RETRY:
            return _RETRY_DELAY.longest(batch.attempts)
        return _STOPPED_WAIT_SECONDS


def _batch_name(batch: Batch) -> str:
    """Return the name of a batch in messages, as `WorkerStatus.batches` has it."""
    return f"{batch.destination.table} {batch.destination.channel} {batch.number}"


def run_worker(
    context: RegionContext,
    ingest: RegionIngest,
    on_settled: Callable[[BatchOutcome], object],
    report: Callable[[str], object],
    seconds: float | None = None,
    *,
    once: bool = False,
) -> WorkerSummary:
    """Put closed batches on `main`, and once more those that it has lost; after a promotion at the new primary.

    Args:
        ingest: what it takes in.
        on_settled: called with each batch that is settled.
        report: called with a line where one is given back.
        seconds: for how long to poll for more; None: for ever.
        once: only what is closed now; topics that workers read directly are not read.

    Raises:
        SternaError: as `open_step_context` and `Worker.run`.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    steps: tuple[BatchOutcome, ...] = ()
    counts: Counter[str] = Counter()
    topics = DirectTopics(ingest)
    while True:
        with context.with_new_connections() as fresh, open_step_context(fresh, ingest, topics.fetch) as step_context:
            worker = Worker(
                step_context,
                on_settled,
                report,
                lambda: close_due(ingest.pool, ingest.rules),
                FailoverRecovery(replace(ingest, context=fresh)),
                stall=STALL_SECONDS + step_context.read_limits.seconds,
            )
            with nullcontext() if once else topics.reading(report):
                summary = worker.run(None if deadline is None else max(deadline - time.monotonic(), 0.0), once=once)
        steps = (*steps, *summary.steps)[-MAX_STEPS:]
        counts.update(summary.counts)
        if not summary.moved:
            errors = {**summary.errors, **topics.errors}
            waiting = _count_states(ingest, once=once)
            return replace(summary, steps=steps, counts=counts, errors=errors, waiting=waiting)
        report(f"{summary.moved} is the primary by now: the worker continues there")


def _count_states(ingest: RegionIngest, *, once: bool) -> Counts | None:
    try:
        return sum_counts(count_states(ingest.pool).values())
    except SternaError:
        if once:
            raise
        return None  # a long-running worker's outcome counts all the same; `status` shows what waits
