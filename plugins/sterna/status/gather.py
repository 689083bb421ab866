"""All that is known of a region's state, put together in one place."""

from __future__ import annotations

from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep
from sterna.status.attempts import with_attempts
from sterna.status.model import RegionStatus
from sterna.status.read import read_status
from sterna.status.refused import with_sizes
from sterna.status.retention import with_short_retention
from sterna.status.silent import with_silent
from sterna.status.watched import with_oldest_evidence, with_slots, with_stored, with_transit


def gather_status(context: RegionContext, *, upkeep: Upkeep | None = None) -> RegionStatus:
    """Return a region's whole state: what the catalog says, then what its store and the reports of its runs add.

    Only the catalog has to answer. What a store would add stays unknown while it is dark, for a status is asked for
    when something is wrong.

    Args:
        context: the region. A primary that does not answer is asked once, and left alone from then on.
        upkeep: section `upkeep` of the services file; None where there is none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    found = watch_status(context, upkeep=upkeep)
    if found.cut_off:
        context = context.without_primary()
    return with_short_retention(context, with_attempts(context, with_sizes(context, found)))


def watch_status(context: RegionContext, *, evidence: bool = True, upkeep: Upkeep | None = None) -> RegionStatus:
    """Return what alarms need of a region's state: what the catalog says, and one question each to others.

    Args:
        context: the region.
        evidence: look for the oldest evidence of a run, and for what the newest clean-up counted, too.
        upkeep: section `upkeep` of the services file: whom that waits for; None where there is none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    found = with_transit(context, with_slots(context, read_status(context)))
    found = with_silent(context, found, upkeep)
    return with_stored(context, with_oldest_evidence(context, found)) if evidence else found
