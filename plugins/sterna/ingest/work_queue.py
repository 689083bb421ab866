"""The tracker as a worker sees it: `WorkQueue` in the region's Postgres."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sterna.edges.postgres.pool import PostgresPool
from sterna.errors import LeaseLost, TrackerContradicts
from sterna.ingest import heartbeat
from sterna.ingest.counts import WRITE_BAD
from sterna.ingest.heartbeat import Sign
from sterna.ingest.model import Batch, Drop
from sterna.ingest.records import BATCH, DROP, DROPS, batch_of, drop_of

# A lease that is over is still its worker's, until another takes the batch: that one's name stands there, then.
_HIS = "id = %s AND worker = %s AND state IN ('closed', 'staged')"


class PostgresQueue:
    """See `WorkQueue`. It raises DatabaseUnreachable and DatabaseRefused, too.

    Args:
        pool: connections to the tracker's database.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    def take(self, worker: str, lease: float, *, table: str | None = None) -> Batch | None:
        """See `WorkQueue`."""
        query = f"""
            UPDATE sterna_ingest_batch SET worker = %(worker)s, attempts = attempts + 1,
                   leased_until = clock_timestamp() + %(lease)s
            WHERE id = (SELECT id FROM sterna_ingest_batch
                        WHERE state IN ('closed', 'staged') AND coalesce(leased_until, '-infinity') < clock_timestamp()
                          AND (%(table)s::text IS NULL OR table_name = %(table)s)
                        ORDER BY closed, number LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING {BATCH}
        """  # noqa: S608
        with self._pool.connection() as connection:
            given = {"worker": worker, "lease": timedelta(seconds=lease), "table": table}
            row = connection.execute(query, given).fetchone()
        return None if row is None else batch_of(row)

    def renew(self, batch: str, worker: str, lease: float) -> None:
        """See `WorkQueue`."""
        query = f"UPDATE sterna_ingest_batch SET leased_until = clock_timestamp() + %s WHERE {_HIS}"  # noqa: S608
        self._his(query, (timedelta(seconds=lease), batch, worker))

    def release(self) -> None:
        """See `WorkQueue`."""
        due_now(self._pool)

    def beat(self, sign: Sign) -> None:
        """See `WorkQueue`."""
        heartbeat.beat(self._pool, sign)

    def leave(self, worker: str) -> None:
        """See `WorkQueue`."""
        heartbeat.leave(self._pool, worker)

    def drops_of(self, batch: str) -> Sequence[Drop]:
        """See `WorkQueue`."""
        query = f"SELECT {DROP} FROM {DROPS} WHERE d.batch = %s ORDER BY d.sequence"  # noqa: S608
        with self._pool.connection() as connection:
            return [drop_of(row) for row in connection.execute(query, (batch,)).fetchall()]

    @contextmanager
    def publishing(self, table: str) -> Iterator[bool]:
        """See `WorkQueue`."""
        number = int.from_bytes(hashlib.sha256(f"sterna publishes {table}".encode()).digest()[:8], signed=True)
        # A lock of the session: it ends with the connection, whatever becomes of this process.
        with self._pool.connection() as connection:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
            mine = bool(row and row[0])
            try:
                yield mine
            finally:
                if mine and not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (number,))

    def next_number(self, table: str, channel: str) -> int:
        """See `WorkQueue`."""
        query = """
            SELECT coalesce(
                (SELECT min(number) FROM sterna_ingest_batch
                 WHERE table_name = %(table)s AND channel = %(channel)s AND state IN ('closed', 'staged')),
                (SELECT next FROM sterna_ingest_channel WHERE table_name = %(table)s AND channel = %(channel)s), 1)
        """
        with self._pool.connection() as connection:
            row = connection.execute(query, {"table": table, "channel": channel}).fetchone()
        assert row is not None
        return int(row[0])

    def mark_staged(self, batch: str, worker: str, snapshot: int) -> None:
        """See `WorkQueue`."""
        query = f"UPDATE sterna_ingest_batch SET state = 'staged', snapshot = %s WHERE {_HIS}"  # noqa: S608
        self._his(query, (snapshot, batch, worker))

    def mark_published(self, batch: str, snapshot: int, commit: str, bad: int = 0) -> None:
        """See `WorkQueue`."""
        self._settle(batch, "published", "snapshot = %s, commit_hash = %s, reason = ''", (snapshot, commit), bad)

    def mark_rejected(self, batch: str, reason: str) -> None:
        """See `WorkQueue`."""
        self._settle(batch, "rejected", "reason = %s", (reason[:2000],))

    def give_back(self, batch: str, worker: str, reason: str, *, wait: float = 0.0) -> None:
        """See `WorkQueue`."""
        query = f"""
            UPDATE sterna_ingest_batch SET worker = '', reason = %s, leased_until = clock_timestamp() + %s WHERE {_HIS}
        """  # noqa: S608
        with self._pool.connection() as connection:
            connection.execute(query, (reason[:2000], timedelta(seconds=wait), batch, worker))

    def _his(self, query: str, given: tuple[Any, ...]) -> None:
        with self._pool.connection() as connection:
            if not connection.execute(query, given).rowcount:
                raise LeaseLost(f"batch {given[-2]} is no longer of worker {given[-1]}")

    def _settle(self, batch: str, state: str, more: str, given: tuple[Any, ...], bad: int = 0) -> None:
        query = f"""
            UPDATE sterna_ingest_batch SET state = %s, settled = coalesce(settled, clock_timestamp()), worker = '',
                   leased_until = NULL, {more}
            WHERE id = %s AND state IN ('closed', 'staged', %s)
        """  # noqa: S608
        with self._pool.connection() as connection:
            with connection.transaction():
                if bad:
                    connection.execute(WRITE_BAD, (batch, bad))
                settled = connection.execute(query, (state, *given, batch, state)).rowcount
            if settled:
                return
            row = connection.execute("SELECT state FROM sterna_ingest_batch WHERE id = %s", (batch,)).fetchone()
        known = f"the tracker has it as {row[0]}" if row else "the tracker knows no such batch"
        raise TrackerContradicts(f"batch {batch} is {state}, and {known}")


def due_now(pool: PostgresPool, place: tuple[str, str] | None = None) -> None:
    """Let batches that were given back be taken at once: what they waited for is settled, or may be.

    Args:
        pool: the tracker's database.
        place: table and channel; None: all.

    Raises:
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    query = "UPDATE sterna_ingest_batch SET leased_until = NULL WHERE state IN ('closed', 'staged') AND worker = ''"
    with pool.connection() as connection:
        if place is None:
            connection.execute(query)
        else:
            connection.execute(f"{query} AND table_name = %s AND channel = %s", place)
