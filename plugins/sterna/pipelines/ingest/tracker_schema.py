"""The tracker's tables: created at first use, and never mistaken for others.

A lost tracker must not be created again by itself: its numbers would begin at 1, and batches up to the table's applied
position would count as published and never be. So the inbox and the tracker share an id.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sterna.codec import TEXT, Document, Field, MalformedRecord, Record, UnknownFields
from sterna.errors import ObjectMissing, TrackerLost, TrackerTooNew
from sterna.pipelines.ingest.layout import is_managed
from sterna.postgres.pool import PostgresPool
from sterna.storage.objects import Objects

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection

VERSION = 1
CREATE_LOCK_ID = 0x73746E61_0001  # advisory locks: for creating the tables,
CLOSE_LOCK_ID = 0x73746E61_0002  # and for closing batches (shared), or rebuilding the tracker (exclusive)


@dataclass(frozen=True)
class TrackerTable:
    """A table of the tracker.

    Args:
        columns: by name, the type and its constraints.
        constraints: of the table as a whole.
        indexes: what follows the table's name in their statements.
        is_optional: the first version of sterna with a tracker didn't make it, so it may be missing.
    """

    name: str
    columns: Mapping[str, str]
    constraints: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    is_optional: bool = False

    @property
    def statements(self) -> Iterator[str]:
        """The statements that make it."""
        columns = (f"{name} {sql_type}" for name, sql_type in self.columns.items())
        yield f"CREATE TABLE {self.name} ({', '.join([*columns, *self.constraints])})"
        for index in self.indexes:
            yield f"CREATE INDEX ON {self.name} {index}"


_TEXT, _NUMBER, _TIME = "text NOT NULL", "bigint NOT NULL", "timestamptz NOT NULL"
_NOW = "timestamptz NOT NULL DEFAULT clock_timestamp()"
_DESTINATION = {"tenant": _TEXT, "table_name": _TEXT, "channel": _TEXT, "partition": _TEXT}
TABLES: Final = (
    TrackerTable("sterna_ingest_version", {"version": "int NOT NULL", "tracker": _TEXT}),
    TrackerTable(
        "sterna_ingest_channel",
        {"tenant": _TEXT, "table_name": _TEXT, "channel": _TEXT, "next": "bigint NOT NULL DEFAULT 1"},
        ("PRIMARY KEY (table_name, channel)",),
    ),
    TrackerTable(
        "sterna_ingest_batch",
        {
            "id": "text PRIMARY KEY",
            **_DESTINATION,
            "number": _NUMBER,
            "state": "text NOT NULL CHECK (state IN ('closed', 'staged', 'published', 'rejected'))",
            "files": "int NOT NULL",
            "bytes": _NUMBER,
            "rows": _NUMBER,
            "closed": _TIME,
            "closed_by": _TEXT,
            "oldest": _TIME,
            "snapshot": "bigint",
            "commit_hash": "text NOT NULL DEFAULT ''",
            "reason": "text NOT NULL DEFAULT ''",
            "attempts": "int NOT NULL DEFAULT 0",
            "settled": "timestamptz",
            "worker": "text NOT NULL DEFAULT ''",
            "leased_until": "timestamptz",
        },
        ("UNIQUE (table_name, channel, number)",),
        ("(closed, number) WHERE state IN ('closed', 'staged')", "(tenant, closed)"),
    ),
    TrackerTable(
        "sterna_ingest_drop",
        {
            "id": "text PRIMARY KEY",
            "sequence": "bigserial UNIQUE",
            **_DESTINATION,
            "key": _TEXT,
            "token": _TEXT,
            "format": _TEXT,
            "bytes": _NUMBER,
            "rows": _NUMBER,
            "digest": _TEXT,
            "uri": _TEXT,
            "accepted": _TIME,
            "taken": _NOW,
            "batch": "text REFERENCES sterna_ingest_batch (id)",
        },
        indexes=(
            "(tenant, table_name, channel, partition, sequence) WHERE batch IS NULL",
            "(batch, sequence)",
            "(channel, table_name, sequence)",
            "(tenant, taken) INCLUDE (bytes)",
        ),
    ),
    TrackerTable(
        "sterna_ingest_served", {"batch": _TEXT, "region": _TEXT, "since": _TIME}, ("PRIMARY KEY (batch, region)",)
    ),
    # Up to which commit of `main` settled batches were checked.
    TrackerTable(
        "sterna_ingest_seen",
        {"one": "int PRIMARY KEY CHECK (one = 1)", "hash": _TEXT, "at": _TIME},
        is_optional=True,
    ),
    # Batches with rows in the dead letters, and batches that an operator has acknowledged.
    TrackerTable(
        "sterna_ingest_bad",
        {"batch": "text PRIMARY KEY", "rows": _NUMBER, "accepted": "timestamptz"},
        is_optional=True,
    ),
    # Workers that live, and those that died in the last day.
    TrackerTable(
        "sterna_ingest_worker",
        {"name": "text PRIMARY KEY", "host": _TEXT, "pid": "int NOT NULL", "begun": _NOW, "seen": _NOW},
        is_optional=True,
    ),
)
"""A column that an older sterna may leave out of account is added to a table. One that it must understand takes another
`VERSION`."""
_OPTIONAL_INDEXES = {"sterna_ingest_seen": "CREATE INDEX ON sterna_ingest_batch (settled)"}
# By name: a tracker that has all tables may lack them. Unacknowledged batches are listed at any age.
_NAMED_INDEXES = {
    "sterna_ingest_batch_rejected": "sterna_ingest_batch (settled) WHERE state = 'rejected'",
    "sterna_ingest_bad_open": "sterna_ingest_bad (batch) WHERE accepted IS NULL AND rows > 0",
}


@dataclass(frozen=True)
class Marker:
    """Which tracker has an inbox's index, as the inbox records it.

    Args:
        tracker: the tracker's id, which is in its table `sterna_ingest_version`, too.
    """

    tracker: str


MARKER: Final = Record(Marker, (Field("tracker", TEXT),), UnknownFields.IGNORE)
MARKER_FILE: Final = Document(MARKER, VERSION, spaced=True, sorted=False, ends_with_newline=False)


def marker_uri(inbox: str) -> str:
    """Return the URI of an inbox's marker, which names its tracker."""
    return f"{inbox}/_tracker.json"


