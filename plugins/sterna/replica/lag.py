"""Lag: now minus the commit time of the oldest commit on `main` that this region's own catalog does not serve yet."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from sterna.errors import BranchChanged, Diverged
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.divergence import diverged
from sterna.replica.head import read_head
from sterna.replica.region import RegionContext

_LOOKED_AT = 100_000  # commits; further back the lag is "at least"


def measure_lag(context: RegionContext, now: datetime | None = None) -> float:
    """Return a region's lag in seconds, 0 when it serves everything; while it is being seeded it serves nothing yet.

    Raises:
        BranchChanged: somebody else committed to the replica branch.
        Diverged: the watermark is no ancestor of `main`'s head.
    """
    watermark = read_head(context.catalog, context.region.replica_branch).watermark
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
    return ((now or datetime.now(UTC)) - oldest.commit_time).total_seconds() if oldest else 0.0


def lag_after(context: RegionContext, oldest: str, behind: bool) -> float:
    """Return the lag right after a sync: what `main` got meanwhile, or all of it when the sync did not reach its
    commit.

    Args:
        context: the region.
        oldest: commit time of the oldest commit that was not served before the sync, or "".
        behind: the sync left the watermark where it was.
    """
    since = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds() if oldest else 0.0
    if behind and oldest:
        return since
    try:
        return measure_lag(context)
    except (BranchChanged, Diverged):  # the catalog that this region reads doesn't show yet that it was put right
        return since
