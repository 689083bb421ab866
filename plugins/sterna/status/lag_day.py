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
from sterna.errors import ReferenceNotFound
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import SOURCE_HASH
from sterna.replica.region import RegionContext

_DAY = timedelta(days=1)
_MOST = 2_000  # commits of each branch


@dataclass(frozen=True)
class LagPoint:
    """How far a region was behind at a moment, tables that are held left out.

    Args:
        at: seconds since 1970.
        lag: seconds.
    """

    at: float
    lag: float


def lag_over_day(context: RegionContext, now: datetime | None = None) -> tuple[LagPoint, ...]:
    """Return a region's lag over the last day, oldest first; shorter where there were very many commits.

    Args:
        context: the region.
        now: the time; default: the clock's.

    Raises:
        CatalogError: the catalog does not answer.
    """
    now = now or datetime.now(UTC)
    return lag_line(_since(context, SOURCE_BRANCH, now), _since(context, context.region.replica_branch, now), now)


def lag_line(main: Sequence[Commit], replica: Sequence[Commit], now: datetime) -> tuple[LagPoint, ...]:
    """Return the lag at each moment at which it jumped.

    Args:
        main: commits of `main`, oldest first.
        replica: commits of the replica branch, oldest first.
        now: where the line ends.
    """
    times = [commit.commit_time.timestamp() for commit in main]
    place = {commit.hash: number for number, commit in enumerate(main)}
    if main:
        place.setdefault(main[0].parent, -1)
    points: list[LagPoint] = []
    served: int | None = None  # the number of the newest commit of `main` that is served
    for commit in replica:
        at = commit.commit_time.timestamp()
        if served is not None:
            points.append(LagPoint(at, _lag(times, served, at)))
        served = place.get(commit.properties.get(SOURCE_HASH, ""), served)
        if served is not None:
            points.append(LagPoint(at, _lag(times, served, at)))
    if served is not None:
        points.append(LagPoint(now.timestamp(), _lag(times, served, now.timestamp())))
    return tuple(points)


def _lag(times: Sequence[float], served: int, at: float) -> float:
    waiting = served + 1
    return max(0.0, at - times[waiting]) if waiting < bisect_right(times, at) else 0.0


def _since(context: RegionContext, branch: str, now: datetime) -> list[Commit]:
    """Return a branch's commits of the last day and the one before them, oldest first."""
    found: list[Commit] = []
    catalog = context.primary if branch == SOURCE_BRANCH else context.catalog
    try:
        for commit in islice(catalog.history(branch, operations=False), _MOST):
            found.append(commit)
            if commit.commit_time < now - _DAY:
                break
    except ReferenceNotFound:
        return []
    return found[::-1]
