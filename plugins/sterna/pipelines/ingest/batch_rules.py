"""Which uploads become a batch, and when: the rules of their table, the first that is met.

Closing locks the channel's row first: so its numbers have no gaps, and of two concurrent closings no upload gets into
two batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sterna.config.sections.ingest import CloseRules
from sterna.pipelines.ingest.model import Batch, Destination, batch_id
from sterna.pipelines.ingest.records import BATCH_COLUMNS, DESTINATION_COLUMNS, destination_row, parse_batch_row
from sterna.pipelines.ingest.tracker_schema import CLOSE_LOCK_ID
from sterna.postgres.pool import PostgresPool

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection

RulesLookup = Callable[[str], CloseRules]
"""The rules of a table."""
CLOSED_ON_REQUEST = "asked"
_IN_DESTINATION = "tenant = %s AND table_name = %s AND channel = %s AND partition = %s"


@dataclass(frozen=True)
class PendingUploads:
    """What waits in one destination for being closed.

    Args:
        destination: which.
        files: uploads.
        bytes: of all of them.
        age: seconds since the oldest was taken.
        newest: the greatest name of a partition at this table lately.
    """

    destination: Destination
    files: int
    bytes: int
    age: float
    newest: str


def due_rule(pending: PendingUploads, rules: CloseRules) -> str:
    """Return which rule closes what waits: `files`, `bytes` or `age`; "" where none does."""
    if pending.files >= rules.files:
        return "files"
    if pending.bytes >= rules.bytes:
        return "bytes"
    is_late = pending.destination.partition < pending.newest
    max_age = rules.late_age if is_late and rules.late_age else rules.age
    return "age" if pending.files and pending.age >= max_age else ""


def close_due(
    pool: PostgresPool, rules: RulesLookup, *, table: str | None = None, force: bool = False
) -> Sequence[Batch]:
    """Close what is due, and return the batches.

    Args:
        pool: the tracker's database.
        rules: looks up a table's rules.
        table: at this table alone; None: at all.
        force: close whatever waits, due or not.

    Raises:
        DatabaseUnreachable, DatabaseRefused: batches that were closed before stay closed.
    """
    batches: list[Batch] = []
    for pending in list_pending(pool, table):
        table_rules = rules(pending.destination.table)
        if not force and not due_rule(pending, table_rules):
            continue
        while (batch := _close_batch(pool, pending, table_rules, force=force)) is not None:
            batches.append(batch)
    return batches


def list_pending(pool: PostgresPool, table: str | None = None) -> Sequence[PendingUploads]:
    """Return what waits, by destination, the oldest first."""
    query = f"""
        SELECT {DESTINATION_COLUMNS}, count(*), sum(bytes), extract(epoch FROM clock_timestamp() - min(taken)),
               max(max(partition)) OVER (PARTITION BY tenant, table_name)
        FROM sterna_ingest_drop WHERE batch IS NULL AND (%(table)s::text IS NULL OR table_name = %(table)s)
        GROUP BY {DESTINATION_COLUMNS} ORDER BY min(taken)
    """  # noqa: S608
    recent = """
        SELECT table_name, max(partition) FROM sterna_ingest_batch WHERE closed > clock_timestamp() - interval '1 day'
        GROUP BY table_name
    """
    rows = pool.fetch(query, {"table": table})
    newest = dict(pool.fetch(recent)) if rows else {}
    return [
        PendingUploads(Destination(*row[:4]), row[4], int(row[5]), float(row[6]), max(row[7], newest.get(row[1], "")))
        for row in rows
    ]


def _close_batch(pool: PostgresPool, pending: PendingUploads, rules: CloseRules, *, force: bool) -> Batch | None:
    destination = pending.destination
    with pool.connection() as connection, connection.transaction():
        lock = connection.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", (CLOSE_LOCK_ID,)).fetchone()
        if lock is None or not lock[0]:  # the tracker is being rebuilt
            return None
        number = _lock_next_number(connection, destination)
        selection = _select_oldest(connection, destination, rules)
        selected = replace(pending, files=len(selection.ids), bytes=selection.bytes, age=selection.age)
        rule = due_rule(selected, rules)
        if not selection.ids or not (rule or force):  # closed concurrently
            return None
        return _insert_batch(connection, destination, number, selection, rule or CLOSED_ON_REQUEST)


@dataclass(frozen=True)
class _Selection:
    ids: list[str]
    bytes: int = 0
    rows: int = 0
    age: float = 0.0
    oldest: datetime | None = None


def _lock_next_number(connection: LimitedConnection, destination: Destination) -> int:
    table_channel = (destination.table, destination.channel)
    connection.execute(
        "INSERT INTO sterna_ingest_channel (tenant, table_name, channel) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (destination.tenant, *table_channel),
    )
    row = connection.execute(
        "SELECT next FROM sterna_ingest_channel WHERE table_name = %s AND channel = %s FOR UPDATE", table_channel
    ).fetchone()
    assert row is not None
    return int(row[0])


def _select_oldest(connection: LimitedConnection, destination: Destination, rules: CloseRules) -> _Selection:
    """Find the oldest uploads of a destination, as many as one batch has: until their bytes are enough."""
    query = f"""
        SELECT id, bytes, rows, taken, extract(epoch FROM clock_timestamp() - taken)
        FROM sterna_ingest_drop WHERE {_IN_DESTINATION} AND batch IS NULL ORDER BY sequence LIMIT %s
    """  # noqa: S608
    parameters = (*destination_row(destination), rules.files)
    selected: list[Any] = []
    size = 0
    for row in connection.execute(query, parameters).fetchall():
        if size >= rules.bytes:
            break
        selected.append(row)
        size += row[1]
    if not selected:
        return _Selection([])
    rows, ages = sum(row[2] for row in selected), [float(row[4]) for row in selected]
    return _Selection([row[0] for row in selected], size, rows, max(ages), min(row[3] for row in selected))


def _insert_batch(
    connection: LimitedConnection, destination: Destination, number: int, selection: _Selection, rule: str
) -> Batch:
    id = batch_id(destination.table, destination.channel, number)
    insert = f"""
        INSERT INTO sterna_ingest_batch (id, {DESTINATION_COLUMNS}, number, state, files, bytes,
            rows, closed, closed_by, oldest)
        VALUES (%s, %s, %s, %s, %s, %s, 'closed', %s, %s, %s, clock_timestamp(), %s, %s) RETURNING {BATCH_COLUMNS}
    """  # noqa: S608
    totals = (len(selection.ids), selection.bytes, selection.rows, rule, selection.oldest)
    row = connection.execute(insert, (id, *destination_row(destination), number, *totals)).fetchone()
    assert row is not None
    connection.execute("UPDATE sterna_ingest_drop SET batch = %s WHERE id = ANY(%s)", (id, selection.ids))
    connection.execute(
        "UPDATE sterna_ingest_channel SET next = next + 1 WHERE table_name = %s AND channel = %s",
        (destination.table, destination.channel),
    )
    return parse_batch_row(row)