def prepare(pool: PostgresPool, objects: Objects, inbox: str, *, allow_used: bool = False) -> None:
    """See that the tracker's tables are there and are this inbox's; make them where both are new.

    Args:
        pool: the tracker's database.
        inbox: the region's inbox.
        allow_used: create the tables for an inbox in use, too: the caller fills them from it.

    Raises:
        TrackerLost: the inbox is in use, and this is not its tracker.
        TrackerTooNew: a newer sterna made the tables.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: they can't be seen to.
    """
    with pool.connection() as connection:
        tracker_id = _read_tracker_id(connection)
    if tracker_id is None:
        tracker_id = _create_tables(pool, objects, inbox, allow_used=allow_used)
    if tracker_id != _read_marker_id(objects, inbox):
        raise _tracker_lost(pool, inbox)
    _create_missing(pool)


def is_initialized(pool: PostgresPool, objects: Objects, inbox: str) -> bool:
    """Return whether any upload was accepted yet; changes nothing.

    Args:
        pool: the tracker's database.
        inbox: the region's inbox.

    Raises:
        TrackerLost, TrackerTooNew, DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: as `prepare`.
    """
    with pool.connection() as connection:
        tracker_id = _read_tracker_id(connection)
    marker_id = _read_marker_id(objects, inbox)
    if (tracker_id or "") != marker_id or (tracker_id is None and _is_used(objects, inbox, has_marker=False)):
        raise _tracker_lost(pool, inbox)
    return tracker_id is not None


