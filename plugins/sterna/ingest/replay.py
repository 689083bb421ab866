"""What an operator says of batches: a rejected one comes again as a new one, or stays as it is, as dead letters do; and
one that was rolled back is put again.

The tracker is told first and the table last: whatever dies in between, saying it again goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.pool import PostgresPool
from sterna.errors import UsageError
from sterna.ingest.counts import ACCEPT
from sterna.ingest.model import Batch, Lane, State, split_channel
from sterna.ingest.near import NearCatalog
from sterna.ingest.records import BATCH, batch_of
from sterna.ingest.work_queue import due_now
from sterna.wap.decide import is_rewound, is_unplaced
from sterna.wap.model import Channel
from sterna.wap.rewind import set_mark

if TYPE_CHECKING:
    from sterna.edges.postgres.limits import LimitedConnection


@dataclass(frozen=True)
class Replayed:
    """What was, or would be, told again.

    Args:
        table: the table.
        channel: the channel.
        batches: batches that wait for a worker again.
        drops: drops that wait for being closed again.
        accepted: bad or rejected rows that stay away.
        mark: what the table's mark is now; "" where it wasn't touched.
        done: whether it was done.
    """

    table: str
    channel: str
    batches: tuple[str, ...] = ()
    drops: int = 0
    accepted: int = 0
    mark: str = ""
    done: bool = False


def replay_rejected(pool: PostgresPool, batch: str, *, act: bool) -> Replayed:
    """Let the drops of a rejected batch come again, in a new batch with a number of its own.

    Args:
        pool: the tracker's database.
        batch: the batch's id.
        act: do it; else it is only shown.

    Raises:
        UsageError: there is no such batch, or it wasn't rejected.
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    with pool.connection() as connection, connection.transaction():
        found = _locked(connection, batch)
        if found.state is not State.REJECTED:
            raise UsageError(f"batch {batch} is {found.state}: only what was rejected comes again as a new batch")
        if act:
            drops = connection.execute("UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = %s", (batch,)).rowcount
        else:
            query = "SELECT count(*) FROM sterna_ingest_drop WHERE batch = %s"
            drops = (connection.execute(query, (batch,)).fetchone() or [0])[0]
    return Replayed(found.lane.table, found.lane.channel, drops=int(drops), done=act)


