"""Where a region stands: watermark, lag, held tables, last run, and regions that run another registry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sterna.catalog.model import NAMESPACE, key_name
from sterna.errors import BranchChanged, CatalogError, Diverged, ReferenceNotFound
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.catalog_copy import CutOff, cut_off, primary_silence
from sterna.replica.head import Head, read_head
from sterna.replica.held import Held
from sterna.replica.lag import measure_lag
from sterna.replica.region import RegionContext


@dataclass(frozen=True)
class HeldNow:
    """A held key with its own lag, and what to do about it.

    Args:
        held: what the replica's head says of it.
        lag_seconds: since when it is behind.
        do: what an operator does.
        tries: how many syncs have reported it since, as far as their reports are still there; None where nobody looked.
        last_try: when the newest of them began (ISO 8601, UTC), "" when there is none.
    """

    held: Held
    lag_seconds: float | None
    do: str
    tries: int | None = None
    last_try: str = ""

    @property
    def line(self) -> str:
        """What people are told of it, in one line."""
        tried = f", tried {self.tries} times, last at {self.last_try}" if self.tries else ""
        return f"held {self.held.key} since {self.held.since}{tried}: {self.held.reason} {self.held.file} -> {self.do}"


@dataclass(frozen=True)
class Refused:
    """A key of `main` that may have no replica in a region.

    Args:
        key: key name.
        reason: the rule that says so.
        files, bytes: what the region still holds of it, from the time before the rule; None where nobody looked.
    """

    key: str
    reason: str
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Status:
    """One region's replica branch against `main`.

    Args:
        region, branch: which.
        replica_hash: the branch's head, "" when it doesn't exist yet.
        watermark: hash of `main` that it stands for, "" while it is being seeded.
        source_hash: `main`'s head.
        lag_seconds: from the first commit of `main` on while it is being seeded; None when there is a problem. Cut off:
            at most so much.
        last_run: id of the run that made the head.
        last_commit: when (ISO 8601, UTC), "" when never.
        held: keys that stay behind.
        other_registry: regions whose last commit was made with another registry than this one.
        problem: why the branch can't be used, or "".
        refused: keys of `main` that policies or residency keep off this region.
        unserved: the branch's head at the primary, where the region's own copy of the catalog does not serve it yet.
        cut_off: the primary does not answer: all else is what the region's own copy says. None when it does.
    """

    region: str
    branch: str
    replica_hash: str
    watermark: str
    source_hash: str
    lag_seconds: float | None
    last_run: str
    last_commit: str
    held: tuple[HeldNow, ...]
    other_registry: tuple[str, ...]
    problem: str = ""
    refused: tuple[Refused, ...] = ()
    unserved: str = ""
    cut_off: CutOff | None = None


def read_status(context: RegionContext) -> Status:
    """Read where a region stands; reads the catalog only. A primary that does not answer is left alone by the
    context from then on.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    branch = context.region.replica_branch
    problem, lag, head = "", None, Head("", exists=False)
    silence = primary_silence(context)
    if silence:
        context = context.without_primary()
    try:
        head = read_head(context.catalog, branch)
        lag = measure_lag(context)
    except (BranchChanged, Diverged) as error:
        problem = str(error)
        head = head if head.exists else Head(context.catalog.reference(branch).hash, exists=True)
    cut = cut_off(context, silence, head.watermark) if silence else None
    return Status(
        region=context.region.name,
        branch=branch,
        replica_hash=head.hash if head.exists else "",
        watermark=head.watermark,
        source_hash=context.primary.reference(SOURCE_BRANCH).hash,
        lag_seconds=max(lag, cut.silent_seconds or lag) if cut and lag is not None else lag,
        last_run=head.run_id,
        last_commit=head.commit_time.isoformat() if head.commit_time else "",
        held=tuple(_held_now(item) for item in head.held),
        other_registry=_other_registries(context),
        refused=_refused(context),
        problem=problem,
        unserved=_unserved(context, head),
        cut_off=cut,
    )


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


def _held_now(held: Held) -> HeldNow:
    lag = (datetime.now(UTC) - datetime.fromisoformat(held.since)).total_seconds() if held.since else None
    return HeldNow(held, lag, _ADVICE.get(held.kind, "it is tried again at every sync"))


_ADVICE = {
    "UnregisteredUri": "register the URI's prefix as a location; the next sync takes the table up",
    "UnsafeUri": "rewrite the file on main under another name; such a path is never followed",
    "Unsupported": "this version can't localize it; keep reading it from main",
    "BrokenMetadata": "repair the table on main",
    "SourceGone": "restore the file, or expire the snapshots on main that need it",
    "SizeDiffers": "the file at its origin isn't the one that main describes: repair the table on main",
    "Damaged": (
        "somebody wrote below the replica root: `sterna repair --deep` shows what is wrong, with --yes it mends it"
    ),
    "NotCopied": "see what the store says of that object: an archive class, a key of its own, a right that is missing",
    "StoreUnreachable": "see that the address named comes back; the table is tried again at every sync",
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
