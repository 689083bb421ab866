"""A region's lag over the last day, by the commits of `main` and of its replica branch: nothing is written down for it.

Right before a commit of the replica branch the region is furthest behind, and right after it the least. So the line
has two points a commit, and one for now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from sterna.catalog.model import Commit
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.head import SOURCE_HASH
from sterna.replication.replica.region import RegionContext

_WINDOW = timedelta(days=1)
_MAX_COMMITS = 2_000  # commits of each branch


@dataclass(frozen=True)
class LagPoint:
    """How far a region was behind at a moment, tables that are held left out.

    Args:
        at: seconds since 1970.
        lag: seconds.
    """

    at: float
    lag: float


def read_lag_history(context: RegionContext, now: datetime | None = None) -> tuple[LagPoint, ...]:
    """Return a region's lag over the last day, oldest first; shorter where there were very many commits.

    Args:
        now: the time; default: the clock's.

    Raises:
        CatalogError: the catalog does not answer.
    """
    now = now or datetime.now(UTC)
    return lag_points(
        _recent_commits(context, SOURCE_BRANCH, now), _recent_commits(context, context.region.replica_branch, now), now
    )


def lag_points(main: Sequence[Commit], replica: Sequence[Commit], now: datetime) -> tuple[LagPoint, ...]:
    """Return the lag at each moment at which it jumped.

    Args:
        main: commits of `main`, oldest first.
        replica: commits of the replica branch, oldest first.
        now: where the line ends.
    """
    times = [commit.commit_time.timestamp() for commit in main]
    positions = {commit.hash: number for number, commit in enumerate(main)}
    if main:
        positions.setdefault(main[0].parent, -1)
    points: list[LagPoint] = []
    served: int | None = None  # the number of the newest commit of `main` that is served
    for commit in replica:
        at = commit.commit_time.timestamp()
        if served is not None:
            points.append(LagPoint(at, _lag_at(times, served, at)))
        served = positions.get(commit.properties.get(SOURCE_HASH, ""), served)
        if served is not None:
            points.append(LagPoint(at, _lag_at(times, served, at)))
    if served is not None:
        points.append(LagPoint(now.timestamp(), _lag_at(times, served, now.timestamp())))
    return tuple(points)


def _lag_at(times: Sequence[float], served: int, at: float) -> float:
    next_commit = served + 1
    return max(0.0, at - times[next_commit]) if next_commit < bisect_right(times, at) else 0.0


def _recent_commits(context: RegionContext, branch: str, now: datetime) -> list[Commit]:
    """Return a branch's commits of the last day and the one before them, oldest first."""
    commits: list[Commit] = []
    catalog = context.primary if branch == SOURCE_BRANCH else context.catalog
    try:
        for commit in islice(catalog.history(branch, operations=False), _MAX_COMMITS):
            commits.append(commit)
            if commit.commit_time < now - _WINDOW:
                break
    except ReferenceNotFound:
        return []
    return commits[::-1]
