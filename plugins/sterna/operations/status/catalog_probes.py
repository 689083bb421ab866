"""Probes beside the catalog: replication slots, copies in transit, and the evidence and the report of clean-ups.

Each costs one request. What can't be read is named in `unseen`, and is no fault of the region's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from sterna.errors import CatalogError, CredentialError, StoreError, TableError
from sterna.maintenance.deletion.records import read_newest_report
from sterna.maintenance.gc.evidence import GC_REPORT, gc_folder
from sterna.operations.status.model import InTransitStatus, RegionStatus, StorageUsage
from sterna.operations.status.read import open_probe_store
from sterna.replication.failover.catalog_seed import slot_name
from sterna.replication.failover.model import Slot
from sterna.replication.failover.site import read_slots
from sterna.replication.replica.bulk_state import BulkState, read_bulk_state
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import runs_folder

_PAGE_OBJECTS = 1000  # objects


def with_slots(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with its replication slots; nothing is read where the regions share a catalog.

    A copy for which the primary keeps no slot gets no changes any more: its slot is `missing`.

    Args:
        context: the region, as it was opened: where the primary's Nessie does not answer, its Postgres may.
    """
    if not context.registry.has_regional_catalogs:
        return status
    try:
        primary = context.ports.primary_region
        slots = read_slots(primary, context.secrets)
    except (CatalogError, CredentialError) as error:
        return replace(status, unseen=(*status.unseen, f"the replication slots: {error}"))
    name = slot_name(context.region)
    if primary.name == context.region.name:
        return replace(status, slots=slots)
    own_slots = tuple(slot for slot in slots if slot.name == name)
    return replace(status, slots=own_slots or (Slot(name, False, "missing", 0),))


def with_transit(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the progress of its tables in transit, by the state of the bulk run.

    Without such a state the progress is that of the replica's head.
    """
    if not status.transit:
        return status
    objects = open_probe_store(context)
    try:
        bulk_state = read_bulk_state(objects, context.region, count_remaining=True)
    except (StoreError, CredentialError) as error:
        return replace(status, unseen=(*status.unseen, f"how far the copies in transit are: {error}"))
    return replace(status, transit=tuple(_with_bulk_progress(table, bulk_state) for table in status.transit))


def _with_bulk_progress(table: InTransitStatus, bulk_state: BulkState | None) -> InTransitStatus:
    is_running = bulk_state is not None and bulk_state.is_copying(table.held)
    is_tracked = bulk_state is not None and bulk_state.run.initial_bytes(table.held) is not None
    bytes_left = (
        bulk_state.remaining_bytes.get(table.held.key, table.bytes_left)
        if bulk_state and is_tracked
        else table.bytes_left
    )
    return replace(table, bytes_left=bytes_left, under_way=is_running)


def with_oldest_evidence(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the time of the oldest evidence of a run that is still there.

    A working clean-up deletes it once it is older than `--keep`, after all other garbage. So its age shows whether
    there is one: a clean-up that never runs, only counts, is killed each time or can't delete leaves it.

    Names of runs begin with their time and stores list by name, so the first page is enough. Where a store lists in
    another order the time may be too young, never too old.
    """
    objects = open_probe_store(context)
    try:
        page = islice(objects.list(runs_folder(context)), _PAGE_OBJECTS)
        oldest = min((modified for _, _, modified in page), default=None)
    except (StoreError, CredentialError, TableError) as error:
        return replace(status, unseen=(*status.unseen, f"the evidence of runs: {error}"))
    return replace(status, oldest_evidence=oldest.isoformat() if oldest else "")


def with_storage_usage(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with what the newest clean-up, or its dry run, counted below the replica root.

    Nothing is counted now: a replica may have many millions of objects.
    """
    try:
        collected = read_newest_report(open_probe_store(context), gc_folder(context), GC_REPORT)
    except (StoreError, CredentialError, TableError) as error:
        return replace(status, unseen=(*status.unseen, f"the records of clean-ups: {error}"))
    if collected is None or not collected.at:
        return status
    usage = StorageUsage(
        at=collected.at,
        objects=collected.objects - collected.deleted,
        evidence=collected.evidence,
        superseded=collected.superseded,
        unreachable=collected.left,
        garbage=collected.garbage - collected.deleted,
    )
    return replace(status, stored=usage)
