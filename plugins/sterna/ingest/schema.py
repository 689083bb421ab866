"""The tracker's tables: made at first use, and never mistaken for others.

A tracker that was lost must not begin anew by itself: its numbers would begin at 1 again, and what the table's mark
takes for published would never be. So the inbox and the tracker know one another by an id.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from sterna.edges.postgres.pool import PostgresPool
from sterna.edges.stores.objects import Objects
from sterna.errors import ObjectMissing, TrackerLost, TrackerTooNew

if TYPE_CHECKING:
    from sterna.edges.postgres.limits import LimitedConnection

VERSION = 1
MAKING = 0x73746E61_0001  # advisory locks: who makes the tables,
CLOSING = 0x73746E61_0002  # and who closes batches (shared), or makes the tracker anew (alone)
_TABLES = """
CREATE TABLE sterna_ingest_version (version int NOT NULL, tracker text NOT NULL);
CREATE TABLE sterna_ingest_channel (
    tenant text NOT NULL, table_name text NOT NULL, channel text NOT NULL, next bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (table_name, channel)
);
CREATE TABLE sterna_ingest_batch (
    id text PRIMARY KEY,
    tenant text NOT NULL, table_name text NOT NULL, channel text NOT NULL, partition text NOT NULL,
    number bigint NOT NULL, state text NOT NULL CHECK (state IN ('closed', 'staged', 'published', 'rejected')),
    files int NOT NULL, bytes bigint NOT NULL, rows bigint NOT NULL,
    closed timestamptz NOT NULL, closed_by text NOT NULL, oldest timestamptz NOT NULL,
    snapshot bigint, commit_hash text NOT NULL DEFAULT '', reason text NOT NULL DEFAULT '',
    attempts int NOT NULL DEFAULT 0, settled timestamptz,
    worker text NOT NULL DEFAULT '', leased_until timestamptz,
    UNIQUE (table_name, channel, number)
);
CREATE INDEX ON sterna_ingest_batch (closed, number) WHERE state IN ('closed', 'staged');
CREATE INDEX ON sterna_ingest_batch (tenant, closed);
CREATE TABLE sterna_ingest_drop (
    id text PRIMARY KEY, sequence bigserial UNIQUE,
    tenant text NOT NULL, table_name text NOT NULL, channel text NOT NULL, partition text NOT NULL,
    key text NOT NULL, token text NOT NULL, format text NOT NULL, bytes bigint NOT NULL, rows bigint NOT NULL,
    digest text NOT NULL, uri text NOT NULL, accepted timestamptz NOT NULL,
    taken timestamptz NOT NULL DEFAULT clock_timestamp(), batch text REFERENCES sterna_ingest_batch (id)
);
CREATE INDEX ON sterna_ingest_drop (tenant, table_name, channel, partition, sequence) WHERE batch IS NULL;
CREATE INDEX ON sterna_ingest_drop (batch, sequence);
CREATE INDEX ON sterna_ingest_drop (channel, table_name, sequence);
CREATE INDEX ON sterna_ingest_drop (tenant, taken) INCLUDE (bytes);
CREATE TABLE sterna_ingest_served (
    batch text NOT NULL, region text NOT NULL, since timestamptz NOT NULL,
    PRIMARY KEY (batch, region)
);
"""
# What an earlier sterna didn't make: up to which commit of `main` settled batches were looked for.
_LATER = """
CREATE TABLE sterna_ingest_seen (
    one int PRIMARY KEY CHECK (one = 1), hash text NOT NULL, at timestamptz NOT NULL
);
CREATE INDEX ON sterna_ingest_batch (settled);
"""


def marker_uri(inbox: str) -> str:
    """Return where an inbox says which tracker has its index."""
    return f"{inbox}/_tracker.json"


def prepare(pool: PostgresPool, objects: Objects, inbox: str, *, anew: bool = False) -> None:
    """See that the tracker's tables are there and are this inbox's; make them where both are new.

    Args:
        pool: the tracker's database.
        objects: the stores.
        inbox: the region's inbox.
        anew: whoever calls fills the tables from the inbox; so they may be made for one that is in use.

    Raises:
        TrackerLost: the inbox is in use, and this is not its tracker.
        TrackerTooNew: a newer sterna made the tables.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: they can't be seen to.
    """
    with pool.connection() as connection:
        found = _found(connection)
    if found is None:
        found = _make(pool, objects, inbox, anew=anew)
    if found != _known(objects, inbox):
        raise _lost(pool, inbox)
    _add_later(pool)


def is_begun(pool: PostgresPool, objects: Objects, inbox: str) -> bool:
    """Tell whether anything came in yet; changes nothing.

    Args:
        pool: the tracker's database.
        objects: the stores.
        inbox: the region's inbox.

    Raises:
        TrackerLost, TrackerTooNew, DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: as `prepare`.
    """
    with pool.connection() as connection:
        found = _found(connection)
    if (found or "") != _known(objects, inbox):
        raise _lost(pool, inbox)
    return found is not None


def _make(pool: PostgresPool, objects: Objects, inbox: str, *, anew: bool) -> str:
    with pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
        if (found := _found(connection)) is not None:
            return found
        known = _known(objects, inbox)
        if known and not anew and _is_used(objects, inbox):
            raise _lost(pool, inbox)
        tracker = known or secrets.token_hex(16)
        connection.execute(_TABLES)
        connection.execute("INSERT INTO sterna_ingest_version VALUES (%s, %s)", (VERSION, tracker))
        # Within the transaction: without the marker there are no tables.
        text = json.dumps({"version": VERSION, "tracker": tracker}).encode()
        objects.write_new(marker_uri(inbox), text)
    return tracker


def _add_later(pool: PostgresPool) -> None:
    with pool.connection() as connection:
        if _has(connection, "sterna_ingest_seen"):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
            if not _has(connection, "sterna_ingest_seen"):
                connection.execute(_LATER)


def _is_used(objects: Objects, inbox: str) -> bool:
    # A marker alone: whoever made the tracker died before it was there.
    return any(uri != marker_uri(inbox) for uri, _, _ in objects.list(inbox))


def _found(connection: LimitedConnection) -> str | None:
    if not _has(connection, "sterna_ingest_version"):
        return None
    row = connection.execute("SELECT version, tracker FROM sterna_ingest_version").fetchone()
    if row is None:
        return None
    if row[0] != VERSION:
        raise TrackerTooNew(f"the tracker's tables are of version {row[0]}, and this sterna knows {VERSION}")
    return str(row[1])


def _has(connection: LimitedConnection, table: str) -> bool:
    # Not by `to_regclass`: within a transaction it goes by what this connection has heard of, which may be outdated.
    query = "SELECT FROM pg_catalog.pg_tables WHERE tablename = %s AND schemaname = ANY(current_schemas(false))"
    return connection.execute(query, (table,)).fetchone() is not None


def _known(objects: Objects, inbox: str) -> str:
    try:
        text = objects.read(marker_uri(inbox), limit=10_000)
    except ObjectMissing:
        return ""
    try:
        return str(json.loads(text)["tracker"])
    except (ValueError, KeyError, TypeError):
        return "unknown"


def _lost(pool: PostgresPool, inbox: str) -> TrackerLost:
    return TrackerLost(
        f"{pool.database} is not the tracker of the inbox {inbox}, which is in use: its batches would be numbered anew",
        hint="sterna ingest rebuild makes the tracker anew from the inbox; the database has to be empty for that",
    )
