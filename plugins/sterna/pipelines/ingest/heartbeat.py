"""Heartbeats of workers: they renew the leases of a worker's batches, and show which one died or hangs.

All times are the tracker's database's, so that clocks of workers don't matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sterna.concurrency.periodic import run_periodically
from sterna.errors import SternaError
from sterna.pipelines.ingest.tracker_schema import has_table
from sterna.postgres.pool import PostgresPool

log = logging.getLogger(__name__)
LEASE_SECONDS: Final = 45.0
"""Seconds for which a worker holds a batch since its last heartbeat: batches of one that died are free after that."""
BEATS_PER_LEASE: Final = 4.5
"""Heartbeats in one lease: some may be late, or fail."""
STALL_SECONDS: Final = 900.0
"""Seconds without progress after which a worker sends no more heartbeats, beside its longest step: otherwise one that
hangs would keep its batches for ever."""
DEAD_DAYS: Final = 1
"""For which a worker that died is named."""
_JOIN_SECONDS: Final = 5.0
_TABLE: Final = "sterna_ingest_worker"


@dataclass(frozen=True)
class WorkerStatus:
    """A worker by its heartbeats.

    Args:
        name: of the worker; no two have the same.
        host, pid: where it runs.
        seen: when it sent its last heartbeat.
        silent: seconds since then.
        alive: whether that is less than a lease.
        batches: which it has, each as table, channel and number.
    """

    name: str
    host: str
    pid: int
    begun: datetime
    seen: datetime
    silent: float
    alive: bool
    batches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heartbeat:
    """What a worker reports of itself.

    Args:
        name: no two have the same.
        host, pid: where it runs.
        lease: seconds for which this heartbeat counts.
        batches: those that it works on, by id. One that only the tracker counts as its own is free once its lease is
            over: the worker never received the answer to its claim.
    """

    name: str
    host: str
    pid: int
    lease: float
    batches: tuple[str, ...] = ()


@contextmanager
def heartbeating(send_heartbeat: Callable[[], object], interval: float) -> Iterator[None]:
    """Send heartbeats while the block runs, from a thread of its own; the first one before it begins.

    Args:
        send_heartbeat: sends one; where it fails, the next one is sent as usual.
        interval: seconds from one to the next.
    """

    def attempt() -> None:
        try:
            send_heartbeat()
        except SternaError as error:  # there is time for another try, or for several
            log.info("no heartbeat can be written now: %s", error)
        except Exception:
            log.exception("giving a sign of life failed")

    attempt()
    with run_periodically(attempt, interval, "sterna-ingest-heartbeat", _JOIN_SECONDS):
        yield


def list_workers(pool: PostgresPool, lease: float = LEASE_SECONDS) -> Sequence[WorkerStatus]:
    """Return the workers that live, and those that died in the last day or still have a batch; changes nothing.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    query = """
        SELECT w.name, w.host, w.pid, w.begun, w.seen, extract(epoch FROM clock_timestamp() - w.seen),
               coalesce(array_agg(b.table_name || ' ' || b.channel || ' ' || b.number ORDER BY b.closed, b.number)
                        FILTER (WHERE b.id IS NOT NULL), '{}')
        FROM sterna_ingest_worker w
        LEFT JOIN sterna_ingest_batch b ON b.worker = w.name AND b.state IN ('closed', 'staged')
        WHERE w.seen > clock_timestamp() - make_interval(days => %s) OR b.id IS NOT NULL
        GROUP BY w.name ORDER BY w.seen DESC
    """
    with pool.connection() as connection:
        # Reading creates no table: workers of an earlier sterna sent no heartbeats.
        rows = connection.execute(query, (DEAD_DAYS,)).fetchall() if has_table(connection, _TABLE) else []
    return [_parse_status(row, lease) for row in rows]


def _parse_status(row: Sequence[Any], lease: float) -> WorkerStatus:
    name, host, pid, begun, seen, silent, batches = row
    # A heartbeat may be written during the query.
    return WorkerStatus(name, host, pid, begun, seen, max(float(silent), 0.0), silent <= lease, tuple(batches))
