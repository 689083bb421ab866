"""An operator's decisions on batches: a rejected one is sent again as a new one, or accepted, as are dead letters; and
one that was rolled back is published again.

The tracker is changed first and the table last: after a crash in between, the same command continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.errors import UsageError
from sterna.pipelines.ingest.counts import ACCEPT_BATCH
from sterna.pipelines.ingest.model import Batch, Destination, State, split_channel
from sterna.pipelines.ingest.records import BATCH_COLUMNS, parse_batch_row
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.work_queue import clear_delays
from sterna.pipelines.publish.decide import is_rewound, lacks_snapshot_reference
from sterna.pipelines.publish.model import Channel, position_number
from sterna.pipelines.publish.rewind import set_position
from sterna.postgres.pool import PostgresPool

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection


@dataclass(frozen=True)
class ReplayOutcome:
    """What was, or would be, replayed.

    Args:
        batches: batches that wait for a worker again.
        uploads: those that wait again for being closed.
        accepted: bad or rejected rows that stay away.
        position: the table\'s applied position now; "" where it wasn't touched.
        done: whether it was done.
    """

    table: str
    channel: str
    batches: tuple[str, ...] = ()
    uploads: int = field(default=0, metadata={"json": "drops"})
    accepted: int = 0
    position: str = field(default="", metadata={"json": "mark"})
    done: bool = False


def replay_rejected(pool: PostgresPool, batch: str, *, apply: bool) -> ReplayOutcome:
    """Buffer the uploads of a rejected batch again: they get into a new batch.

    Args:
        pool: the tracker's database.
        batch: the batch's id.
        apply: do it; else it is only shown.

    Raises:
        UsageError: there is no such batch, or it wasn't rejected.
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    with pool.connection() as connection, connection.transaction():
        locked = _lock_batch(connection, batch)
        if locked.state is not State.REJECTED:
            raise UsageError(f"batch {batch} is {locked.state}: only what was rejected comes again as a new batch")
        if apply:
            uploads = connection.execute(
                "UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = %s", (batch,)
            ).rowcount
        else:
            query = "SELECT count(*) FROM sterna_ingest_drop WHERE batch = %s"
            uploads = (connection.execute(query, (batch,)).fetchone() or [0])[0]
    return ReplayOutcome(locked.destination.table, locked.destination.channel, uploads=int(uploads), done=apply)


def accept_batch(pool: PostgresPool, batch: str, *, apply: bool) -> ReplayOutcome:
    """Acknowledge a rejected batch, or the dead letters of a published one: they raise no alarm any more.

    Args:
        pool: the tracker's database.
        batch: the batch's id.
        apply: do it; else it is only shown.

    Raises:
        UsageError: there is no such batch, or nothing of it is bad.
        DatabaseUnreachable, DatabaseRefused: nothing is changed.
    """
    with pool.connection() as connection, connection.transaction():
        locked = _lock_batch(connection, batch)
        row = connection.execute("SELECT rows FROM sterna_ingest_bad WHERE batch = %s", (batch,)).fetchone()
        bad_rows = int(row[0]) if row else 0
        rows = locked.rows if locked.state is State.REJECTED else bad_rows
        if locked.state is not State.REJECTED and not bad_rows:
            raise UsageError(f"batch {batch} is {locked.state}, and none of its rows is in the dead letters")
        if apply:
            connection.execute(ACCEPT_BATCH, (batch,))
    return ReplayOutcome(locked.destination.table, locked.destination.channel, accepted=rows, done=apply)


def _lock_batch(connection: LimitedConnection, batch: str) -> Batch:
    """Return a batch, locked until the transaction ends."""
    query = f"SELECT {BATCH_COLUMNS} FROM sterna_ingest_batch WHERE id = %s FOR UPDATE"  # noqa: S608
    row = connection.execute(query, (batch,)).fetchone()
    if row is None:
        raise UsageError(f"the tracker has no batch {batch!r}")
    return parse_batch_row(row)


