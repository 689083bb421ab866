"""Whom upkeep of `main` waits for: a region that is silent keeps every other region's stores growing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import key_name
from sterna.errors import BranchChanged, CatalogError, Diverged
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import read_head
from sterna.replica.lag import watermark_lag
from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep
from sterna.status.model import RegionStatus, SilentRegion


def with_silent(context: RegionContext, status: RegionStatus, upkeep: Upkeep | None) -> RegionStatus:
    """Return a region's status with the regions that upkeep has waited for longer than its `patience`.

    Args:
        context: the region that looks; it looks at all regions, for a silent one may not tell itself.
        status: what is known already.
        upkeep: section `upkeep` of the services file; None: no upkeep is configured, and nothing is asked.
    """
    if upkeep is None:
        return status
    if status.cut_off:
        return replace(status, unseen=(*status.unseen, "whom upkeep waits for: the primary does not answer"))
    try:
        silent = tuple(_silent(context, upkeep))
    except CatalogError as error:
        return replace(status, unseen=(*status.unseen, f"whom upkeep waits for: {error}"))
    return replace(status, silent=silent)


def _silent(context: RegionContext, upkeep: Upkeep) -> list[SilentRegion]:
    found, now = [], datetime.now(UTC)
    keys = _keys(context)
    for region in context.registry.regions:
        entitled = keys is None or any(not context.registry.refusal(key, region.name) for key in keys)
        if region.name in upkeep.left_out or not entitled:
            continue
        try:
            lag = watermark_lag(context, read_head(context.primary, region.replica_branch), now)
        except (BranchChanged, Diverged) as error:
            found.append(SilentRegion(region.name, None, str(error)))
            continue
        if lag > upkeep.patience:
            found.append(SilentRegion(region.name, lag))
    return found


def _keys(context: RegionContext) -> list[str] | None:
    """Return the keys of `main` where the registry may keep all of them off a region; None where it can't."""
    if not context.registry.refuses:
        return None
    head = context.primary.reference(SOURCE_BRANCH).hash
    return [key_name(key) for key, _ in context.primary.entries(SOURCE_BRANCH, head)]
