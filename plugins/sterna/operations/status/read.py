"""A region's state as alarms need it: from its catalog, and one request each to other systems.

What can't be read beside the catalog is named in `unseen`, and is no fault of the region's.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from sterna.catalog.model import NAMESPACE, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import (
    BranchChanged,
    CatalogError,
    CredentialError,
    Diverged,
    ReferenceNotFound,
    StoreError,
    TableError,
)
from sterna.maintenance.deletion.passes import read_newest_report
from sterna.maintenance.gc.evidence import GC_REPORT, gc_folder
from sterna.operations.run_book import card_link, error_card
from sterna.operations.status.delays import read_region_delays, unknown_delays
from sterna.operations.status.model import (
    ExcludedTable,
    HeldStatus,
    InTransitStatus,
    LaggingRegion,
    RegionStatus,
    StorageUsage,
    UnreadableHeldList,
)
from sterna.replication.failover.catalog_seed import slot_name
from sterna.replication.failover.model import Slot
from sterna.replication.failover.site import read_slots
from sterna.replication.replica.bulk_state import BulkState, read_bulk_state
from sterna.replication.replica.catalog_copy import probe_primary, read_primary_outage
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import read_held_list
from sterna.replication.replica.lag import Lags, held_key_lag, watermark_lag
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import runs_folder
from sterna.runtime.status import is_overdue
from sterna.storage.objects import Objects

_STORE_TIMEOUT_SECONDS = 3.0
_STORE_WORKERS = 32
_PAGE_OBJECTS = 1000


def read_alarm_status(
    context: RegionContext,
    *,
    evidence: bool = True,
    maintenance: Maintenance | None = None,
    table_delays: bool = False,
) -> RegionStatus:
    """Return what alarms need of a region's state: from the catalog, and one request each to other systems.

    Args:
        evidence: read the oldest evidence of a run, and the report of the newest clean-up, too.
        maintenance: section `maintenance` of the services file, for the regions that it waits for; None where there is
            none.
        table_delays: how late new versions were of each table, too.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    status = with_transit(context, with_slots(context, read_status(context)))
    status = with_delays(context, status, tables=table_delays)
    status = with_lagging_regions(context, status, maintenance)
    return with_storage_usage(context, with_oldest_evidence(context, status)) if evidence else status


def with_delays(context: RegionContext, status: RegionStatus, *, tables: bool = False) -> RegionStatus:
    """Return a region's status with how late new versions became visible there.

    While the region is cut off that is unknown: `main` may have new versions that its own copy doesn't show.

    Args:
        tables: of each table, too.
    """
    if status.cut_off:
        return replace(status, delays=unknown_delays(context.registry, status.cut_off.line))
    return replace(status, delays=read_region_delays(context, open_probe_store(context), tables=tables))


def read_status(context: RegionContext) -> RegionStatus:
    """Read a region's state from the catalog, and its list of held tables where that is an object beside the replica.

    That list stays unknown where the store does not answer. A primary that does not answer is contacted only once.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    branch = context.region.replica_branch
    problem: BranchChanged | Diverged | None = None
    lag, head, now = None, Head("", exists=False), datetime.now(UTC)
    primary_problem = probe_primary(context)
    if primary_problem:
        context = context.without_primary()
    try:
        head = read_head(context.catalog, branch)
        lag = watermark_lag(context, head, now)
    except (BranchChanged, Diverged) as error:
        problem = error
        head = head if head.exists else Head(context.catalog.reference(branch).hash, exists=True)
    outage = read_primary_outage(context, primary_problem, head.watermark) if primary_problem else None
    if outage and lag is not None:
        lag = max(lag, outage.seconds_since_contact or lag)
    head, unreadable = _with_held(context, head)
    lags = Lags.from_held_list(lag or 0.0, head.held_list, now)
    return RegionStatus(
        region=context.region.name,
        branch=branch,
        replica_hash=head.hash if head.exists else "",
        watermark=head.watermark,
        source_hash=context.primary.reference(SOURCE_BRANCH).hash,
        lag_seconds=None if lag is None else lags.oldest,
        last_run=head.run_id,
        last_commit=head.commit_time.isoformat() if head.commit_time else "",
        held=tuple(_held_status(table, now) for table in head.held if not table.in_transit),
        other_registry=_other_registries(context),
        refused=_excluded_tables(context),
        problem=str(problem) if problem else "",
        problem_kind=type(problem).__name__ if problem else "",
        problem_card=error_card(problem) if problem else "",
        unserved=_unserved_head(context, head),
        cut_off=outage,
        watermark_lag_seconds=lag,
        held_lag_seconds=lags.held,
        unread_held=unreadable,
        transit=tuple(
            InTransitStatus(table, held_key_lag(table, now), table.bytes) for table in head.held if table.in_transit
        ),
        transit_lag_seconds=lags.transit,
    )


def open_probe_store(context: RegionContext, workers: int = _STORE_WORKERS) -> Objects:
    """Open the stores with a short time limit: one that does not answer must not hold up a status.

    Args:
        workers: how many requests run at a time.
    """
    return Objects(context.mapping, context.secrets, timeout=_STORE_TIMEOUT_SECONDS, workers=workers)


def with_probe_store(context: RegionContext) -> RegionContext:
    """Return a region whose stores have a short time limit (see `open_probe_store`)."""
    return replace(context, ports=context.ports.with_objects(open_probe_store(context)))


def _with_held(context: RegionContext, head: Head) -> tuple[Head, UnreadableHeldList | None]:
    """Return a head with its held keys; where their list can't be read, also what the head has of them."""
    listed = head.held_list
    if listed.entries is not None:
        return head, None
    try:
        objects = open_probe_store(context)
        listed = read_held_list(objects, listed)
    except (StoreError, CredentialError) as error:
        listed = replace(listed, entries=(), read_error=f"the list of held tables can't be read: {error}")
    unreadable = UnreadableHeldList(listed.count, listed.sample_names, listed.read_error) if listed.read_error else None
    return replace(head, held_list=listed), unreadable


