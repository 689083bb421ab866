"""Runs a worker for a limited time; after a promotion it continues at the new primary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from sterna.errors import SternaError
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.counts import Counts, count_states, sum_counts
from sterna.pipelines.ingest.failover_recovery import FailoverRecovery
from sterna.pipelines.ingest.heartbeat import STALL_SECONDS
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.step_context import open_step_context
from sterna.pipelines.ingest.worker import Worker, WorkerOutcome
from sterna.replication.replica.region import RegionContext


def run_worker(
    context: RegionContext,
    ingest: RegionIngest,
    on_settled: Callable[[BatchOutcome], object],
    report: Callable[[str], object],
    seconds: float | None = None,
    *,
    once: bool = False,
) -> WorkerOutcome:
    """Put closed batches on `main`, and once more those that it has lost.

    Args:
        ingest: what it takes in.
        on_settled: called with each batch that is settled.
        report: called with a line where one is given back.
        seconds: for how long to poll for more; None: for ever.
        once: only what is closed now.

    Raises:
        SternaError: as `open_step_context` and `Worker.run`.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    settled: tuple[BatchOutcome, ...] = ()
    while True:
        with context.with_new_connections() as fresh, open_step_context(fresh, ingest) as step_context:
            fresh_ingest = replace(ingest, context=fresh)
            close_batches, stall = (
                (lambda: close_due(ingest.pool, ingest.rules)),
                STALL_SECONDS + step_context.read_limits.seconds,
            )
            worker = Worker(
                step_context, on_settled, report, close_batches, FailoverRecovery(fresh_ingest), stall=stall
            )
            outcome = worker.run(None if deadline is None else max(deadline - time.monotonic(), 0.0), once=once)
        settled += outcome.done
        if not outcome.moved:
            return replace(outcome, done=settled, counts=_count_states(ingest, once=once))
        report(f"{outcome.moved} is the primary by now: the worker continues there")


def _count_states(ingest: RegionIngest, *, once: bool) -> Counts | None:
    try:
        return sum_counts(count_states(ingest.pool).values())
    except SternaError:
        if once:
            raise
        return None  # a long-running worker's outcome counts all the same; `status` shows what waits
