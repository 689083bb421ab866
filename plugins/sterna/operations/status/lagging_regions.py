"""Whom upkeep of `main` waits for: a region that is silent keeps every other region's stores growing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import BranchChanged, CatalogError, Diverged
from sterna.operations.status.model import LaggingRegion, RegionStatus
from sterna.replication.replica.head import read_head
from sterna.replication.replica.lag import watermark_lag
from sterna.replication.replica.region import RegionContext


def with_lagging_regions(context: RegionContext, status: RegionStatus, maintenance: Maintenance | None) -> RegionStatus:
    """Return a region's status with the regions that upkeep has waited for longer than its `patience`.

    Args:
        context: the region that looks; it looks at all regions, for a silent one may not tell itself.
        status: what is known already.
        maintenance: section `maintenance` of the services file; None: no upkeep is configured, and nothing is asked.
    """
    if maintenance is None:
        return status
    if status.cut_off:
        return replace(status, unseen=(*status.unseen, "whom upkeep waits for: the primary does not answer"))
    try:
        regions = tuple(_lagging_regions(context, maintenance))
    except CatalogError as error:
        return replace(status, unseen=(*status.unseen, f"whom upkeep waits for: {error}"))
    return replace(status, silent=regions)


def _lagging_regions(context: RegionContext, maintenance: Maintenance) -> list[LaggingRegion]:
    lagging, now = [], datetime.now(UTC)
    keys = _main_keys(context)
    for region in context.registry.regions:
        entitled = keys is None or any(not context.registry.exclusion_reason(key, region.name) for key in keys)
        if region.name in maintenance.excluded_regions or not entitled:
            continue
        try:
            lag = watermark_lag(context, read_head(context.primary, region.replica_branch), now)
        except (BranchChanged, Diverged) as error:
            lagging.append(LaggingRegion(region.name, None, str(error)))
            continue
        if lag > maintenance.patience:
            lagging.append(LaggingRegion(region.name, lag))
    return lagging


def _main_keys(context: RegionContext) -> list[str] | None:
    """Return the keys of `main` where the registry may keep all of them off a region; None where it can't."""
    if not context.registry.has_exclusions:
        return None
    head = context.primary.reference(SOURCE_BRANCH).hash
    return [key_name(key) for key, _ in context.primary.entries(SOURCE_BRANCH, head)]
