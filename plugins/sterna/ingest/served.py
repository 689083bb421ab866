"""Since when each region's replica serves a batch: by the mark that its copy of the table has.

The mark is set in the very commit that publishes a batch, and a replica has a table's metadata as it was on `main`. So
a replica whose copy has a batch's number, or a higher one, has its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sterna.errors import ReferenceNotFound, SternaError
from sterna.ingest.marks import TableMarks
from sterna.ingest.region import RegionIngest

_DAYS = 7
_MOST = 2_000
_ALL = ""
"""In a region's place: each region that is to have the batch has it."""


@dataclass(frozen=True)
class Unserved:
    """Batches that are on `main` and not yet in a region's replica.

    Args:
        region: which.
        batches: how many.
        since: when the oldest of them was published.
    """

    region: str
    batches: int
    since: datetime


@dataclass(frozen=True)
class _Waiting:
    id: str
    table: str
    channel: str
    number: int
    regions: frozenset[str]


class ServedLook:
    """Looks at the replicas' heads, and writes down what they serve.

    Args:
        ingest: the region's, with its context.
    """

    def __init__(self, ingest: RegionIngest) -> None:
        assert ingest.context is not None
        self._ingest, self._context = ingest, ingest.context
        self._heads: dict[str, str] = {}
        self._waited: frozenset[str] = frozenset()

    def look(self) -> int:
        """Look, where a head moved or a batch was published since; return how often a region was found to serve one.

        A region that can't be looked at now is looked at again the next time.

        Raises:
            SternaError: the tracker or the catalog doesn't answer.
        """
        waiting = self._waiting()
        ids, found, again = frozenset(each.id for each in waiting), 0, False
        for region in self._context.registry.regions:
            concerned = [each for each in waiting if region.name in self._missing(each)]
            if not concerned:
                continue
            try:
                found += self._look_at(region.name, region.replica_branch, concerned, anew=bool(ids - self._waited))
            except SternaError:
                self._heads.pop(region.name, None)
                again = True
        self._waited = frozenset() if again else ids
        self._settle(waiting)
        return found

    def _look_at(self, region: str, branch: str, waiting: Sequence[_Waiting], *, anew: bool) -> int:
        try:
            marks = TableMarks(self._context, branch)
        except ReferenceNotFound:
            return 0  # nothing was replicated there yet
        if self._heads.get(region) == marks.head and not anew:
            return 0
        commit = next(iter(self._context.primary.history(marks.head, operations=False)), None)
        served = [each for each in waiting if marks(each.table, each.channel) >= each.number]
        if served and commit is not None:
            with self._ingest.pool.connection() as connection, connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO sterna_ingest_served (batch, region, since) VALUES (%s, %s, %s) "
                    "ON CONFLICT DO NOTHING",
                    [(each.id, region, commit.commit_time) for each in served],
                )
        self._heads[region] = marks.head
        return len(served)

    def _waiting(self) -> list[_Waiting]:
        query = """
            SELECT b.id, b.table_name, b.channel, b.number, coalesce(array_agg(s.region), '{}')
            FROM sterna_ingest_batch b LEFT JOIN sterna_ingest_served s ON s.batch = b.id
            WHERE b.state = 'published' AND b.settled > clock_timestamp() - make_interval(days => %s)
              AND NOT EXISTS (SELECT FROM sterna_ingest_served a WHERE a.batch = b.id AND a.region = %s)
            GROUP BY b.id ORDER BY b.settled LIMIT %s
        """
        with self._ingest.pool.connection() as connection:
            rows = connection.execute(query, (_DAYS, _ALL, _MOST)).fetchall()
        return [_Waiting(row[0], row[1], row[2], row[3], frozenset(row[4])) for row in rows]

    def _missing(self, batch: _Waiting) -> set[str]:
        return set(replicas_of(self._ingest, batch.table)) - batch.regions

    def _settle(self, waiting: Sequence[_Waiting]) -> None:
        """Write down of which batches nothing more is to be found out."""
        now = {each.id: each for each in self._waiting()}
        whole = [id for id, each in now.items() if not self._missing(each)]
        if whole:
            with self._ingest.pool.connection() as connection, connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO sterna_ingest_served (batch, region, since) VALUES (%s, %s, clock_timestamp()) "
                    "ON CONFLICT DO NOTHING",
                    [(id, _ALL) for id in whole],
                )


def replicas_of(ingest: RegionIngest, table: str) -> list[str]:
    """Return the regions that are to have a replica of a table."""
    registry = ingest.registry
    return [name for name in registry.region_names if not registry.refusal(table, name)]


def served_of(ingest: RegionIngest, batch: str, table: str) -> Mapping[str, datetime | None]:
    """Return since when each region's replica serves a batch; None: not yet, as far as is known.

    Raises:
        DatabaseUnreachable, DatabaseRefused: it can't be told.
    """
    query = "SELECT region, since FROM sterna_ingest_served WHERE batch = %s AND region <> %s"
    with ingest.pool.connection() as connection:
        known: dict[str, Any] = dict(connection.execute(query, (batch, _ALL)).fetchall())
    return {name: known.get(name) for name in replicas_of(ingest, table)}


def unserved(ingest: RegionIngest) -> list[Unserved]:
    """Return, by region, which batches of the last days its replica hasn't, as far as is known.

    Raises:
        DatabaseUnreachable, DatabaseRefused: it can't be told.
    """
    query = """
        SELECT b.table_name, b.settled, coalesce(array_agg(s.region), '{}')
        FROM sterna_ingest_batch b LEFT JOIN sterna_ingest_served s ON s.batch = b.id
        WHERE b.state = 'published' AND b.settled > clock_timestamp() - make_interval(days => %s)
          AND NOT EXISTS (SELECT FROM sterna_ingest_served a WHERE a.batch = b.id AND a.region = %s)
        GROUP BY b.id
    """
    with ingest.pool.connection() as connection:
        rows = connection.execute(query, (_DAYS, _ALL)).fetchall()
    since: dict[str, list[datetime]] = {}
    for table, settled, regions in rows:
        for region in set(replicas_of(ingest, table)) - set(regions):
            since.setdefault(region, []).append(settled)
    return [Unserved(region, len(times), min(times)) for region, times in sorted(since.items())]
