"""Lag: now minus the commit time of the oldest commit on `main` that this region's own catalog does not serve yet.

The watermark moves on without a table that is held or in transit, which so has a lag of its own. The region's is the
oldest of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from sterna.errors import BranchChanged, Diverged
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.divergence import diverged
from sterna.replica.head import Head, read_head
from sterna.replica.held import Held, held_since, moment
from sterna.replica.held_list import HeldList
from sterna.replica.region import RegionContext

_LOOKED_AT = 100_000  # commits; further back the lag is "at least"


@dataclass(frozen=True)
class Lags:
    """How far a region is behind, in seconds.

    Args:
        watermark: with all other tables; 0 when the watermark is `main`'s head.
        held: with the table that is held for the longest time; 0 when none is, None when nobody knows.
        transit: likewise with those in transit.
    """

    watermark: float
    held: float | None
    transit: float | None = 0.0

    @classmethod
    def of(cls, watermark: float, behind: Iterable[Held], now: datetime | None = None) -> Lags:
        """Return the lags of a region, by its watermark's and by the keys that stay behind."""
        listed = list(behind)
        held, transit = ([item for item in listed if item.in_transit is moving] for moving in (False, True))
        return cls(watermark, held_lag(held, now), held_lag(transit, now))

    @classmethod
    def listed(cls, watermark: float, listed: HeldList, now: datetime) -> Lags:
        """Return the same by a list of them; where that can't be read, all count as held."""
        if listed.entries is not None and not listed.lost:
            return cls.of(watermark, listed.entries, now)
        return cls(watermark, listed_lag(listed, now))

    @property
    def oldest(self) -> float | None:
        """The region's lag; None when nobody knows since when a table is held."""
        return None if self.held is None or self.transit is None else max(self.watermark, self.held, self.transit)


def measure_lag(context: RegionContext, now: datetime | None = None) -> float | None:
    """Return a region's lag in seconds, held tables included: 0 when it serves everything.

    Returns:
        The oldest of `measure_lags`; None when nobody knows since when a table is held.

    Raises:
        BranchChanged, Diverged: as `measure_lags`.
    """
    return measure_lags(context, now).oldest


def measure_lags(context: RegionContext, now: datetime | None = None) -> Lags:
    """Return how far a region is behind; while it is being seeded it serves nothing yet.

    Args:
        context: the region.
        now: the time; default: the clock's.

    Raises:
        BranchChanged: somebody else committed to the replica branch.
        Diverged: the watermark is no ancestor of `main`'s head.
    """
    now = now or datetime.now(UTC)
    head = read_head(context.catalog, context.region.replica_branch)
    return Lags.listed(watermark_lag(context, head, now), head.listed, now)


def watermark_lag(context: RegionContext, found: Head, now: datetime) -> float:
    """Return how far a region is behind with what is not held, by the head of its branch.

    Raises:
        Diverged: the watermark is no ancestor of `main`'s head.
    """
    watermark = found.watermark
    head = context.primary.reference(SOURCE_BRANCH).hash
    if watermark == head:
        return 0.0
    oldest = None
    for commit in islice(
        context.primary.history(f"{SOURCE_BRANCH}@{head}", operations=False, until=watermark or None), _LOOKED_AT
    ):
        oldest = commit
    last = oldest.parent if oldest else head
    if watermark and last != watermark and last == context.primary.no_ancestor() and context.primary.exists(watermark):
        raise diverged(context, head, watermark)
    return (now - oldest.commit_time).total_seconds() if oldest else 0.0


def held_lag(held: Iterable[Held], now: datetime | None = None) -> float | None:
    """Return the oldest lag of some held keys, those that only wait for others included; 0 when there are none.

    One that nobody knows the beginning of makes it unknown, None. The commit that holds it would be no answer: each
    sync makes a new one, and the lag would never grow.
    """
    now = now or datetime.now(UTC)
    lags = [lag_of(item, now) for item in held]
    known = [lag for lag in lags if lag is not None]
    return max(known, default=0.0) if len(known) == len(lags) else None


def listed_lag(listed: HeldList, now: datetime) -> float | None:
    """Return the oldest lag of a list of held keys, as `held_lag`; the commit tells, nothing is read."""
    if listed.entries is not None and not listed.lost:
        return held_lag(listed.entries, now)
    oldest = moment(listed.oldest)
    return None if oldest is None else max(0.0, (now - oldest).total_seconds())


def lag_of(held: Held, now: datetime) -> float | None:
    """Return a held key's own lag in seconds, None when nobody knows since when it is held."""
    since = held_since(held)
    return None if since is None else max(0.0, (now - since).total_seconds())


def lags_after(context: RegionContext, oldest: str, behind: bool, held: Iterable[Held]) -> Lags:
    """Return the lags right after a sync: of its held keys, and of what `main` got meanwhile, or all of it when the
    sync did not reach its commit.

    Args:
        context: the region.
        oldest: commit time of the oldest commit that was not served before the sync, or "".
        behind: the sync left the watermark where it was.
        held: the keys that stay behind, those in transit included.
    """
    now = datetime.now(UTC)
    since = (now - datetime.fromisoformat(oldest)).total_seconds() if oldest else 0.0
    if behind and oldest:
        return Lags.of(since, held, now)
    try:
        head = read_head(context.catalog, context.region.replica_branch)
        return Lags.of(watermark_lag(context, head, now), held, now)
    except (BranchChanged, Diverged):  # the catalog that this region reads doesn't show yet that it was put right
        return Lags.of(since, held, now)
