"""All that is known of a region's state, put together in one place."""

from __future__ import annotations

from sterna.config.sections.maintenance import Maintenance
from sterna.operations.status.catalog_probes import with_oldest_evidence, with_slots, with_storage_usage, with_transit
from sterna.operations.status.excluded import with_excluded_sizes
from sterna.operations.status.lagging_regions import with_lagging_regions
from sterna.operations.status.model import RegionStatus
from sterna.operations.status.read import read_status
from sterna.operations.status.retention import with_short_retention
from sterna.operations.status.retries import with_retries
from sterna.replication.replica.region import RegionContext


def gather_status(context: RegionContext, *, maintenance: Maintenance | None = None) -> RegionStatus:
    """Return a region's whole state: what the catalog says, then what its store and the reports of its runs add.

    Only the catalog has to answer. What a store would add stays unknown while it is dark, for a status is asked for
    when something is wrong.

    Args:
        context: the region. A primary that does not answer is asked once, and left alone from then on.
        maintenance: section `maintenance` of the services file; None where there is none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    status = read_alarm_status(context, maintenance=maintenance)
    if status.cut_off:
        context = context.without_primary()
    return with_short_retention(context, with_retries(context, with_excluded_sizes(context, status)))


def read_alarm_status(
    context: RegionContext, *, evidence: bool = True, maintenance: Maintenance | None = None
) -> RegionStatus:
    """Return what alarms need of a region's state: what the catalog says, and one question each to others.

    Args:
        context: the region.
        evidence: look for the oldest evidence of a run, and for what the newest clean-up counted, too.
        maintenance: section `maintenance` of the services file: whom that waits for; None where there is none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    status = with_transit(context, with_slots(context, read_status(context)))
    status = with_lagging_regions(context, status, maintenance)
    return with_storage_usage(context, with_oldest_evidence(context, status)) if evidence else status