def replay_rewound(
    pool: PostgresPool,
    catalog: RegionalIcebergCatalog,
    destination: Destination,
    last_kept: int,
    *,
    accept: bool,
    apply: bool,
) -> ReplayOutcome:
    """Settle what a table has lost that was rolled back, or created again.

    Where it has lost nothing, and the property beside the applied position is missing, both are set again.

    Args:
        pool: the tracker's database.
        catalog: the tables of `main`.
        destination: table and channel.
        last_kept: the last number whose rows the table still has.
        accept: the rows behind it stay away; else they are put there again.
        apply: do it; else it is only shown.

    Raises:
        UsageError: nothing contradicts the channel's applied position, or the tracker has no such batch.
        TableMoved, TableGone, DatabaseUnreachable, DatabaseRefused: the same command again continues.
    """
    parts = split_channel(destination.channel)
    if parts is None:
        raise UsageError(f"{destination.channel!r} is no channel: expected <region>.<tenant>.<name>")
    channel, table = Channel(*parts), catalog.table(destination.table)
    state = table.refresh().state
    position = state.position(channel)
    lost = _list_lost(pool, destination, last_kept, position_number(position))
    # If only the property beside the position is missing, and the table has all batches up to it, that is set again.
    if not lost and not (lacks_snapshot_reference(state, channel) and position == str(last_kept)):
        raise UsageError(f"no batch of channel {destination.channel} behind number {last_kept} was published")
    new_position = (max(lost.values()) if accept and lost else last_kept) or ""
    if apply:
        # Before the tracker is changed: a lower position contradicts it.
        last_published = _last_published(pool, destination)
        if not accept:
            reopen(pool, (destination.table, destination.channel), _REPLAYED_REASON, "number > %s", (last_kept,))
        if position != str(new_position) or is_rewound(state, channel):
            set_position(table, channel, str(new_position), position, last_published=last_published)
        clear_delays(pool, (destination.table, destination.channel))
    return ReplayOutcome(
        destination.table,
        destination.channel,
        batches=tuple(lost),
        position=str(new_position) if apply else position,
        done=apply,
    )


def _last_published(pool: PostgresPool, destination: Destination) -> int:
    """Return the highest number that is published according to the tracker."""
    query = (
        "SELECT coalesce(max(number), 0) FROM sterna_ingest_batch "
        "WHERE table_name = %s AND channel = %s AND state = 'published'"
    )
    ((number,),) = pool.fetch(query, (destination.table, destination.channel))
    return int(number)


def _list_lost(pool: PostgresPool, destination: Destination, last_kept: int, position: int) -> dict[str, int]:
    # A batch up to the position that waits was published, too: the tracker missed it, or this very command has reopened
    # it and was killed before it changed the table. A worker that tried since has overwritten the reason.
    query = (
        "SELECT id, number FROM sterna_ingest_batch WHERE table_name = %s AND channel = %s AND number > %s "
        "AND (state = 'published' OR reason = %s OR (state IN ('closed', 'staged') AND number <= %s)) ORDER BY number"
    )
    parameters = (destination.table, destination.channel, last_kept, _REPLAYED_REASON, position)
    return {id: int(number) for id, number in pool.fetch(query, parameters)}


def reopen(
    pool: PostgresPool, table_channel: tuple[str, str], reason: str, condition: str, parameters: tuple[Any, ...]
) -> None:
    """Let published batches wait for a worker again, and delete which replica serves them.

    Their bad rows and acknowledgements are deleted, too: they are counted again.

    Args:
        pool: the tracker's database.
        table_channel: table and channel.
        reason: stored with them until they are published.
        condition: SQL that selects among these batches.
    """
    query = f"""
        WITH again AS (
            UPDATE sterna_ingest_batch SET state = 'closed', settled = NULL, snapshot = NULL, commit_hash = '',
                   worker = '', leased_until = NULL, attempts = 0, reason = %s
            WHERE table_name = %s AND channel = %s AND state = 'published' AND {condition} RETURNING id),
        bad AS (DELETE FROM sterna_ingest_bad USING again WHERE batch = again.id)
        DELETE FROM sterna_ingest_served USING again WHERE batch = again.id
    """  # noqa: S608 - `which` is code
    pool.execute(query, (reason, *table_channel, *parameters))


_REPLAYED_REASON = "replayed: the table had lost it"
