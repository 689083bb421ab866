"""What is looked at beside the catalog: replication slots, whether a clean-up gets ahead, and what it has counted.

Each costs one question. What can't be looked at is named in `unseen`, and is no fault of the region's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from sterna.edges.stores.objects import Objects
from sterna.errors import CatalogError, CredentialError, StoreError, TableError
from sterna.gc.evidence import newest_collected
from sterna.ha.model import Slot
from sterna.ha.seed import slot_of
from sterna.ha.site import look_at_slots
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import runs_folder
from sterna.replica.transit import Transit, read_transit
from sterna.status.model import InTransitNow, RegionStatus, Stored

_ONE_PAGE = 1000  # objects
_TIMEOUT = 3.0  # seconds: a store that is dark must not hold up the answer


def with_slots(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the slots that matter to it; nothing is asked where the regions share a catalog.

    A copy for which the primary keeps none gets nothing any more: that one is `missing`.

    Args:
        context: the region, as it was opened: also where the primary's Nessie does not answer its Postgres may.
        status: what is known already.
    """
    if not context.registry.has_copies:
        return status
    try:
        primary = context.ports.primary_region
        slots = look_at_slots(primary, context.secrets)
    except (CatalogError, CredentialError) as error:
        return replace(status, unseen=(*status.unseen, f"the replication slots: {error}"))
    name = slot_of(context.region)
    if primary.name == context.region.name:
        return replace(status, slots=slots)
    mine = tuple(slot for slot in slots if slot.name == name)
    return replace(status, slots=mine or (Slot(name, False, "missing", 0),))


def with_transit(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with how far the copies of its tables in transit are, as the large lane tells.

    Where it tells nothing, they are as far as the replica's head says.
    """
    if not status.transit:
        return status
    objects = Objects(context.mapping, context.secrets, timeout=_TIMEOUT)
    try:
        found = read_transit(objects, context.region, counts=True)
    except (StoreError, CredentialError) as error:
        return replace(status, unseen=(*status.unseen, f"how far the copies in transit are: {error}"))
    return replace(status, transit=tuple(_now(item, found) for item in status.transit))


def _now(item: InTransitNow, found: Transit | None) -> InTransitNow:
    under_way = found is not None and found.is_at(item.held)
    known = found is not None and found.round.began_with(item.held) is not None
    left = found.left.get(item.held.key, item.bytes_left) if found and known else item.bytes_left
    return replace(item, bytes_left=left, under_way=under_way)


def with_oldest_evidence(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the time of the oldest evidence of a run that is still there.

    A clean-up that works deletes it once it is older than `--keep`, and after all other garbage. So its age tells
    whether one does: one that never runs, only counts, is killed each time or can't delete leaves it.

    Runs' names begin with their time and stores list in the order of names, so the first page is enough. Where a store
    lists in another order the answer may be too young, never too old.
    """
    objects = Objects(context.mapping, context.secrets, timeout=_TIMEOUT)
    try:
        page = islice(objects.list(runs_folder(context)), _ONE_PAGE)
        oldest = min((modified for _, _, modified in page), default=None)
    except (StoreError, CredentialError, TableError) as error:
        return replace(status, unseen=(*status.unseen, f"the evidence of runs: {error}"))
    return replace(status, oldest_evidence=oldest.isoformat() if oldest else "")


def with_stored(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with what the newest clean-up, or its dry run, counted below the replica root.

    Nothing is counted anew: a replica may have many millions of objects.
    """
    try:
        found = newest_collected(context, Objects(context.mapping, context.secrets, timeout=_TIMEOUT))
    except (StoreError, CredentialError, TableError) as error:
        return replace(status, unseen=(*status.unseen, f"the records of clean-ups: {error}"))
    if found is None or not found.at:
        return status
    stored = Stored(
        at=found.at,
        objects=found.objects - found.deleted,
        evidence=found.evidence,
        superseded=found.superseded,
        unreachable=found.left,
        garbage=found.garbage - found.deleted,
    )
    return replace(status, stored=stored)
