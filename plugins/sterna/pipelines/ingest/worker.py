"""A worker: takes closed batches, one after another, until there are none, or for a while.

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

from sterna.errors import EngineError, LeaseLost, OutOfTurn, Remedy, Rewound, SternaError
from sterna.pipelines.ingest.batch_publisher import BatchOutcome, BatchPublisher, StepContext
from sterna.pipelines.ingest.counts import Counts
from sterna.pipelines.ingest.failover_recovery import Recovery
from sterna.pipelines.ingest.heartbeat import BEATS_PER_LEASE, LEASE_SECONDS, STALL_SECONDS, Heartbeat, heartbeating
from sterna.pipelines.ingest.model import Batch

log = logging.getLogger(__name__)
_SHORT_WAIT_SECONDS = 0.3
_MAX_WAIT_SECONDS = 60.0  # seconds between two tries of what time may cure
_STOPPED_WAIT_SECONDS = 300.0  # of what waits for somebody, who says `sterna ingest run --once` when it is mended
_IDLE_SECONDS = 0.5
_ONCE_SECONDS = 600.0


@dataclass(frozen=True)
class WorkerOutcome:
    """What a worker has done.

    Args:
        done: batches that he settled.
        failed: batches that he gave back, by id, and why.
        stopped: why of those that wait for somebody.
        counts: what is in which state, whoever gave it back or has it; None: it wasn't counted.
        moved: the region that is the primary by now, where that is why he ended; "": it isn't.
    """

    done: tuple[BatchOutcome, ...]
    failed: dict[str, str]
    stopped: tuple[str, ...] = ()
    moved: str = ""
    counts: Counts | None = None


class Worker:
    """Works off batches in one region.

    Args:
        step_context: where he works.
        on_settled: called with each batch that he settled.
        report: called with a line where one is given back.
        close_due: closes batches that are due; called before each look.
        recover: looks for what `main` has lost, when it is time to; True: at once.
        sleep: waits.
        clock: seconds.
        lease: seconds for which he has a batch since his last sign of life.
        stall: seconds since his last step forward after which he gives no more signs, for longer than any step takes.
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
        """Work off what is closed.

        Args:
            seconds: for how long to look for more; None: for ever.
            once: only what is closed now, also what was given back and would be taken later; and what waits for that
                to be published.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker doesn't answer; a worker that lingers waits for it.
        """
        deadline = self._clock() + (_ONCE_SECONDS if once else float("inf") if seconds is None else seconds)
        queue = self._context.queue
        if once:
            queue.clear_delays()
        try:
            with heartbeating(self.send_heartbeat, self._lease / BEATS_PER_LEASE):
                self._run_until(deadline, once=once)
        except BaseException:
            # Whatever ends this process: the next worker needn't wait for the lease.
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
        """Note a step forward: in taking batches, or on one of them."""
        self._last_progress = self._clock()

    def send_heartbeat(self) -> None:
        """Give a sign of life, unless nothing gets on: then others take the batches, and this worker counts as dead."""
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
        """Look for what `main` has lost; say whether that is why a batch isn't published."""
        recovery = self._recover(batch is not None)
        self._new_primary = self._new_primary or recovery.new_primary
        for (table, channel), numbers in recovery.reopened.items():
            self._report(
                f"main has lost batches {numbers[0]} to {numbers[-1]} of {table}, channel {channel}: once more"
            )
        for (table, channel), cause in recovery.undecided.items():
            reason = f"Rewound: {table}, channel {channel}: {cause}; say `sterna ingest replay --table … --channel …`"
            self._failed[f"{table} {channel}"] = self._stopped[f"{table} {channel}"] = reason
            self._report(reason)
        return batch is not None and (batch.lane.table, batch.lane.channel) in recovery.reopened

    def _wait_for_pending(self) -> bool:
        """Wait until the batch that is being published is; say whether there was one."""
        if self._pending is None:
            return False
        publisher, future = self._pending
        self._run_stage(publisher, future.result)
        self._pending = None
        return True

    def _run_stage(self, publisher: BatchPublisher, run_stage: Callable[[], BatchOutcome | None]) -> bool:
        """Do half of the work on a batch; say whether it goes on: it is not settled, given back, or somebody else's."""
        batch = publisher.batch
        try:
            outcome = run_stage()
        except LeaseLost:
            pass  # somebody else has it, and does all of it
        except SternaError as error:
            self._requeue(batch, error)
        except Exception as error:
            # Nobody foresaw it, and it may be what one tenant sent: it must not end the work for all, each time anew.
            log.exception("batch %s failed", batch.id)
            self._requeue(batch, EngineError(f"nobody foresaw this: {type(error).__name__}; the log has more"))
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
        # What comes before it was given back by this worker: it isn't worth waiting for.
        if is_reopened or (isinstance(error, OutOfTurn) and not self._failed):
            self._requeued.add(batch.id)
            return
        self._failed[batch.id] = f"{type(error).__name__}: {error}"
        if error.remedy is not Remedy.RETRY:
            self._stopped[batch.id] = self._failed[batch.id]
        self._report(f"batch {batch.number} of {batch.lane.table}, channel {batch.lane.channel}, waits: {error}")

    def _retry_delay(self, batch: Batch, error: SternaError) -> float:
        if isinstance(error, OutOfTurn):
            return _SHORT_WAIT_SECONDS * self._rng.uniform(0.5, 1.5)
        if error.remedy is Remedy.RETRY:
            return float(min(2.0 ** min(batch.attempts, 10), _MAX_WAIT_SECONDS))
        return _STOPPED_WAIT_SECONDS
