"""Where a region stands, by its catalog: watermark, lag, held tables, last run, other registries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import NAMESPACE, key_name
from sterna.edges.stores.objects import Objects
from sterna.errors import BranchChanged, CatalogError, CredentialError, Diverged, ReferenceNotFound, StoreError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.catalog_copy import cut_off, primary_silence
from sterna.replica.head import Head, read_head
from sterna.replica.held import Held
from sterna.replica.held_list import read_list
from sterna.replica.lag import Lags, lag_of, watermark_lag
from sterna.replica.region import RegionContext
from sterna.status.model import HeldNow, InTransitNow, Refused, RegionStatus, UnreadHeld

_TIMEOUT = 3.0  # seconds: a store that is dark must not hold up the answer


def read_status(context: RegionContext) -> RegionStatus:
    """Read where a region stands; reads the catalog, and the list of held tables where that stands beside the replica.

    It stays unknown where the store does not answer, as what else a status asks of one.

    A primary that does not answer is asked once, and left alone from then on.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    branch = context.region.replica_branch
    problem, lag, head, now = "", None, Head("", exists=False), datetime.now(UTC)
    silence = primary_silence(context)
    if silence:
        context = context.without_primary()
    try:
        head = read_head(context.catalog, branch)
        lag = watermark_lag(context, head, now)
    except (BranchChanged, Diverged) as error:
        problem = str(error)
        head = head if head.exists else Head(context.catalog.reference(branch).hash, exists=True)
    cut = cut_off(context, silence, head.watermark) if silence else None
    if cut and lag is not None:
        lag = max(lag, cut.silent_seconds or lag)
    head, unread = _with_held(context, head)
    lags = Lags.listed(lag or 0.0, head.listed, now)
    return RegionStatus(
        region=context.region.name,
        branch=branch,
        replica_hash=head.hash if head.exists else "",
        watermark=head.watermark,
        source_hash=context.primary.reference(SOURCE_BRANCH).hash,
        lag_seconds=None if lag is None else lags.oldest,
        last_run=head.run_id,
        last_commit=head.commit_time.isoformat() if head.commit_time else "",
        held=tuple(_held_now(item, now) for item in head.held if not item.in_transit),
        other_registry=_other_registries(context),
        refused=_refused(context),
        problem=problem,
        unserved=_unserved(context, head),
        cut_off=cut,
        watermark_lag_seconds=lag,
        held_lag_seconds=lags.held,
        unread_held=unread,
        transit=tuple(InTransitNow(item, lag_of(item, now), item.bytes) for item in head.held if item.in_transit),
        transit_lag_seconds=lags.transit,
    )


def _with_held(context: RegionContext, head: Head) -> tuple[Head, UnreadHeld | None]:
    """Return a head with its held keys; and what is known of them all the same where their list can't be read."""
    listed = head.listed
    if listed.entries is not None:
        return head, None
    try:
        objects = Objects(context.mapping, context.secrets, timeout=_TIMEOUT)
        listed = read_list(objects, listed)
    except (StoreError, CredentialError) as error:
        listed = replace(listed, entries=(), lost=f"the list of held tables can't be read: {error}")
    unread = UnreadHeld(listed.count, listed.first, listed.lost) if listed.lost else None
    return replace(head, listed=listed), unread


def _unserved(context: RegionContext, head: Head) -> str:
    if context.catalog is context.primary:
        return ""
    try:
        published = context.primary.reference(context.region.replica_branch).hash
    except ReferenceNotFound:
        return ""
    return "" if published == head.hash else published


def _refused(context: RegionContext) -> tuple[Refused, ...]:
    """Return what the registry keeps off this region; `main` is listed only where it could keep something off."""
    if not context.registry.refuses:
        return ()
    catalog = context.primary
    entries = catalog.entries(SOURCE_BRANCH, catalog.reference(SOURCE_BRANCH).hash)
    keys = ((key_name(key), content.kind == NAMESPACE) for key, content in entries)
    reasons = (
        (key, context.registry.refusal(key, context.region.name, namespace=namespace)) for key, namespace in keys
    )
    return tuple(sorted((Refused(key, reason) for key, reason in reasons if reason), key=lambda item: item.key))


def _held_now(held: Held, now: datetime) -> HeldNow:
    return HeldNow(held, lag_of(held, now), _ADVICE.get(held.kind, "it is tried again at every sync"))


_ADVICE = {
    "UnregisteredUri": "register the URI's prefix as a location; the next sync takes the table up",
    "UnsafeUri": "rewrite the file on main under another name; such a path is never followed",
    "NotResident": (
        "put the file elsewhere on main, or the table's key under a rule of its own; nothing of it is brought here"
    ),
    "Unsupported": "this version can't localize it; keep reading it from main",
    "BrokenMetadata": "repair the table on main",
    "OverLimit": "where the table is honest, raise the limit that the reason names, in the registry's regions[].limits",
    "PlanKilled": "give the plan more memory, then ask for the table by name: sterna sync --table",
    "SourceGone": "restore the file, or expire the snapshots on main that need it",
    "SizeDiffers": "the file at its origin isn't the one that main describes: repair the table on main",
    "NotLocalized": (
        "a file that is gone is written anew by the next sync; a wrong length is mended by `sterna repair --relocalize`"
    ),
    "Damaged": (
        "somebody wrote below the replica root: `sterna repair --deep` shows what is wrong, with --yes it mends it"
    ),
    "NotCopied": "see what the store says of that object: an archive class, a key of its own, a right that is missing",
    "StoreUnreachable": "see that the address named comes back; the table is tried again at every sync",
    "StoreDenied": "give the credential named the right to read that store; the table is tried again at every sync",
    "CredentialError": "put the credential named where it is looked for; the table is tried again at every sync",
    "EngineError": "see what the copy says of that store; the table is tried again at every sync",
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
