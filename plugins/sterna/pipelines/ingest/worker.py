"""A worker: claims closed batches, one after another, until there are none, or for a while.

While one batch is published the next one is prepared: read, and written as data files. They are published in the order
in which they were taken, by one thread.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from sterna.errors import LeaseLost, OutOfTurn, Remedy, Rewound, SternaError
from sterna.pipelines.ingest.batch_publisher import BatchOutcome, BatchPublisher, StepContext
from sterna.pipelines.ingest.counts import Counts
from sterna.pipelines.ingest.failover_recovery import Recovery
from sterna.pipelines.ingest.heartbeat import BEATS_PER_LEASE, LEASE_SECONDS, STALL_SECONDS, Heartbeat, heartbeating
from sterna.pipelines.ingest.model import Batch
from sterna.runtime.failures import unexpected_error

log = logging.getLogger(__name__)
_SHORT_WAIT_SECONDS = 0.3
_MAX_WAIT_SECONDS = 60.0  # seconds between two tries of what time may cure
_STOPPED_WAIT_SECONDS = 300.0  # of what waits for an operator: `sterna ingest run --once` retries it sooner
_IDLE_SECONDS = 0.5
_ONCE_SECONDS = 600.0


@dataclass(frozen=True)
class WorkerOutcome:
    """What a worker has done.

    Args:
        done: batches that it settled.
        failed: batches that it requeued, by id, and why.
        stopped: why, of those that wait for an operator.
        counts: batches by state, of all workers; None: they weren't counted.
        moved: the new primary region, where the worker ended because of it; "": it didn't.
    """

    done: tuple[BatchOutcome, ...]
    failed: dict[str, str]
    stopped: tuple[str, ...] = ()
    moved: str = ""
    counts: Counts | None = None


class Worker:
    """Processes batches in one region.

    Args:
        on_settled: called with the outcome of each batch that it settled.
        report: called with a line where one is requeued.
        close_due: closes batches that are due; called before each claim.
        recover: finds batches that `main` has lost, when it is due; True: at once.
        clock: seconds.
        lease: seconds for which it holds a batch since its last heartbeat.
        stall: seconds without progress after which it sends no more heartbeats; more than any step takes.
    """

    def __init__(
        self,
        step_context: StepContext,
        on_settled: Callable[[BatchOutcome], object],
        report: Callable[[str], object],
        close_due: Callable[[], object] = lambda: None,
        recover: Callable[[bool], Recovery] = lambda urgent: Recovery(),
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        lease: float = LEASE_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> None:
        self._context, self._on_settled, self._report, self._close_due, self._recover = (
            step_context,
            on_settled,
            report,
            close_due,
            recover,
        )
        self._sleep, self._clock, self._lease, self._stall = sleep, clock, lease, stall
        self._last_progress, self._is_stalled = clock(), False
        self._host, self._pid = socket.gethostname(), os.getpid()
        self.name = f"{self._host}-{self._pid}-{uuid.uuid4().hex[:8]}"
        self._settled: list[BatchOutcome] = []
        self._failed: dict[str, str] = {}
        self._stopped: dict[str, str] = {}
        self._requeued: set[str] = set()
        self._new_primary = ""
        self._publishers: dict[str, BatchPublisher] = {}
        self._pending: tuple[BatchPublisher, Future[BatchOutcome]] | None = None
        self._rng = Random()  # noqa: S311 - spreads waiting

    def run(self, seconds: float | None = None, *, once: bool = False) -> WorkerOutcome:
        """Process closed batches.

        Args:
            seconds: for how long to poll for more; None: for ever.
            once: only what is closed now, also what was requeued with a delay; and what waits for that to be
                published.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker doesn't answer; a worker that runs on waits for it.
        """
        deadline = self._clock() + (_ONCE_SECONDS if once else float("inf") if seconds is None else seconds)
        queue = self._context.queue
        if once:
            queue.clear_delays()
        try:
            with heartbeating(self.send_heartbeat, self._lease / BEATS_PER_LEASE):
                self._run_until(deadline, once=once)
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
        return WorkerOutcome(tuple(self._settled), dict(self._failed), tuple(self._stopped.values()), self._new_primary)

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

    def _run_until(self, deadline: float, *, once: bool) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="sterna-ingest-publisher") as executor:
            while True:
                has_progressed = self._run_once(executor, once=once)
                if (
                    self._new_primary
                    or self._clock() >= deadline
                    or (once and not has_progressed and not self._requeued)
                ):
                    break
                if not has_progressed:
                    self._sleep(_IDLE_SECONDS)
            self._wait_for_pending()

    def _run_once(self, executor: ThreadPoolExecutor, *, once: bool) -> bool:
        self._record_progress()
        try:
            self._close_due()
            self._recover_lost()
            batch = None if self._new_primary else self._context.queue.claim(self.name, self._lease)
        except SternaError as error:
            if once or error.remedy is not Remedy.RETRY:
                raise
            self._report(str(error))
            return False
        if batch is None:
            return self._wait_for_pending()
        self._requeued.discard(batch.id)
        publisher = self._publishers[batch.id] = BatchPublisher(self._context, batch, self.name, self._record_progress)
        is_prepared = self._run_stage(publisher, publisher.prepare)
        self._wait_for_pending()
        if is_prepared:
            self._pending = publisher, executor.submit(publisher.publish)
        return True

    def _recover_lost(self, batch: Batch | None = None) -> bool:
        """Find batches that `main` has lost; return whether that is why a batch isn't published."""
        recovery = self._recover(batch is not None)
        self._new_primary = self._new_primary or recovery.new_primary
        for (table, channel), numbers in recovery.reopened.items():
            self._report(
                f"main has lost batches {numbers[0]} to {numbers[-1]} of {table}, channel {channel}: once more"
            )
        for (table, channel), cause in recovery.undecided.items():
            reason = f"Rewound: {table}, channel {channel}: {cause}; run `sterna ingest replay --table … --channel …`"
            self._failed[f"{table} {channel}"] = self._stopped[f"{table} {channel}"] = reason
            self._report(reason)
        return batch is not None and (batch.destination.table, batch.destination.channel) in recovery.reopened

    def _wait_for_pending(self) -> bool:
        """Wait until the pending batch is published; return whether there was one."""
        if self._pending is None:
            return False
        publisher, future = self._pending
        self._run_stage(publisher, future.result)
        self._pending = None
        return True

    def _run_stage(self, publisher: BatchPublisher, run_stage: Callable[[], BatchOutcome | None]) -> bool:
        """Run one of a batch's two stages; return whether the batch continues: it is not settled, requeued or lost."""
        batch = publisher.batch
        try:
            outcome = run_stage()
        except LeaseLost:
            pass  # another worker holds it, and does all of it
        except SternaError as error:
            self._requeue(batch, error)
        except Exception as error:
            # Unexpected, maybe by one tenant's content: it must not end the work for all tenants, each time again.
            log.exception("batch %s failed", batch.id)
            self._requeue(batch, unexpected_error(error))
        else:
            if outcome is None:
                return True
            self._record_settled(batch, outcome)
        del self._publishers[batch.id]
        publisher.close()
        return False

    def _record_settled(self, batch: Batch, outcome: BatchOutcome) -> None:
        self._failed.pop(batch.id, None)
        self._stopped.pop(batch.id, None)
        self._settled.append(outcome)
        self._on_settled(outcome)

    def _requeue(self, batch: Batch, error: SternaError) -> None:
        is_reopened = isinstance(error, Rewound) and self._recover_lost(batch)
        delay = _SHORT_WAIT_SECONDS if is_reopened else self._retry_delay(batch, error)
        self._context.queue.requeue(batch.id, self.name, f"{type(error).__name__}: {error}", delay=delay)
        # An earlier batch was requeued by this worker: it isn't worth waiting for.
        if is_reopened or (isinstance(error, OutOfTurn) and not self._failed):
            self._requeued.add(batch.id)
            return
        self._failed[batch.id] = f"{type(error).__name__}: {error}"
        if error.remedy is not Remedy.RETRY:
            self._stopped[batch.id] = self._failed[batch.id]
        self._report(
            f"batch {batch.number} of {batch.destination.table}, channel {batch.destination.channel}, waits: {error}"
        )

    def _retry_delay(self, batch: Batch, error: SternaError) -> float:
        if isinstance(error, OutOfTurn):
            return _SHORT_WAIT_SECONDS * self._rng.uniform(0.5, 1.5)
        if error.remedy is Remedy.RETRY:
            return float(min(2.0 ** min(batch.attempts, 10), _MAX_WAIT_SECONDS))
        return _STOPPED_WAIT_SECONDS
