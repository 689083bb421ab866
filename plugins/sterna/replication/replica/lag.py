"""Lag: now minus the commit time of the oldest commit on `main` that this region's own catalog does not serve yet.

The watermark moves on without a table that is held or in transit, which so has a lag of its own. The region's is the
oldest of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BranchChanged, Diverged
from sterna.replication.replica.divergence import divergence_error
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.held import Held, held_since, parse_commit_time, split_in_transit
from sterna.replication.replica.held_list import HeldList
from sterna.replication.replica.region import RegionContext

_MAX_COMMITS = 100_000  # commits; further back the lag is "at least"


@dataclass(frozen=True)
class Lags:
    """How far a region is behind, in seconds.

    Args:
        watermark: with all other tables; 0 when the watermark is `main`'s head.
        held: with the table that is held for the longest time; 0 when none is, None when unknown.
        transit: likewise with those in transit.
    """

    watermark: float
    held: float | None
    transit: float | None = 0.0

    @classmethod
    def from_held_keys(cls, watermark: float, held_keys: Iterable[Held], now: datetime | None = None) -> Lags:
        """Return the lags of a region, by its watermark's and by the keys that stay behind."""
        held, transit = split_in_transit(held_keys)
        return cls(watermark, held_lag(held, now), held_lag(transit, now))

    @classmethod
    def from_held_list(cls, watermark: float, held_list: HeldList, now: datetime) -> Lags:
        """Return the same by a list of them; where that can't be read, all count as held."""
        if held_list.entries is not None and not held_list.read_error:
            return cls.from_held_keys(watermark, held_list.entries, now)
        return cls(watermark, held_list_lag(held_list, now))

    @property
    def oldest(self) -> float | None:
        """The region's lag; None when it is unknown since when a table is held."""
        return None if self.held is None or self.transit is None else max(self.watermark, self.held, self.transit)


def measure_lag(context: RegionContext, now: datetime | None = None) -> float | None:
    """Return a region's lag in seconds, held tables included: 0 when it serves everything.

    Returns:
        The oldest of `measure_lags`; None when it is unknown since when a table is held.

    Raises:
        BranchChanged, Diverged: as `measure_lags`.
    """
    return measure_lags(context, now).oldest


def measure_lags(context: RegionContext, now: datetime | None = None) -> Lags:
    """Return how far a region is behind; while it is being seeded it serves nothing yet.

    Args:
        now: the time; default: the clock's.

    Raises:
        BranchChanged: another writer committed to the replica branch.
        Diverged: the watermark is no ancestor of `main`'s head.
    """
    now = now or datetime.now(UTC)
    head = read_head(context.catalog, context.region.replica_branch)
    return Lags.from_held_list(watermark_lag(context, head, now), head.held_list, now)


def watermark_lag(context: RegionContext, replica_head: Head, now: datetime) -> float:
    """Return the lag of a region's tables that aren't held, by the head of its branch.

    Raises:
        Diverged: the watermark is no ancestor of `main`'s head.
    """
    watermark = replica_head.watermark
    main_hash = context.primary.reference(SOURCE_BRANCH).hash
    if watermark == main_hash:
        return 0.0
    oldest = None
    for commit in islice(
        context.primary.history(f"{SOURCE_BRANCH}@{main_hash}", operations=False, until=watermark or None), _MAX_COMMITS
    ):
        oldest = commit
    last_hash = oldest.parent if oldest else main_hash
    if (
        watermark
        and last_hash != watermark
        and last_hash == context.primary.no_ancestor()
        and context.primary.exists(watermark)
    ):
        raise divergence_error(context, main_hash, watermark)
    return (now - oldest.commit_time).total_seconds() if oldest else 0.0


def held_lag(held: Iterable[Held], now: datetime | None = None) -> float | None:
    """Return the oldest lag of some held keys, those that only wait for others included; 0 when there are none.

    A key with an unknown beginning makes it unknown, None. The time of the commit that holds it can't be used: each
    sync makes a new commit, and the lag would never grow.
    """
    now = now or datetime.now(UTC)
    lags = [held_key_lag(held_key, now) for held_key in held]
    measured = [lag for lag in lags if lag is not None]
    return max(measured, default=0.0) if len(measured) == len(lags) else None


def held_list_lag(held_list: HeldList, now: datetime) -> float | None:
    """Return the oldest lag of a list of held keys, as `held_lag`, from the commit alone: the list isn't read."""
    if held_list.entries is not None and not held_list.read_error:
        return held_lag(held_list.entries, now)
    oldest = parse_commit_time(held_list.oldest)
    return None if oldest is None else max(0.0, (now - oldest).total_seconds())


def held_key_lag(held: Held, now: datetime) -> float | None:
    """Return a held key's own lag in seconds, None when it is unknown since when it is held."""
    since = held_since(held)
    return None if since is None else max(0.0, (now - since).total_seconds())


def lags_after_sync(context: RegionContext, oldest: str, watermark_kept: bool, held: Iterable[Held]) -> Lags:
    """Return the lags right after a sync: of its held keys, and of what `main` got meanwhile, or all of it when the
    sync did not reach its commit.

    Args:
        oldest: commit time of the oldest commit that was not served before the sync, or "".
        watermark_kept: the sync left the watermark where it was.
        held: the keys that stay behind, those in transit included.
    """
    now = datetime.now(UTC)
    elapsed_seconds = (now - datetime.fromisoformat(oldest)).total_seconds() if oldest else 0.0
    if watermark_kept and oldest:
        return Lags.from_held_keys(elapsed_seconds, held, now)
    try:
        head = read_head(context.catalog, context.region.replica_branch)
        return Lags.from_held_keys(watermark_lag(context, head, now), held, now)
    except (BranchChanged, Diverged):  # the catalog that this region reads doesn't show yet that it was put right
        return Lags.from_held_keys(elapsed_seconds, held, now)
