"""Which drops become a batch, and when: the rules of their table, the first that is met.

Whoever closes locks the channel's row first: so its numbers have no holes, and two who close at once make no two
batches of one drop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.pool import PostgresPool
from sterna.ingest.model import Batch, Lane, batch_id
from sterna.ingest.records import BATCH, LANE, batch_of
from sterna.ingest.schema import CLOSING
from sterna.services.ingest import CloseRules

if TYPE_CHECKING:
    from sterna.edges.postgres.limits import LimitedConnection

Rules = Callable[[str], CloseRules]
"""The rules of a table."""
ASKED = "asked"
_SAME = "tenant = %s AND table_name = %s AND channel = %s AND partition = %s"


@dataclass(frozen=True)
class Waiting:
    """What waits in one lane for being closed.

    Args:
        lane: which.
        files: drops.
        bytes: of all of them.
        age: seconds since the oldest was taken.
        newest: the greatest name of a partition at this table lately.
    """

    lane: Lane
    files: int
    bytes: int
    age: float
    newest: str


def due(waiting: Waiting, rules: CloseRules) -> str:
    """Return which rule closes what waits: `files`, `bytes` or `age`; "" where none does."""
    if waiting.files >= rules.files:
        return "files"
    if waiting.bytes >= rules.bytes:
        return "bytes"
    late = waiting.lane.partition < waiting.newest and rules.late_age is not None
    return "age" if waiting.files and waiting.age >= (rules.late_age if late and rules.late_age else rules.age) else ""


def close_due(pool: PostgresPool, rules: Rules, *, table: str | None = None, asked: bool = False) -> Sequence[Batch]:
    """Close what is due, and return the batches.

    Args:
        pool: the tracker's database.
        rules: says the rules of a table.
        table: at this table alone; None: at all.
        asked: close whatever waits, due or not.

    Raises:
        DatabaseUnreachable, DatabaseRefused: as far as it came.
    """
    made: list[Batch] = []
    for waiting in waiting_lanes(pool, table):
        own = rules(waiting.lane.table)
        if not asked and not due(waiting, own):
            continue
        while (batch := _close(pool, waiting, own, asked=asked)) is not None:
            made.append(batch)
    return made


def waiting_lanes(pool: PostgresPool, table: str | None = None) -> Sequence[Waiting]:
    """Return what waits, by lane, the oldest first."""
    query = f"""
        SELECT {LANE}, count(*), sum(bytes), extract(epoch FROM clock_timestamp() - min(taken)),
               max(max(partition)) OVER (PARTITION BY tenant, table_name)
        FROM sterna_ingest_drop WHERE batch IS NULL AND (%(table)s::text IS NULL OR table_name = %(table)s)
        GROUP BY {LANE} ORDER BY min(taken)
    """  # noqa: S608
    recent = """
        SELECT table_name, max(partition) FROM sterna_ingest_batch WHERE closed > clock_timestamp() - interval '1 day'
        GROUP BY table_name
    """
    with pool.connection() as connection:
        rows = connection.execute(query, {"table": table}).fetchall()
        newest = dict(connection.execute(recent).fetchall()) if rows else {}
    return [
        Waiting(Lane(*row[:4]), row[4], int(row[5]), float(row[6]), max(row[7], newest.get(row[1], ""))) for row in rows
    ]


def _close(pool: PostgresPool, waiting: Waiting, rules: CloseRules, *, asked: bool) -> Batch | None:
    lane = waiting.lane
    with pool.connection() as connection, connection.transaction():
        free = connection.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", (CLOSING,)).fetchone()
        if free is None or not free[0]:  # the tracker is being made anew
            return None
        number = _number(connection, lane)
        found = _first(connection, lane, rules)
        rule = due(Waiting(lane, len(found.ids), found.bytes, found.age, waiting.newest), rules)
        if not found.ids or not (rule or asked):  # somebody else has closed it
            return None
        return _write(connection, lane, number, found, rule or ASKED)


@dataclass(frozen=True)
class _Found:
    ids: list[str]
    bytes: int = 0
    rows: int = 0
    age: float = 0.0
    oldest: datetime | None = None


def _number(connection: LimitedConnection, lane: Lane) -> int:
    place = (lane.table, lane.channel)
    connection.execute(
        "INSERT INTO sterna_ingest_channel (tenant, table_name, channel) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (lane.tenant, *place),
    )
    row = connection.execute(
        "SELECT next FROM sterna_ingest_channel WHERE table_name = %s AND channel = %s FOR UPDATE", place
    ).fetchone()
    assert row is not None
    return int(row[0])


def _first(connection: LimitedConnection, lane: Lane, rules: CloseRules) -> _Found:
    """Find the oldest drops of a lane, as many as one batch has: until their bytes are enough."""
    query = f"""
        SELECT id, bytes, rows, taken, extract(epoch FROM clock_timestamp() - taken)
        FROM sterna_ingest_drop WHERE {_SAME} AND batch IS NULL ORDER BY sequence LIMIT %s
    """  # noqa: S608
    given = (lane.tenant, lane.table, lane.channel, lane.partition, rules.files)
    found: list[Any] = []
    size = 0
    for row in connection.execute(query, given).fetchall():
        if size >= rules.bytes:
            break
        found.append(row)
        size += row[1]
    if not found:
        return _Found([])
    rows, ages = sum(row[2] for row in found), [float(row[4]) for row in found]
    return _Found([row[0] for row in found], size, rows, max(ages), min(row[3] for row in found))


def _write(connection: LimitedConnection, lane: Lane, number: int, found: _Found, rule: str) -> Batch:
    id = batch_id(lane.table, lane.channel, number)
    insert = f"""
        INSERT INTO sterna_ingest_batch (id, {LANE}, number, state, files, bytes, rows, closed, closed_by, oldest)
        VALUES (%s, %s, %s, %s, %s, %s, 'closed', %s, %s, %s, clock_timestamp(), %s, %s) RETURNING {BATCH}
    """  # noqa: S608
    place = (lane.tenant, lane.table, lane.channel, lane.partition)
    said = (len(found.ids), found.bytes, found.rows, rule, found.oldest)
    row = connection.execute(insert, (id, *place, number, *said)).fetchone()
    assert row is not None
    connection.execute("UPDATE sterna_ingest_drop SET batch = %s WHERE id = ANY(%s)", (id, found.ids))
    connection.execute(
        "UPDATE sterna_ingest_channel SET next = next + 1 WHERE table_name = %s AND channel = %s",
        (lane.table, lane.channel),
    )
    return batch_of(row)
