"""The tracker for taking uploads and for queries: an index in the region's Postgres.

It can be rebuilt from the inbox and the tables (`rebuild`), which have precedence over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sterna.errors import KeyReused
from sterna.pipelines.ingest.model import Batch, State, Upload
from sterna.pipelines.ingest.records import (
    BATCH_COLUMNS,
    INSERT_UPLOAD,
    UPLOAD_SELECTION,
    UPLOAD_TABLES,
    build_upload_row,
    parse_batch_row,
    parse_upload_row,
)
from sterna.postgres.pool import PostgresPool

_UNSETTLED = "b.state IS NULL OR b.state IN ('closed', 'staged')"


@dataclass(frozen=True)
class Usage:
    """What a tenant has taken up.

    Args:
        backlog: bytes that wait for being published.
        day: bytes of the last 24 hours.
        tables: the tables that it has written to.
        channels: the channels, each with its table.
        partitions: partitions in which something waits for being closed: table, channel and name.
    """

    backlog: int
    day: int
    tables: frozenset[str]
    channels: frozenset[tuple[str, str]] = frozenset()
    partitions: frozenset[tuple[str, str, str]] = field(default=frozenset(), metadata={"json": "lanes"})


@dataclass(frozen=True)
class ChannelState:
    """How far a producer's channel is, at one table.

    Args:
        accepted: the offset token that was taken last: it and all before are durable.
        settled: the newest one of which all before are settled, too: published, or rejected; "": none.
        uploads: how many were taken.
        next: the number of the next batch.
    """

    table: str
    accepted: str
    settled: str
    uploads: int = field(metadata={"json": "drops"})
    next: int


@dataclass(frozen=True)
class TableBacklog:
    """What waits at one table.

    Args:
        tenant, table: their names.
        buffered: uploads without a batch.
        waiting: batches that are closed or staged.
        bytes: of both.
        oldest: when the oldest upload was taken that is not published.
        age: seconds since then, by the tracker's clock.
        reason: why the oldest batch was given back last; "": it wasn't.
    """

    tenant: str
    table: str
    buffered: int
    waiting: int
    bytes: int
    oldest: datetime
    age: float
    reason: str


class Tracker:
    """The index of a region's uploads and batches.

    Args:
        pool: connections to its database.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self.pool = pool
        self._channels: set[tuple[str, str]] = set()

    def accept(self, upload: Upload) -> tuple[Upload, bool]:
        """Add an upload; return it as it is stored, and whether it is new.

        Raises:
            KeyReused: another one is stored under its key.
            DatabaseUnreachable, DatabaseRefused: it isn't written down.
        """
        with self.pool.connection() as connection:
            if (table_channel := (upload.destination.table, upload.destination.channel)) not in self._channels:
                connection.execute(
                    "INSERT INTO sterna_ingest_channel (tenant, table_name, channel) VALUES (%s, %s, %s) "
                    "ON CONFLICT DO NOTHING",
                    (upload.destination.tenant, *table_channel),
                )
                self._channels.add(table_channel)
            if connection.execute(INSERT_UPLOAD, build_upload_row(upload)).rowcount:
                return upload, True
            query = f"SELECT {UPLOAD_SELECTION} FROM {UPLOAD_TABLES} WHERE d.id = %s"  # noqa: S608
            row = connection.execute(query, (upload.id,)).fetchone()
        assert row is not None
        existing = parse_upload_row(row)
        require_same_upload(existing, upload)
        return existing, False

    def upload(self, id: str) -> Upload | None:
        """Return an upload, None where there is none."""
        rows = self.pool.fetch(f"SELECT {UPLOAD_SELECTION} FROM {UPLOAD_TABLES} WHERE d.id = %s", (id,))  # noqa: S608
        return parse_upload_row(rows[0]) if rows else None

    def batch(self, id: str) -> Batch | None:
        """Return a batch, None where there is none."""
        rows = self.pool.fetch(f"SELECT {BATCH_COLUMNS} FROM sterna_ingest_batch WHERE id = %s", (id,))  # noqa: S608
        return parse_batch_row(rows[0]) if rows else None

    def list_batches(
        self,
        tenants: Sequence[str] | None = None,
        table: str | None = None,
        state: State | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> Sequence[Batch]:
        """Return batches, the newest first.

        Args:
            tenants: of these alone; None: of all.
            table: of this table alone.
            state: in this state alone.
            since: closed then or later.
            limit: how many at most.
        """
        filters: list[tuple[str, Any]] = [
            ("tenant = ANY(%s)", None if tenants is None else list(tenants)),
            ("table_name = %s", table),
            ("state = %s", None if state is None else state.value),
            ("closed >= %s", since),
        ]
        conditions = [(clause, value) for clause, value in filters if value is not None]
        where = " AND ".join(["true", *(clause for clause, _ in conditions)])
        query = (
            f"SELECT {BATCH_COLUMNS} FROM sterna_ingest_batch WHERE {where} ORDER BY closed DESC, number DESC LIMIT %s"  # noqa: S608
        )
        return [parse_batch_row(row) for row in self.pool.fetch(query, [*(value for _, value in conditions), limit])]

    def read_usage(self, tenant: str) -> Usage:
        """Return what a tenant has taken up."""
        query = f"""
            SELECT (SELECT coalesce(sum(d.bytes), 0) FROM {UPLOAD_TABLES}
                    WHERE d.tenant = %(tenant)s AND d.batch IS NULL)
                 + (SELECT coalesce(sum(bytes), 0) FROM sterna_ingest_batch
                    WHERE tenant = %(tenant)s AND state IN ('closed', 'staged')),
                   (SELECT coalesce(sum(bytes), 0) FROM sterna_ingest_drop
                    WHERE tenant = %(tenant)s AND taken > clock_timestamp() - interval '1 day'),
                   (SELECT coalesce(json_agg(json_build_array(table_name, channel)), '[]') FROM sterna_ingest_channel
                    WHERE tenant = %(tenant)s),
                   (SELECT coalesce(json_agg(DISTINCT jsonb_build_array(table_name, channel, partition)), '[]')
                    FROM sterna_ingest_drop WHERE tenant = %(tenant)s AND batch IS NULL)
        """  # noqa: S608
        (row,) = self.pool.fetch(query, {"tenant": tenant})
        channels = frozenset((table, channel) for table, channel in row[2])
        partitions = frozenset((table, channel, partition) for table, channel, partition in row[3])
        return Usage(int(row[0]), int(row[1]), frozenset(table for table, _ in channels), channels, partitions)

    def list_channel_states(self, channel: str) -> Sequence[ChannelState]:
        """Return how far a channel is, at each table that it leads to."""
        query = f"""
            SELECT c.table_name, c.next,
              (SELECT count(*) FROM sterna_ingest_drop d WHERE d.channel = c.channel AND d.table_name = c.table_name),
              coalesce((SELECT token FROM sterna_ingest_drop d WHERE d.channel = c.channel
                AND d.table_name = c.table_name AND token <> '' ORDER BY sequence DESC LIMIT 1), ''),
              coalesce((SELECT token FROM sterna_ingest_drop d WHERE d.channel = c.channel
                AND d.table_name = c.table_name AND token <> ''
                AND sequence < coalesce((SELECT min(sequence) FROM {UPLOAD_TABLES} WHERE d.channel = c.channel
                  AND d.table_name = c.table_name AND ({_UNSETTLED})), 9223372036854775807)
                ORDER BY sequence DESC LIMIT 1), '')
            FROM sterna_ingest_channel c WHERE c.channel = %s ORDER BY c.table_name
        """  # noqa: S608
        return [ChannelState(row[0], row[3], row[4], row[2], row[1]) for row in self.pool.fetch(query, (channel,))]

    def last_offset(self, table: str, channel: str, prefix: str = "") -> str:
        """Return the offset token that a channel of a table was taken with last; "": none.

        Args:
            prefix: what the token begins with.
        """
        query = """
            SELECT token FROM sterna_ingest_drop
            WHERE table_name = %s AND channel = %s AND token <> '' AND starts_with(token, %s)
            ORDER BY sequence DESC LIMIT 1
        """
        rows = self.pool.fetch(query, (table, channel, prefix))
        return str(rows[0][0]) if rows else ""

    def list_backlog(self) -> Sequence[TableBacklog]:
        """Return what waits at each table where something does, the oldest first."""
        query = """
            SELECT tenant, table_name, sum(drops), sum(batches), sum(bytes), min(oldest),
                   extract(epoch FROM clock_timestamp() - min(oldest)),
                   coalesce((array_agg(reason ORDER BY oldest) FILTER (WHERE reason <> ''))[1], '')
            FROM (SELECT tenant, table_name, 1 AS drops, 0 AS batches, bytes, taken AS oldest, '' AS reason
                  FROM sterna_ingest_drop WHERE batch IS NULL
                  UNION ALL
                  SELECT tenant, table_name, 0, 1, bytes, oldest, reason
                  FROM sterna_ingest_batch WHERE state IN ('closed', 'staged')) waiting
            GROUP BY tenant, table_name ORDER BY min(oldest), table_name
        """
        return [
            TableBacklog(row[0], row[1], int(row[2]), int(row[3]), int(row[4]), row[5], max(float(row[6]), 0.0), row[7])
            for row in self.pool.fetch(query)
        ]

    def close(self) -> None:
        """Close its connections."""
        self.pool.close()


def require_same_upload(existing: Upload, upload: Upload) -> None:
    """See that an upload is the one that is stored under its key already.

    Raises:
        KeyReused: it has other content, or goes elsewhere.
    """
    for attribute, sent, stored in (
        ("content", upload.digest, existing.digest),
        ("format", upload.format, existing.format),
        ("partition", upload.destination.partition, existing.destination.partition),
        ("offset", upload.offset, existing.offset),
    ):
        if sent != stored:
            raise KeyReused(f"the same key was used for another {attribute} before", table=upload.destination.table)
