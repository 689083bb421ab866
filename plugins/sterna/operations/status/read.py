"""A region's state by its catalog: watermark, lag, held tables, last run, other registries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import NAMESPACE, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BranchChanged, CatalogError, CredentialError, Diverged, ReferenceNotFound, StoreError
from sterna.operations.status.model import ExcludedTable, HeldStatus, InTransitStatus, RegionStatus, UnreadableHeldList
from sterna.replication.replica.catalog_copy import probe_primary, read_primary_outage
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import read_held_list
from sterna.replication.replica.lag import Lags, held_key_lag, watermark_lag
from sterna.replication.replica.region import RegionContext
from sterna.storage.objects import Objects

_STORE_TIMEOUT_SECONDS = 3.0
_STORE_WORKERS = 32


def read_status(context: RegionContext) -> RegionStatus:
    """Read a region's state from the catalog, and its list of held tables where that is an object beside the replica.

    That list stays unknown where the store does not answer. A primary that does not answer is contacted only once.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    branch = context.region.replica_branch
    problem, lag, head, now = "", None, Head("", exists=False), datetime.now(UTC)
    primary_problem = probe_primary(context)
    if primary_problem:
        context = context.without_primary()
    try:
        head = read_head(context.catalog, branch)
        lag = watermark_lag(context, head, now)
    except (BranchChanged, Diverged) as error:
        problem = str(error)
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
        problem=problem,
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
    return HeldStatus(held, held_key_lag(held, now), _ADVICE.get(held.kind, "it is tried again at every sync"))


_ADVICE = {
    "UnregisteredUri": "register the URI's prefix as a location; the next sync takes the table up",
    "UnsafeUri": "rewrite the file on main under another name; such a path is never followed",
    "NotResident": (
        "put the file elsewhere on main, or the table's key under a rule of its own; nothing of it is copied here"
    ),
    "Unsupported": "this version can't localize it; keep reading it from main",
    "BrokenMetadata": "repair the table on main",
    "OverLimit": "where the table is honest, raise the limit that the reason names, in the registry's regions[].limits",
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