def _create_tables(pool: PostgresPool, objects: Objects, inbox: str, *, allow_used: bool) -> str:
    with pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK_ID,))
        if (tracker_id := _read_tracker_id(connection)) is not None:
            return tracker_id
        marker_id = _read_marker_id(objects, inbox)
        if not allow_used and _is_used(objects, inbox, has_marker=bool(marker_id)):
            raise _tracker_lost(pool, inbox)
        tracker = marker_id or secrets.token_hex(16)
        for table in TABLES:
            if not table.is_optional:
                _create_table(connection, table)
        connection.execute("INSERT INTO sterna_ingest_version (version, tracker) VALUES (%s, %s)", (VERSION, tracker))
        # Within the transaction: without the marker there are no tables.
        objects.write_new(marker_uri(inbox), MARKER_FILE.dumps(Marker(tracker)))
    return tracker


def _create_missing(pool: PostgresPool) -> None:
    with pool.connection() as connection:
        if not _missing_tables(connection) and not _missing_indexes(connection):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK_ID,))
            for table in _missing_tables(connection):
                _create_table(connection, table)
                if table.name in _OPTIONAL_INDEXES:
                    connection.execute(_OPTIONAL_INDEXES[table.name])
            for name in _missing_indexes(connection):
                connection.execute(f"CREATE INDEX {name} ON {_NAMED_INDEXES[name]}")


def _missing_tables(connection: LimitedConnection) -> list[TrackerTable]:
    return [table for table in TABLES if table.is_optional and not has_table(connection, table.name)]


def _missing_indexes(connection: LimitedConnection) -> list[str]:
    query = "SELECT indexname FROM pg_catalog.pg_indexes WHERE schemaname = ANY(current_schemas(false))"
    present = {row[0] for row in connection.execute(query).fetchall()}
    return [name for name in _NAMED_INDEXES if name not in present]


def _create_table(connection: LimitedConnection, table: TrackerTable) -> None:
    for statement in table.statements:
        connection.execute(statement)


def _is_used(objects: Objects, inbox: str, *, has_marker: bool) -> bool:
    # A marker alone: creating the tracker was interrupted. Without a marker, other objects of the folder don't count;
    # acknowledged uploads do: with a new tracker, a key that is sent again would add its rows twice.
    marker = marker_uri(inbox)
    return any(uri != marker and (has_marker or is_managed(uri)) for uri, _, _ in objects.list(inbox))


def _read_tracker_id(connection: LimitedConnection) -> str | None:
    if not has_table(connection, "sterna_ingest_version"):
        return None
    row = connection.execute("SELECT version, tracker FROM sterna_ingest_version").fetchone()
    if row is None:
        return None
    if row[0] != VERSION:
        raise TrackerTooNew(f"the tracker's tables are of version {row[0]}, and this sterna supports {VERSION}")
    return str(row[1])


def has_table(connection: LimitedConnection, table: str) -> bool:
    """Return whether the tracker's database has a table."""
    # Not by `to_regclass`: within a transaction it goes by what this connection has heard of, which may be outdated.
    query = "SELECT FROM pg_catalog.pg_tables WHERE tablename = %s AND schemaname = ANY(current_schemas(false))"
    return connection.execute(query, (table,)).fetchone() is not None


def _read_marker_id(objects: Objects, inbox: str) -> str:
    try:
        text = objects.read(marker_uri(inbox), limit=10_000)
    except ObjectMissing:
        return ""
    try:
        return MARKER_FILE.loads(text).tracker
    except MalformedRecord:
        return "unknown"


def _tracker_lost(pool: PostgresPool, inbox: str) -> TrackerLost:
    return TrackerLost(
        f"{pool.database} is not the tracker of the inbox {inbox}, which is in use: its batches would be "
        "numbered from 1 again",
        hint="sterna ingest rebuild recreates the tracker from the inbox; the database has to be empty for that",
    )