def _unserved_head(context: RegionContext, head: Head) -> str:
    if context.catalog is context.primary:
        return ""
    try:
        published = context.primary.reference(context.region.replica_branch).hash
    except ReferenceNotFound:
        return ""
    return "" if published == head.hash else published


def _excluded_tables(context: RegionContext) -> tuple[ExcludedTable, ...]:
    """Return what the registry keeps off this region; `main` is listed only where it could keep something off."""
    if not context.registry.has_exclusions:
        return ()
    catalog = context.primary
    entries = catalog.entries(SOURCE_BRANCH, catalog.reference(SOURCE_BRANCH).hash)
    keys = ((key_name(key), content.kind == NAMESPACE) for key, content in entries)
    reasons = (
        (key, context.registry.exclusion_reason(key, context.region.name, namespace=namespace))
        for key, namespace in keys
    )
    return tuple(sorted((ExcludedTable(key, reason) for key, reason in reasons if reason), key=lambda table: table.key))


def _held_status(held: Held, now: datetime) -> HeldStatus:
    return HeldStatus(held, held_key_lag(held, now), advice(held.kind), card=card_link(held.kind))


def advice(kind: str) -> str:
    """Return what an operator does about a held table.

    Args:
        kind: name of the error that holds it.
    """
    return _ADVICE.get(kind, "it is tried again at every sync")


_ADVICE = {
    "UnregisteredUri": "register the URI's prefix as a location; the next sync takes the table up",
    "UnsafeUri": "rewrite the file on main under another name; such a path is never followed",
    "NotResident": (
        "put the file elsewhere on main, or the table's key under a rule of its own; nothing of it is copied here"
    ),
    "Unsupported": "this version can't localize it; keep reading it from main",
    "BrokenMetadata": "repair the table on main",
    "OverLimit": "where the table is honest, raise the limit that the reason names, in the registry's regions[].limits",
    "Paused": "once the reason is gone: sterna resume, or the DAG sterna_pause",
    "PlanKilled": "give the plan more memory, then ask for the table by name: sterna sync --table",
    "SourceGone": "restore the file, or expire the snapshots on main that need it",
    "SizeDiffers": "the file at its origin isn't the one that main describes: repair the table on main",
    "NotLocalized": (
        "the next sync writes a file again that is gone; `sterna repair --rewrite-metadata` corrects a wrong length"
    ),
    "Damaged": (
        "another writer wrote below the replica root: `sterna repair --deep` lists faults, with --yes it repairs them"
    ),
    "NotCopied": "see the store's error for that object: an archive class, a key of its own, a missing permission",
    "StoreUnreachable": "make the named address reachable again; the table is retried at every sync",
    "StoreDenied": "give the credential named the right to read that store; the table is tried again at every sync",
    "CredentialError": "put the credential named where it is looked for; the table is tried again at every sync",
    "EngineError": "see the copy's error for that store; the table is retried at every sync",
    "Waits": "it follows by itself once the table it waits for does",
}


def _other_registries(context: RegionContext) -> tuple[str, ...]:
    own = context.registry.digest()
    others = []
    for region in context.registry.regions:
        try:
            registry = read_head(context.catalog, region.replica_branch).registry
        except CatalogError:
            continue
        if registry and registry != own:
            others.append(region.name)
    return tuple(others)


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
    if bulk_state is None or bulk_state.run.initial_bytes(table.held) is None:
        return replace(table, under_way=False)
    bytes_left = bulk_state.remaining_bytes.get(table.held.key, table.bytes_left)
    return replace(table, bytes_left=bytes_left, under_way=bulk_state.is_copying(table.held))


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
        verbatim=collected.verbatim,
        dropped=collected.dropped,
    )
    return replace(status, stored=usage)


def with_lagging_regions(context: RegionContext, status: RegionStatus, maintenance: Maintenance | None) -> RegionStatus:
    """Return a region's status with the regions that maintenance has waited for longer than its `max_wait`.

    Args:
        context: the region; it reads the branches of all regions, for a silent one may have no status of its own.
        maintenance: section `maintenance` of the services file; None: no maintenance is configured, and nothing is
            read.
    """
    if maintenance is None:
        return status
    if status.cut_off:
        return replace(
            status, unseen=(*status.unseen, "the regions that maintenance waits for: the primary does not answer")
        )
    try:
        regions = tuple(_lagging_regions(context, maintenance))
    except CatalogError as error:
        return replace(status, unseen=(*status.unseen, f"the regions that maintenance waits for: {error}"))
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
        if is_overdue(lag, maintenance.max_wait):
            lagging.append(LaggingRegion(region.name, lag))
    return lagging


def _main_keys(context: RegionContext) -> list[str] | None:
    """Return the keys of `main` where the registry may keep all of them off a region; None where it can't."""
    if not context.registry.has_exclusions:
        return None
    head = context.primary.reference(SOURCE_BRANCH).hash
    return [key_name(key) for key, _ in context.primary.entries(SOURCE_BRANCH, head)]
