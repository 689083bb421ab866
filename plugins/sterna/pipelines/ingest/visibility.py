"""Since when each region's replica serves a batch: by the applied position in its copy of the table.

The position is set in the very commit that publishes a batch, and a replica has a table's metadata as it was on `main`.
So a replica whose copy has a batch's number, or a higher one, has its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sterna.errors import ReferenceNotFound, SternaError
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.region import RegionIngest

_VISIBILITY_DAYS = 7
_MAX_BATCHES = 2_000
_ALL_REGIONS = ""
"""In a region's place: each region that is to have the batch has it."""
_REGIONS = "coalesce(array_agg(s.region), '{}')"
_PENDING = """
    FROM sterna_ingest_batch b LEFT JOIN sterna_ingest_served s ON s.batch = b.id
    WHERE b.state = 'published' AND b.settled > clock_timestamp() - make_interval(days => %s)
      AND NOT EXISTS (SELECT FROM sterna_ingest_served a WHERE a.batch = b.id AND a.region = %s)
    GROUP BY b.id"""
"""The published batches of the last days that some region may lack."""


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
class _PendingBatch:
    id: str
    table: str
    channel: str
    number: int
    regions: frozenset[str]


class ReplicaVisibility:
    """Polls the replicas' heads, and records which batches they serve.

    Args:
        ingest: the region's, with its context.
    """

    def __init__(self, ingest: RegionIngest) -> None:
        assert ingest.context is not None
        self._ingest, self._context = ingest, ingest.context
        self._heads: dict[str, str] = {}
        self._polled: frozenset[str] = frozenset()

    def poll(self) -> int:
        """Check where a head moved or a batch was published; return how often a region newly serves a batch.

        A region that can't be read now is read at the next poll.

        Raises:
            SternaError: the tracker or the catalog doesn't answer.
        """
        pending = self._list_pending()
        ids, visible, is_incomplete = frozenset(batch.id for batch in pending), 0, False
        for region in self._context.registry.regions:
            missing = [batch for batch in pending if region.name in self._missing_regions(batch)]
            if not missing:
                continue
            try:
                visible += self._poll_region(
                    region.name, region.replica_branch, missing, force=bool(ids - self._polled)
                )
            except SternaError:
                self._heads.pop(region.name, None)
                is_incomplete = True
        self._polled = frozenset() if is_incomplete else ids
        self._write_complete(pending)
        return visible

    def _poll_region(self, region: str, branch: str, pending: Sequence[_PendingBatch], *, force: bool) -> int:
        try:
            positions = AppliedPositions(self._context, branch)
        except ReferenceNotFound:
            return 0  # nothing was replicated there yet
        if self._heads.get(region) == positions.head and not force:
            return 0
        commit = next(iter(self._context.primary.history(positions.head, operations=False)), None)
        visible = [batch for batch in pending if positions(batch.table, batch.channel) >= batch.number]
        if visible and commit is not None:
            self._record([batch.id for batch in visible], region, commit.commit_time)
        self._heads[region] = positions.head
        return len(visible)

    def _list_pending(self) -> list[_PendingBatch]:
        columns = "b.id, b.table_name, b.channel, b.number"
        query = f"SELECT {columns}, {_REGIONS} {_PENDING} ORDER BY b.settled LIMIT %s"
        rows = self._ingest.pool.fetch(query, (_VISIBILITY_DAYS, _ALL_REGIONS, _MAX_BATCHES))
        return [_PendingBatch(row[0], row[1], row[2], row[3], frozenset(row[4])) for row in rows]

    def _missing_regions(self, batch: _PendingBatch) -> set[str]:
        return set(list_replica_regions(self._ingest, batch.table)) - batch.regions

    def _write_complete(self, pending: Sequence[_PendingBatch]) -> None:
        """Write down of which batches nothing more is to be found out."""
        by_id = {batch.id: batch for batch in self._list_pending()}
        complete = [id for id, batch in by_id.items() if not self._missing_regions(batch)]
        if complete:
            self._record(complete, _ALL_REGIONS, None)

    def _record(self, batches: Sequence[str], region: str, since: datetime | None) -> None:
        """Record that a region has batches, since a time, by default since now."""
        self._ingest.pool.execute(
            "INSERT INTO sterna_ingest_served (batch, region, since) "
            "SELECT unnest(%s::text[]), %s::text, coalesce(%s::timestamptz, clock_timestamp()) ON CONFLICT DO NOTHING",
            (batches, region, since),
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
    query = "SELECT region, since FROM sterna_ingest_served WHERE batch = %s AND region <> %s"
    visible_since = dict(ingest.pool.fetch(query, (batch, _ALL_REGIONS)))
    return {name: visible_since.get(name) for name in list_replica_regions(ingest, table)}


def list_replica_backlogs(ingest: RegionIngest) -> list[ReplicaBacklog]:
    """Return, by region, which batches of the last days its replica lacks, by the last poll.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    query = f"SELECT b.table_name, b.settled, {_REGIONS} {_PENDING}"
    rows = ingest.pool.fetch(query, (_VISIBILITY_DAYS, _ALL_REGIONS))
    since: dict[str, list[datetime]] = {}
    for table, settled, regions in rows:
        for region in set(list_replica_regions(ingest, table)) - set(regions):
            since.setdefault(region, []).append(settled)
    return [ReplicaBacklog(region, len(times), min(times)) for region, times in sorted(since.items())]
