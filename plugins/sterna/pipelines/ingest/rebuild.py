"""The tracker rebuilt from the inbox, and the tables' applied positions.

First the batches that have a file, since their uploads must not be grouped differently; then all other uploads. An
upload that was acknowledged and is in no batch's file is buffered again: it was never staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sterna.errors import SternaError
from sterna.pipelines.ingest.batch_file import BatchFile, parse_batch, parse_rejection, parse_upload
from sterna.pipelines.ingest.counts import UPSERT_BAD_ROWS
from sterna.pipelines.ingest.fetch import count_dead_rows, dead_letters_uri
from sterna.pipelines.ingest.layout import BATCHES_FOLDER, DEAD_LETTERS_FOLDER, REJECTED_SUFFIX, UPLOAD_SUFFIX
from sterna.pipelines.ingest.model import Destination, TableChannel, Upload, batch_id
from sterna.pipelines.ingest.records import DESTINATION_COLUMNS, UPLOAD_COLUMNS, build_upload_row, destination_row
from sterna.pipelines.ingest.tracker_schema import CLOSE_LOCK_ID, prepare
from sterna.postgres.pool import PostgresPool
from sterna.storage.objects import Objects

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection

# A batch's file takes precedence over the tracker's row; a settled batch stays settled.
_CONFLICT_UPDATE = ", ".join(
    f"{name} = excluded.{name}" for name in ("partition", "files", "bytes", "rows", "closed", "closed_by", "oldest")
) + (
    ", state = CASE WHEN excluded.state = 'closed' OR sterna_ingest_batch.state IN ('published', 'rejected') "
    "THEN sterna_ingest_batch.state ELSE excluded.state END, settled = coalesce(sterna_ingest_batch.settled, "
    "excluded.settled), commit_hash = coalesce(nullif(sterna_ingest_batch.commit_hash, ''), excluded.commit_hash)"
)
_NEVER_WRITTEN_REASON = (
    "it was never written down in the inbox, and the tracker was made anew: its uploads are in other batches"
)
PositionReader = Callable[[str, str], int]
"""The number of the last batch that is on `main`, of a table and a channel; 0: none."""


@dataclass
class InboxContents:
    """The content of an inbox.

    Args:
        uploads: by id.
        batches: that were written down.
        rejected: why and when, by the batch's id.
        dead: files of dead letters.
    """

    uploads: dict[str, Upload] = field(default_factory=dict)
    batches: list[BatchFile] = field(default_factory=list)
    rejected: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RebuildOutcome:
    """What a rebuilt tracker has.

    Args:
        uploads: all of them.
        buffered: those without a batch.
        batches: all of them, by state.
    """

    uploads: int = field(metadata={"json": "drops"})
    buffered: int
    batches: dict[str, int]


def rebuild(
    pool: PostgresPool, objects: Objects, inbox: str, read_position: PositionReader, head: str = ""
) -> RebuildOutcome:
    """Rebuild a tracker, or repair one that is older than the inbox, which takes precedence.

    No batch is closed meanwhile. What comes in meanwhile is taken. No worker may be at work.

    Args:
        pool: the tracker's database; empty, or the inbox's own.
        inbox: the region's inbox.
        read_position: what is on `main`.
        head: the commit of `main` at which it is; "": unknown.

    Raises:
        BadDrop: a file of the inbox was changed.
        TrackerLost, TrackerTooNew: it is another inbox's.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: nothing is changed.
    """
    prepare(pool, objects, inbox, allow_used=True)
    with pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CLOSE_LOCK_ID,))
        contents = read_inbox(objects, inbox)
        # The uploads of a rejected batch may have come again since, in another one.
        rejected_owners = _map_owners(batch for batch in contents.batches if batch.id in contents.rejected)
        owners = _map_owners(batch for batch in contents.batches if batch.id not in contents.rejected)
        applied = _write_channels(connection, contents, read_position)
        _dissolve_contradicted(connection, contents, owners, applied)
        states = _write_batches(connection, contents, applied, head)
        _write_bad_rows(connection, contents, states, objects, inbox)
        _write_uploads(connection, contents, owners, rejected_owners)
    counts = {
        state: sum(batch_state == state for batch_state in states.values()) for state in sorted(set(states.values()))
    }
    return RebuildOutcome(
        len(contents.uploads), sum(id not in owners and id not in rejected_owners for id in contents.uploads), counts
    )


def read_inbox(objects: Objects, inbox: str) -> InboxContents:
    """Return the content of an inbox.

    Raises:
        BadDrop: a file was changed.
        StoreUnreachable, StoreDenied: it can't be read.
    """
    all_uris = [uri for uri, _, _ in objects.list(inbox)]
    uris = [uri for uri in all_uris if uri.endswith(UPLOAD_SUFFIX) or f"/{BATCHES_FOLDER}/" in uri]
    contents = InboxContents(dead=frozenset(uri for uri in all_uris if f"/{DEAD_LETTERS_FOLDER}/" in uri))
    for uri, text in objects.read_many(uris):
        if isinstance(text, SternaError):
            raise text
        if uri.endswith(UPLOAD_SUFFIX):
            upload = parse_upload(text, uri)
            contents.uploads[upload.id] = upload
        elif uri.endswith(REJECTED_SUFFIX):
            rejection = parse_rejection(text, uri)
            contents.rejected[rejection.id] = rejection.reason, rejection.rejected
        else:
            contents.batches.append(parse_batch(text, uri))
    # A batch's file has all that its uploads' own markers have.
    for batch in contents.batches:
        contents.uploads |= {upload.id: upload for upload in batch.uploads}
    return contents


def _write_channels(
    connection: LimitedConnection, contents: InboxContents, read_position: PositionReader
) -> dict[TableChannel, int]:
    """Record the next number of each channel of a table; return the applied positions."""
    channels: dict[TableChannel, Destination] = {}
    for destination in [
        *(upload.destination for upload in contents.uploads.values()),
        *(batch.destination for batch in contents.batches),
    ]:
        channels[(destination.table, destination.channel)] = destination
    applied = {table_channel: read_position(*table_channel) for table_channel in channels}
    for table_channel, destination in channels.items():
        numbers = [
            batch.number
            for batch in contents.batches
            if (batch.destination.table, batch.destination.channel) == table_channel
        ]
        next_number = max([applied[table_channel], *numbers]) + 1
        connection.execute(
            "INSERT INTO sterna_ingest_channel AS c (tenant, table_name, channel, next) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (table_name, channel) DO UPDATE SET next = greatest(c.next, excluded.next)",
            (destination.tenant, *table_channel, next_number),
        )
        for number in set(range(applied[table_channel] + 1, next_number)) - set(numbers):
            _settle_missing(connection, destination, number)
    return applied


def _dissolve_contradicted(
    connection: LimitedConnection, contents: InboxContents, owners: dict[str, str], applied: dict[TableChannel, int]
) -> None:
    """Release the uploads of batches that the inbox contradicts: the tracker was restored to an older state.

    Such a one was never written down, so never staged: its number was another batch's, or its uploads are.
    """
    written = [batch.id for batch in contents.batches]
    not_rejected = sorted(set(written) - set(contents.rejected))
    connection.execute("UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = ANY(%s)", (not_rejected,))
    unwritten = connection.execute(
        "SELECT b.id, b.table_name, b.channel, b.number, array_agg(d.id) FROM sterna_ingest_batch b "
        "LEFT JOIN sterna_ingest_drop d ON d.batch = b.id "
        "WHERE b.state IN ('closed', 'staged') AND NOT b.id = ANY(%s) GROUP BY b.id",
        (written,),
    ).fetchall()
    contradicted = [
        row[0] for row in unwritten if row[3] <= applied.get((row[1], row[2]), 0) or any(id in owners for id in row[4])
    ]
    connection.execute("UPDATE sterna_ingest_drop SET batch = NULL WHERE batch = ANY(%s)", (contradicted,))
    connection.execute(
        "UPDATE sterna_ingest_batch SET state = 'rejected', files = 0, bytes = 0, rows = 0, reason = %s, "
        "settled = now(), worker = '', leased_until = NULL WHERE id = ANY(%s)",
        (_NEVER_WRITTEN_REASON, contradicted),
    )


def _write_batches(
    connection: LimitedConnection, contents: InboxContents, applied: dict[TableChannel, int], head: str
) -> dict[str, str]:
    states = {}
    for batch in contents.batches:
        states[batch.id] = state = _state(
            batch, contents, applied[(batch.destination.table, batch.destination.channel)]
        )
        _write_batch(connection, batch, state, contents, head if state == "published" else "")
    return states


def _write_bad_rows(
    connection: LimitedConnection, contents: InboxContents, states: dict[str, str], objects: Objects, inbox: str
) -> None:
    # However old they are: acknowledgements were in the tracker alone.
    for batch in contents.batches:
        uri = dead_letters_uri(inbox, batch)
        if states[batch.id] == "published" and uri in contents.dead:
            connection.execute(UPSERT_BAD_ROWS, (batch.id, count_dead_rows(objects, uri, batch.uploads)))


def _settle_missing(connection: LimitedConnection, destination: Destination, number: int) -> None:
    """Settle a number whose batch was lost with the tracker, before it was written down: its uploads come under
    another.

    Otherwise a worker, which publishes in the order of numbers, would wait for it for ever.
    """
    connection.execute(
        f"INSERT INTO sterna_ingest_batch (id, {DESTINATION_COLUMNS}, number, state, files, bytes, rows, closed, "  # noqa: S608
        "closed_by, oldest, reason, settled) "
        "VALUES (%s, %s, %s, %s, '', %s, 'rejected', 0, 0, 0, now(), 'rebuild', now(), %s, now()) "
        "ON CONFLICT (id) DO NOTHING",
        (
            batch_id(destination.table, destination.channel, number),
            destination.tenant,
            destination.table,
            destination.channel,
            number,
            _NEVER_WRITTEN_REASON,
        ),
    )


def _state(batch: BatchFile, contents: InboxContents, applied: int) -> str:
    if batch.id in contents.rejected:
        return "rejected"
    # A worker checks itself whether an unpublished one is staged.
    return "published" if batch.number <= applied else "closed"


def _write_batch(
    connection: LimitedConnection, batch: BatchFile, state: str, contents: InboxContents, commit: str
) -> None:
    destination, uploads = batch.destination, batch.uploads
    # The time of its publication is not recorded; it was hardly long after it was closed.
    reason, settled_at = contents.rejected.get(batch.id, ("", batch.closed if state == "published" else None))
    totals = (len(uploads), sum(upload.bytes for upload in uploads), sum(upload.rows for upload in uploads))
    parameters: tuple[Any, ...] = (
        batch.id, *destination_row(destination), batch.number, state, *totals, batch.closed, batch.closed_by,
        min(upload.accepted for upload in uploads), reason, settled_at, commit,
    )  # fmt: skip
    connection.execute(
        f"INSERT INTO sterna_ingest_batch (id, {DESTINATION_COLUMNS}, number, state, files, bytes, rows, closed, "  # noqa: S608
        f"closed_by, oldest, reason, settled, commit_hash) VALUES ({', '.join(['%s'] * len(parameters))}) "
        f"ON CONFLICT (id) DO UPDATE SET {_CONFLICT_UPDATE}",
        parameters,
    )


def _map_owners(batches: Iterable[BatchFile]) -> dict[str, str]:
    return {upload.id: batch.id for batch in batches for upload in batch.uploads}


def _write_uploads(
    connection: LimitedConnection, contents: InboxContents, owners: dict[str, str], rejected_owners: dict[str, str]
) -> None:
    insert = (
        f"INSERT INTO sterna_ingest_drop AS d ({UPLOAD_COLUMNS}, taken, batch) "  # noqa: S608
        f"VALUES ({', '.join(['%s'] * (len(UPLOAD_COLUMNS.split(', ')) + 2))}) ON CONFLICT (id) DO UPDATE "
        "SET batch = CASE WHEN %s THEN excluded.batch ELSE d.batch END"
    )
    # In the order in which they were taken: a channel's last offset is that of its last upload.
    ordered = sorted(contents.uploads.values(), key=lambda upload: (upload.accepted, upload.id))
    rows = [
        (
            *build_upload_row(upload),
            upload.accepted,
            owners.get(upload.id, rejected_owners.get(upload.id)),
            upload.id in owners,
        )
        for upload in ordered
    ]
    with connection.cursor() as cursor:
        cursor.executemany(insert, rows)