def accept_batch(pool: PostgresPool, batch: str, *, act: bool) -> Replayed:
    """Let a rejected batch, or the dead letters of one that was published, stay as they are: no alarm any more.

    Args:
        pool: the tracker's database.
        batch: the batch's id.
        act: do it; else it is only shown.

    Raises:
        UsageError: there is no such batch, or nothing of it is bad.
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    with pool.connection() as connection, connection.transaction():
        found = _locked(connection, batch)
        row = connection.execute("SELECT rows FROM sterna_ingest_bad WHERE batch = %s", (batch,)).fetchone()
        bad = int(row[0]) if row else 0
        rows = found.rows if found.state is State.REJECTED else bad
        if found.state is not State.REJECTED and not bad:
            raise UsageError(f"batch {batch} is {found.state}, and none of its rows is in the dead letters")
        if act:
            connection.execute(ACCEPT, (batch,))
    return Replayed(found.lane.table, found.lane.channel, accepted=rows, done=act)


def _locked(connection: LimitedConnection, batch: str) -> Batch:
    """Return a batch that nobody else changes until the transaction ends."""
    query = f"SELECT {BATCH} FROM sterna_ingest_batch WHERE id = %s FOR UPDATE"  # noqa: S608
    row = connection.execute(query, (batch,)).fetchone()
    if row is None:
        raise UsageError(f"the tracker knows no batch {batch!r}")
    return batch_of(row)


def replay_rewound(
    pool: PostgresPool, catalog: NearCatalog, lane: Lane, to: int, *, accept: bool, act: bool
) -> Replayed:
    """Settle what a table that was rolled back, or made anew, has lost.

    Where it has lost nothing, and the property beside the mark is gone, both are set again.

    Args:
        pool: the tracker's database.
        catalog: the tables of `main`.
        lane: table and channel.
        to: the last number whose rows the table still has.
        accept: the rows behind it stay away; else they are put there again.
        act: do it; else it is only shown.

    Raises:
        UsageError: nothing contradicts the channel's mark, or the tracker has no such batch.
        TableMoved, TableGone, DatabaseUnreachable, DatabaseRefused: said again it goes on.
    """
    parts = split_channel(lane.channel)
    if parts is None:
        raise UsageError(f"{lane.channel!r} is no channel: expected <region>.<tenant>.<name>")
    channel, table = Channel(*parts), catalog.table(lane.table)
    state = table.look().state
    mark = state.properties.get(channel.mark, "")
    lost = _lost(pool, lane, to, int(mark) if mark.isdigit() else 0)
    # Where only the property beside the mark is gone, and the table has all up to the mark, that is set again.
    if not lost and not (is_unplaced(state, channel) and mark == str(to)):
        raise UsageError(f"no batch of channel {lane.channel} behind number {to} was published")
    target = (max(lost.values()) if accept and lost else to) or ""
    if act:
        known = _published(pool, lane)  # before it is told otherwise: a mark below that contradicts it
        if not accept:
            reopen(pool, (lane.table, lane.channel), _AGAIN, "number > %s", (to,))
        if mark != str(target) or is_rewound(state, channel):
            set_mark(table, channel, str(target), mark, lost=known)
        due_now(pool, (lane.table, lane.channel))
    return Replayed(lane.table, lane.channel, batches=tuple(lost), mark=str(target) if act else mark, done=act)


def _published(pool: PostgresPool, lane: Lane) -> int:
    """Return the highest number of which the tracker says that it is on `main`."""
    query = (
        "SELECT coalesce(max(number), 0) FROM sterna_ingest_batch "
        "WHERE table_name = %s AND channel = %s AND state = 'published'"
    )
    with pool.connection() as connection:
        row = connection.execute(query, (lane.table, lane.channel)).fetchone()
    return int(row[0]) if row else 0


def _lost(pool: PostgresPool, lane: Lane, to: int, mark: int) -> dict[str, int]:
    # One up to the mark that waits was published, too: the tracker wasn't told of it, or was told by this very command,
    # which died before it told the table. A worker who tried since has overwritten the reason.
    query = (
        "SELECT id, number FROM sterna_ingest_batch WHERE table_name = %s AND channel = %s AND number > %s "
        "AND (state = 'published' OR reason = %s OR (state IN ('closed', 'staged') AND number <= %s)) ORDER BY number"
    )
    given = (lane.table, lane.channel, to, _AGAIN, mark)
    with pool.connection() as connection:
        return {row[0]: int(row[1]) for row in connection.execute(query, given).fetchall()}


def reopen(pool: PostgresPool, place: tuple[str, str], reason: str, which: str, given: tuple[Any, ...]) -> None:
    """Let batches that were published wait for a worker again; which replica serves them is forgotten.

    So are their bad rows, and what an operator answered to these: they are counted anew.

    Args:
        pool: the tracker's database.
        place: table and channel.
        reason: what the tracker says of them until they are published.
        which: SQL that says which of these batches.
        given: its parameters.
    """
    query = f"""
        WITH again AS (
            UPDATE sterna_ingest_batch SET state = 'closed', settled = NULL, snapshot = NULL, commit_hash = '',
                   worker = '', leased_until = NULL, attempts = 0, reason = %s
            WHERE table_name = %s AND channel = %s AND state = 'published' AND {which} RETURNING id),
        bad AS (DELETE FROM sterna_ingest_bad USING again WHERE batch = again.id)
        DELETE FROM sterna_ingest_served USING again WHERE batch = again.id
    """  # noqa: S608 - `which` is code
    with pool.connection() as connection:
        connection.execute(query, (reason, *place, *given))


_AGAIN = "replayed: the table had lost it"
