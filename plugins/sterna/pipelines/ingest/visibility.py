"""Since when each region's replica serves a batch: by the applied position in its copy of the table.

The position is set in the very commit that publishes a batch, and a replica has a table's metadata as it was on `main`.
So a replica whose copy has a batch's number, or a higher one, has its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.errors import ReferenceNotFound, TableError
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.region import RegionIngest

_VISIBILITY_DAYS = 7
_FULL_POLL_EVERY = 1_000  # polls
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_COMMIT_DELAY = timedelta(minutes=10)  # from the time that a transaction gives a batch, until others see it
_MISSING = """
    FROM sterna_ingest_batch b
    WHERE b.state = 'published' AND b.settled > greatest(clock_timestamp() - make_interval(days => %s), %s::timestamptz)
      AND NOT EXISTS (SELECT FROM sterna_ingest_served s WHERE s.batch = b.id AND s.region = %s)"""
"""The published batches of the last days that a region lacks, by the last poll."""


@dataclass(frozen=True)
class ReplicaBacklog:
    """Batches that are on `main` and not yet in a region's replica.

    Args:
        since: when the oldest of them was published.
    """

    region: str
    batches: int
    since: datetime


@dataclass(frozen=True)
class _MissingBatches:
    """Batches of a table and channel that a region lacks: how many, the lowest number, and when they settled."""

    table: str
    channel: str
    count: int
    first: int
    oldest: datetime
    newest: datetime


class ReplicaVisibility:
    """Polls the head of a region's replica, and records which batches it serves.

    Each region has its own: what one lacks, or how long it takes to answer, is nothing to another.

    Args:
        ingest: the ingestion, with its context.
        region: whose replica.
    """

    def __init__(self, ingest: RegionIngest, region: str) -> None:
        assert ingest.context is not None
        self._ingest, self._context, self._region = ingest, ingest.context, region
        self._branch = ingest.registry.region(region).replica_branch
        self._polled: tuple[str, list[_MissingBatches]] | None = None
        self._since = self._newest = _EVER
        self._polls = 0

    def poll(self) -> int:
        """Check, where its head moved or a batch was published; return how many batches the region newly serves.

        Raises:
            SternaError: the tracker, the catalog or the replica's store doesn't answer.
        """
        missing = self._list_missing()
        if not missing:
            return 0
        try:
            positions = AppliedPositions(self._context, self._branch)
        except ReferenceNotFound:
            return 0  # nothing was replicated there yet
        if self._polled == (positions.head, missing):
            return 0
        self._polled, visible, is_complete = None, 0, True
        for batches in missing:
            try:
                number = positions(batches.table, batches.channel)
            except TableError:  # the other tables can be read
                is_complete = False
                continue
            if number >= batches.first:
                visible += self._record(batches, number, positions.head)
        self._polled = (positions.head, missing) if is_complete else None
        return visible

    def _list_missing(self) -> list[_MissingBatches]:
        """List what the region lacks; what settled before the oldest one of the last poll is looked at now and then."""
        self._polls += 1
        if self._polls % _FULL_POLL_EVERY == 0:  # the tracker may have been rebuilt, or put back from a backup
            self._since = _EVER
        columns = "b.table_name, b.channel, count(*), min(b.number), min(b.settled), max(b.settled)"
        rows = self._ingest.pool.fetch(
            f"SELECT {columns} {_MISSING} GROUP BY 1, 2 ORDER BY 1, 2", (_VISIBILITY_DAYS, self._since, self._region)
        )
        listed = (_MissingBatches(*row) for row in rows)
        missing = [batches for batches in listed if self._region in list_replica_regions(self._ingest, batches.table)]
        oldest = min((batches.oldest for batches in missing), default=self._newest)
        self._since = max(self._since, oldest - _MAX_COMMIT_DELAY)
        self._newest = max((batches.newest for batches in missing), default=self._newest)
        return missing

    def _record(self, batches: _MissingBatches, number: int, head: str) -> int:
        """Record that the region has batches up to a number, since its head was committed; return how many."""
        commit = next(self._context.primary.history(head, operations=False))
        return self._ingest.pool.execute(
            "INSERT INTO sterna_ingest_served (batch, region, since) "
            f"SELECT b.id, %s::text, %s::timestamptz {_MISSING} "
            "AND b.table_name = %s AND b.channel = %s AND b.number <= %s ON CONFLICT DO NOTHING",
            (
                *(self._region, commit.commit_time, _VISIBILITY_DAYS, self._since, self._region),
                *(batches.table, batches.channel, number),
            ),
        )


def list_replica_regions(ingest: RegionIngest, table: str) -> list[str]:
    """Return the regions that are to have a replica of a table."""
    registry = ingest.registry
    return [name for name in registry.region_names if not registry.exclusion_reason(table, name)]


def read_visibility(ingest: RegionIngest, batch: str, table: str) -> Mapping[str, datetime | None]:
    """Return since when each region's replica serves a batch; None: not yet, by the last poll.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    visible_since = dict(ingest.pool.fetch("SELECT region, since FROM sterna_ingest_served WHERE batch = %s", (batch,)))
    return {name: visible_since.get(name) for name in list_replica_regions(ingest, table)}


def list_replica_backlogs(ingest: RegionIngest) -> list[ReplicaBacklog]:
    """Return, by region, which batches of the last days its replica lacks, by the last poll.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    backlogs = []
    for region in sorted(ingest.registry.region_names):
        query = f"SELECT b.table_name, count(*), min(b.settled) {_MISSING} GROUP BY 1"
        rows = ingest.pool.fetch(query, (_VISIBILITY_DAYS, _EVER, region))
        tables = [row for row in rows if region in list_replica_regions(ingest, row[0])]
        if tables:
            batches, since = sum(int(count) for _, count, _ in tables), min(oldest for _, _, oldest in tables)
            backlogs.append(ReplicaBacklog(region, batches, since))
    return backlogs
