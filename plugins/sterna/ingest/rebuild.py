"""The tracker made anew: from what stands in the inbox, and the marks of the tables.

First the batches that were written down, since their drops must not be grouped anew; then whatever else came in. What
was acknowledged and stands in no batch's file is buffered again: it was never staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.pool import PostgresPool
from sterna.edges.stores.objects import Objects
from sterna.errors import SternaError
from sterna.ingest.batch_file import BatchFile, parse_batch, parse_drop, parse_rejected
from sterna.ingest.counts import WRITE_BAD
from sterna.ingest.gather import dead_rows, dead_uri
from sterna.ingest.model import Drop, Lane, batch_id
from sterna.ingest.places import BATCHES, DEAD_LETTERS, DROP_ENDING, REJECTED_ENDING
from sterna.ingest.records import DROP_COLUMNS, LANE, drop_row
from sterna.ingest.schema import CLOSING, prepare

if TYPE_CHECKING:
    from sterna.edges.postgres.limits import LimitedConnection

Place = tuple[str, str]
"""A table and a channel."""
# What a batch's file says goes before what the tracker had; that something is settled is never taken back.
_TAKEN_OVER = ", ".join(
    f"{name} = excluded.{name}" for name in ("partition", "files", "bytes", "rows", "closed", "closed_by", "oldest")
) + (
    ", state = CASE WHEN excluded.state = 'closed' OR sterna_ingest_batch.state IN ('published', 'rejected') "
    "THEN sterna_ingest_batch.state ELSE excluded.state END, settled = coalesce(sterna_ingest_batch.settled, "
    "excluded.settled), commit_hash = coalesce(nullif(sterna_ingest_batch.commit_hash, ''), excluded.commit_hash)"
)
_NEVER_WRITTEN = "it was never written down in the inbox, and the tracker was made anew: its drops are in other batches"
Marks = Callable[[str, str], int]
"""The number of the last batch that is on `main`, of a table and a channel; 0: none."""


@dataclass
class Found:
    """What stands in an inbox.

    Args:
        drops: by id.
        batches: that were written down.
        rejected: why and when, by the batch's id.
        dead: files of dead letters.
    """

    drops: dict[str, Drop] = field(default_factory=dict)
    batches: list[BatchFile] = field(default_factory=list)
    rejected: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rebuilt:
    """What a tracker that was made anew knows.

    Args:
        drops: all of them.
        buffered: those without a batch.
        batches: all of them, by state.
    """

    drops: int
    buffered: int
    batches: dict[str, int]


def rebuild(pool: PostgresPool, objects: Objects, inbox: str, marks: Marks, head: str = "") -> Rebuilt:
    """Make a tracker anew, or mend one that is older than the inbox: what was written down there counts.

    No batch is closed meanwhile. What comes in meanwhile is taken. No worker may be at work.

    Args:
        pool: the tracker's database; empty, or the inbox's own.
        objects: the stores.
        inbox: the region's inbox.
        marks: what is on `main`.
        head: the commit of `main` at which it is; "": unknown.

    Raises:
        BadDrop: a file of the inbox was changed.
        TrackerLost, TrackerTooNew: it is another inbox's.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: nothing is changed.
    """
    prepare(pool, objects, inbox, anew=True)
    with pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CLOSING,))
        found = read_inbox(objects, inbox)
        # The drops of a rejected batch may have come again since, in another one.
        rejected = _owners(batch for batch in found.batches if batch.id in found.rejected)
        owner = _owners(batch for batch in found.batches if batch.id not in found.rejected)
        applied = _write_channels(connection, found, marks)
        _dissolve(connection, found, owner, applied)
        states = _write_batches(connection, found, applied, head)
        _write_bad(connection, found, states, objects, inbox)
        _write_drops(connection, found, owner, rejected)
    counts = {state: sum(each == state for each in states.values()) for state in sorted(set(states.values()))}
    return Rebuilt(len(found.drops), sum(id not in owner and id not in rejected for id in found.drops), counts)


def read_inbox(objects: Objects, inbox: str) -> Found:
    """Return what stands in an inbox.

    Raises:
        BadDrop: a file was changed.
        StoreUnreachable, StoreDenied: it can't be read.
    """
    listed = [uri for uri, _, _ in objects.list(inbox)]
    uris = [uri for uri in listed if uri.endswith(DROP_ENDING) or f"/{BATCHES}/" in uri]
    found = Found(dead=frozenset(uri for uri in listed if f"/{DEAD_LETTERS}/" in uri))
    for uri, text in objects.read_many(uris):
        if isinstance(text, SternaError):
            raise text
        if uri.endswith(DROP_ENDING):
            drop = parse_drop(text, uri)
            found.drops[drop.id] = drop
        elif uri.endswith(REJECTED_ENDING):
            rejection = parse_rejected(text, uri)
            found.rejected[rejection.id] = rejection.reason, rejection.rejected
        else:
            found.batches.append(parse_batch(text, uri))
    # A batch's file says of its drops all that their own marks do.
    for batch in found.batches:
        found.drops |= {drop.id: drop for drop in batch.drops}
    return found


def _write_channels(connection: LimitedConnection, found: Found, marks: Marks) -> dict[Place, int]:
    """Write down which number is next in each channel of a table; return the marks."""
    channels: dict[Place, Lane] = {}
    for lane in [*(drop.lane for drop in found.drops.values()), *(batch.lane for batch in found.batches)]:
        channels[(lane.table, lane.channel)] = lane
    applied = {place: marks(*place) for place in channels}
    for place, lane in channels.items():
        numbers = [batch.number for batch in found.batches if (batch.lane.table, batch.lane.channel) == place]
        following = max([applied[place], *numbers]) + 1
        connection.execute(
            "INSERT INTO sterna_ingest_channel AS c (tenant, table_name, channel, next) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (table_name, channel) DO UPDATE SET next = greatest(c.next, excluded.next)",
            (lane.tenant, *place, following),
        )
        for number in set(range(applied[place] + 1, following)) - set(numbers):
            _fill(connection, lane, number)
    return applied


def _dissolve(connection: LimitedConnection, found: Found, owner: dict[str, str], applied: dict[Place, int]) -> None:
    """Take batches apart which the tracker has and the inbox contradicts: an older state of the tracker came back.

    Such a one was never written down, so never staged: its number was another batch's, or its drops are.
    """
    filed = [batch.id for batch in found.batches]
    firm = sorted(set(filed) - set(found.rejected))
    connection.execute("UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = ANY(%s)", (firm,))
    unfiled = connection.execute(
        "SELECT b.id, b.table_name, b.channel, b.number, array_agg(d.id) FROM sterna_ingest_batch b "
        "LEFT JOIN sterna_ingest_drop d ON d.batch = b.id "
        "WHERE b.state IN ('closed', 'staged') AND NOT b.id = ANY(%s) GROUP BY b.id",
        (filed,),
    ).fetchall()
    wrong = [
        row[0] for row in unfiled if row[3] <= applied.get((row[1], row[2]), 0) or any(id in owner for id in row[4])
    ]
    connection.execute("UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = ANY(%s)", (wrong,))
    connection.execute(
        "UPDATE sterna_ingest_batch SET state = 'rejected', files = 0, bytes = 0, rows = 0, reason = %s, "
        "settled = now(), worker = '', leased_until = NULL WHERE id = ANY(%s)",
        (_NEVER_WRITTEN, wrong),
    )


def _write_batches(connection: LimitedConnection, found: Found, applied: dict[Place, int], head: str) -> dict[str, str]:
    states = {}
    for batch in found.batches:
        states[batch.id] = state = _state(batch, found, applied[(batch.lane.table, batch.lane.channel)])
        _write_batch(connection, batch, state, found, head if state == "published" else "")
    return states


def _write_bad(
    connection: LimitedConnection, found: Found, states: dict[str, str], objects: Objects, inbox: str
) -> None:
    # However old they are: what was answered stood in the tracker alone.
    for batch in found.batches:
        uri = dead_uri(inbox, batch)
        if states[batch.id] == "published" and uri in found.dead:
            connection.execute(WRITE_BAD, (batch.id, dead_rows(objects, uri, batch.drops)))


def _fill(connection: LimitedConnection, lane: Lane, number: int) -> None:
    """Settle a number whose batch was lost with the tracker, before it was written down: its drops come under another.

    Without that whoever publishes in the order of numbers would wait for it for ever.
    """
    connection.execute(
        f"INSERT INTO sterna_ingest_batch (id, {LANE}, number, state, files, bytes, rows, closed, closed_by, oldest, "  # noqa: S608
        "reason, settled) VALUES (%s, %s, %s, %s, '', %s, 'rejected', 0, 0, 0, now(), 'rebuild', now(), %s, now()) "
        "ON CONFLICT (id) DO NOTHING",
        (batch_id(lane.table, lane.channel, number), lane.tenant, lane.table, lane.channel, number, _NEVER_WRITTEN),
    )


def _state(batch: BatchFile, found: Found, mark: int) -> str:
    if batch.id in found.rejected:
        return "rejected"
    # Whether one that is not published is staged the worker sees: he looks before he stages.
    return "published" if batch.number <= mark else "closed"


def _write_batch(connection: LimitedConnection, batch: BatchFile, state: str, found: Found, commit: str) -> None:
    lane, drops = batch.lane, batch.drops
    # When it was published nobody has written down; it was hardly long after it was closed.
    reason, when = found.rejected.get(batch.id, ("", batch.closed if state == "published" else None))
    sums = (len(drops), sum(drop.bytes for drop in drops), sum(drop.rows for drop in drops))
    given: tuple[Any, ...] = (
        batch.id, lane.tenant, lane.table, lane.channel, lane.partition, batch.number, state, *sums,
        batch.closed, batch.closed_by, min(drop.accepted for drop in drops), reason, when,
        commit,
    )  # fmt: skip
    connection.execute(
        f"INSERT INTO sterna_ingest_batch (id, {LANE}, number, state, files, bytes, rows, closed, closed_by, oldest, "  # noqa: S608
        f"reason, settled, commit_hash) VALUES ({', '.join(['%s'] * len(given))}) "
        f"ON CONFLICT (id) DO UPDATE SET {_TAKEN_OVER}",
        given,
    )


def _owners(batches: Iterable[BatchFile]) -> dict[str, str]:
    return {drop.id: batch.id for batch in batches for drop in batch.drops}


def _write_drops(connection: LimitedConnection, found: Found, owner: dict[str, str], rejected: dict[str, str]) -> None:
    insert = (
        f"INSERT INTO sterna_ingest_drop AS d ({DROP_COLUMNS}, taken, batch) "  # noqa: S608
        f"VALUES ({', '.join(['%s'] * (len(DROP_COLUMNS.split(', ')) + 2))}) ON CONFLICT (id) DO UPDATE "
        "SET batch = CASE WHEN %s THEN excluded.batch ELSE d.batch END"
    )
    # In the order in which they were taken: a channel's last offset is that of its last drop.
    ordered = sorted(found.drops.values(), key=lambda drop: (drop.accepted, drop.id))
    rows = [
        (*drop_row(drop), drop.accepted, owner.get(drop.id, rejected.get(drop.id)), drop.id in owner)
        for drop in ordered
    ]
    with connection.cursor() as cursor:
        cursor.executemany(insert, rows)
