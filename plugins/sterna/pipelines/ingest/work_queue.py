"""The tracker as a worker sees it: batches to claim, and their states, in the region's Postgres."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sterna.errors import LeaseLost, TrackerContradicts
from sterna.pipelines.ingest.counts import UPSERT_BAD_ROWS
from sterna.pipelines.ingest.heartbeat import DEAD_DAYS, Heartbeat
from sterna.pipelines.ingest.model import Batch, Upload
from sterna.pipelines.ingest.records import (
    BATCH_COLUMNS,
    UPLOAD_SELECTION,
    UPLOAD_TABLES,
    parse_batch_row,
    parse_upload_row,
)
from sterna.postgres.pool import PostgresPool

# An expired lease is still its worker's until another one claims the batch, and its name is stored.
_LEASED_BY_WORKER = "id = %s AND worker = %s AND state IN ('closed', 'staged')"


class PostgresQueue:
    """An index and a queue; whether a batch is on `main` is decided by the table.

    Each method raises DatabaseUnreachable or DatabaseRefused where the tracker doesn't answer.

    Args:
        pool: connections to the tracker's database.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    def claim(self, worker: str, lease: float) -> Batch | None:
        """Lease the oldest batch that is closed or staged and not leased; None: there is none.

        One of a table that another worker publishes to comes after all others: their commits would conflict.
        Concurrent calls get different batches. One whose lease has expired may be claimed again: its former worker gets
        `LeaseLost`.

        Args:
            worker: its name.
            lease: seconds.
        """
        query = f"""
            UPDATE sterna_ingest_batch SET worker = %(worker)s, attempts = attempts + 1,
                   leased_until = clock_timestamp() + %(lease)s
            WHERE id = (SELECT id FROM sterna_ingest_batch
                        WHERE state IN ('closed', 'staged') AND coalesce(leased_until, '-infinity') < clock_timestamp()
                        ORDER BY table_name IN (
                            SELECT table_name FROM sterna_ingest_batch
                            WHERE state IN ('closed', 'staged') AND worker NOT IN ('', %(worker)s)
                                  AND leased_until > clock_timestamp()
                        ), closed, number LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING {BATCH_COLUMNS}
        """  # noqa: S608
        rows = self._pool.fetch(query, {"worker": worker, "lease": timedelta(seconds=lease)})
        return parse_batch_row(rows[0]) if rows else None

    def renew(self, batch: str, worker: str, lease: float) -> None:
        """Renew a lease.

        Raises:
            LeaseLost: another worker holds the batch, or it is settled.
        """
        query = f"UPDATE sterna_ingest_batch SET leased_until = clock_timestamp() + %s WHERE {_LEASED_BY_WORKER}"  # noqa: S608
        self._update_leased(query, (timedelta(seconds=lease), batch, worker))

    def clear_delays(self) -> None:
        """Let requeued batches be claimed at once: what they waited for may be fixed."""
        clear_delays(self._pool)

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Record that a worker is alive, and renew the leases that no other worker has claimed since."""
        with self._pool.connection() as connection, connection.transaction():
            connection.execute(
                "INSERT INTO sterna_ingest_worker (name, host, pid) VALUES (%s, %s, %s) "
                "ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp()",
                (heartbeat.name, heartbeat.host, heartbeat.pid),
            )
            connection.execute(
                "UPDATE sterna_ingest_batch SET leased_until = clock_timestamp() + %s "
                "WHERE worker = %s AND id = ANY(%s) AND state IN ('closed', 'staged')",
                (timedelta(seconds=heartbeat.lease), heartbeat.name, list(heartbeat.batches)),
            )

    def deregister(self, worker: str) -> None:
        """Remove a worker that ends in order, and those that died long ago and hold no batch."""
        self._pool.execute(
            "DELETE FROM sterna_ingest_worker w WHERE w.name = %s OR (w.seen < clock_timestamp() - %s AND NOT EXISTS "
            "(SELECT FROM sterna_ingest_batch b WHERE b.worker = w.name AND b.state IN ('closed', 'staged')))",
            (worker, timedelta(days=DEAD_DAYS)),
        )

    def list_uploads(self, batch: str) -> Sequence[Upload]:
        """Return the uploads of a batch, in the order in which they were taken."""
        query = f"SELECT {UPLOAD_SELECTION} FROM {UPLOAD_TABLES} WHERE d.batch = %s ORDER BY d.sequence"  # noqa: S608
        return [parse_upload_row(row) for row in self._pool.fetch(query, (batch,))]

    @contextmanager
    def lock_publishing(self, table: str) -> Iterator[bool]:
        """Become the one publisher of a table in this region; False where another worker is.

        A hint, held by an advisory lock for as long as the block runs: compare-and-swap at the table is the truth.
        """
        lock_id = int.from_bytes(hashlib.sha256(f"sterna publishes {table}".encode()).digest()[:8], signed=True)
        # A lock of the session: it ends with the connection, whatever becomes of this process.
        with self._pool.connection() as connection:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (lock_id,)).fetchone()
            is_acquired = bool(row and row[0])
            try:
                yield is_acquired
            finally:
                if is_acquired and not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (lock_id,))

    def next_number(self, table: str, channel: str) -> int:
        """Return the lowest number of a channel that is not settled: the one that may be published now."""
        query = """
            SELECT coalesce(
                (SELECT min(number) FROM sterna_ingest_batch
                 WHERE table_name = %(table)s AND channel = %(channel)s AND state IN ('closed', 'staged')),
                (SELECT next FROM sterna_ingest_channel WHERE table_name = %(table)s AND channel = %(channel)s), 1)
        """
        ((number,),) = self._pool.fetch(query, {"table": table, "channel": channel})
        return int(number)

    def mark_staged(self, batch: str, worker: str, snapshot: int) -> None:
        """Record that a batch is staged.

        Raises:
            LeaseLost: another worker holds it.
        """
        query = f"UPDATE sterna_ingest_batch SET state = 'staged', snapshot = %s WHERE {_LEASED_BY_WORKER}"  # noqa: S608
        self._update_leased(query, (snapshot, batch, worker))

    def mark_published(self, batch: str, snapshot: int, commit: str, bad_rows: int = 0) -> None:
        """Record that a batch is on `main`, without so many bad rows; idempotent, and no lease is needed.

        Raises:
            TrackerContradicts: the tracker has it as rejected.
        """
        self._settle(batch, "published", "snapshot = %s, commit_hash = %s, reason = ''", (snapshot, commit), bad_rows)

    def mark_rejected(self, batch: str, reason: str) -> None:
        """Record that a batch is rejected.

        Raises:
            TrackerContradicts: the tracker has it as published.
        """
        self._settle(batch, "rejected", "reason = %s", (reason[:2000],))

    def requeue(self, batch: str, worker: str, reason: str, *, delay: float = 0.0) -> None:
        """Give up a lease: the batch may be claimed after `delay` seconds. Without the lease nothing is changed."""
        query = f"""
            UPDATE sterna_ingest_batch SET worker = '', reason = %s, leased_until = clock_timestamp() + %s
            WHERE {_LEASED_BY_WORKER}
        """  # noqa: S608
        self._pool.execute(query, (reason[:2000], timedelta(seconds=delay), batch, worker))

    def _update_leased(self, query: str, parameters: tuple[Any, ...]) -> None:
        if not self._pool.execute(query, parameters):
            raise LeaseLost(f"batch {parameters[-2]} is no longer of worker {parameters[-1]}")

    def _settle(self, batch: str, state: str, assignments: str, parameters: tuple[Any, ...], bad_rows: int = 0) -> None:
        query = f"""
            UPDATE sterna_ingest_batch SET state = %s, settled = coalesce(settled, clock_timestamp()), worker = '',
                   leased_until = NULL, {assignments}
            WHERE id = %s AND state IN ('closed', 'staged', %s)
        """  # noqa: S608
        with self._pool.connection() as connection:
            with connection.transaction():
                if bad_rows:
                    connection.execute(UPSERT_BAD_ROWS, (batch, bad_rows))
                settled = connection.execute(query, (state, *parameters, batch, state)).rowcount
            if settled:
                return
            row = connection.execute("SELECT state FROM sterna_ingest_batch WHERE id = %s", (batch,)).fetchone()
        tracked_state = f"the tracker has it as {row[0]}" if row else "the tracker has no such batch"
        raise TrackerContradicts(f"batch {batch} is {state}, and {tracked_state}")


def clear_delays(pool: PostgresPool, table_channel: tuple[str, str] | None = None) -> None:
    """Let batches that were given back be taken at once: what they waited for is settled, or may be.

    Args:
        pool: the tracker's database.
        table_channel: table and channel; None: all.

    Raises:
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    query = "UPDATE sterna_ingest_batch SET leased_until = NULL WHERE state IN ('closed', 'staged') AND worker = ''"
    pool.execute(query if table_channel is None else f"{query} AND table_name = %s AND channel = %s", table_channel)
