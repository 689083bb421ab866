"""The one place where facts are gathered: at the primary, under its epoch.

A follower may not have the newest hold yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE, NAMESPACE, Commit, Content, Key, Put, Reference, key_name
from sterna.catalog.reader import CatalogReader
from sterna.errors import BrokenMetadata, CredentialError, ReferenceNotFound, StoreError
from sterna.ha.certain import certain_epoch, refuse_other_epoch
from sterna.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.replica.head import Head, read_head
from sterna.replica.held import held_since
from sterna.replica.held_list import read_list
from sterna.replica.region import RegionContext
from sterna.replica.tags import may_be_of
from sterna.replica.view_position import read_view_position
from sterna.services.upkeep import Upkeep
from sterna.upkeep.facts import Facts, Followed, MainCommit, RegionFacts, ShowingReference, Shown, Untold
from sterna.wap.model import flow_channel
from sterna.wap.state import read_state

OWN_COPY = "this region's copy of"


def gather(context: RegionContext, settings: Upkeep, now: datetime) -> tuple[Facts, References]:
    """Gather all that a horizon depends on.

    Args:
        context: the region that asks.
        settings: which regions are left out, and for how long heads are kept.
        now: the time.

    Returns:
        The facts, and the references, to be looked at again.

    Raises:
        UpkeepBlocked: which region is the primary isn't certain.
        Busy: the primary was switched meanwhile, or a branch was reset.
        BranchChanged: a replica branch was changed by somebody else.
        CatalogError, StoreError: something doesn't answer.
    """
    epoch = certain_epoch(context, settings.gone)
    references = References(context)
    found = references.look()
    since = now - timedelta(seconds=settings.heads)
    # The head of `main` last: what regions stand for then lies behind it.
    regions = tuple(_region(context, region, since) for region in context.registry.regions)
    head = context.primary.reference(SOURCE_BRANCH).hash
    main = tuple(tables_at(context.primary, SOURCE_BRANCH, head))
    counted = [region for region in regions if region.name not in settings.left_out]
    commits, base = _history(context.primary, head, counted)
    keys = {shown.key for shown in (*main, *base, *(shown for commit in commits for shown in commit.put))}
    flows, unread = read_by_flows(context, settings, main)
    viewed, untold = _views(context, settings)
    refuse_other_epoch(context, settings.gone, epoch)
    return Facts(
        now=now,
        head=head,
        main=main,
        commits=commits,
        base=base,
        references=tuple(each for each in found if each.name != SOURCE_BRANCH),
        regions=tuple(replace(each, refused=_refused(context.registry, each.name, keys)) for each in regions),
        epoch=epoch,
        followed=(*flows, *viewed),
        untold=(*unread, *untold),
    ), references


def read_by_flows(
    context: RegionContext, settings: Upkeep, main: Iterable[Shown]
) -> tuple[tuple[Followed, ...], tuple[Untold, ...]]:
    """Return how far the flows have come, and those whose marks name no snapshot.

    One that has no target yet, or no mark there, begins anew and needs nothing.

    Raises:
        BrokenMetadata: a target's metadata can't be read.
        StoreError: its store doesn't answer.
    """
    if not settings.flows:
        return (), ()
    targets = {shown.key: shown for shown in main if shown.kind == ICEBERG_TABLE}
    found, untold = list[Followed](), list[Untold]()
    for flow in settings.flows:
        if flow.into not in targets:
            continue
        told = read_state(context, flow.into, targets[flow.into].metadata)
        mark = told.properties.get(flow_channel(flow.name).mark, "")
        snapshot = mark.partition("/")[0]
        if snapshot.isdecimal():
            found.append(Followed(flow.source, int(snapshot), flow.name))
        elif mark:
            reason = f"how far the flow {flow.name} is can't be told: its mark on {flow.into} names no snapshot"
            untold.append(Untold(flow.source, context.region.name, reason))
    return tuple(found), tuple(untold)


def _views(context: RegionContext, settings: Upkeep) -> tuple[tuple[Followed, ...], tuple[Untold, ...]]:
    """Return how far the views of features are in each region that has a store of them, and those that nobody tells of.

    A view that was never filled begins with all rows, and needs nothing.
    """
    features, found, untold = settings.features, list[Followed](), list[Untold]()
    regions = [each for each in context.registry.regions if each.name not in settings.left_out]
    for region in regions if features else ():
        for view in features.views if features and region.name in features.online else ():
            if context.registry.refusal(view.table, region.name):
                continue
            try:
                snapshot = read_view_position(context.objects, region.replica_root, view.name, view.table)
            except (StoreError, CredentialError, BrokenMetadata) as error:
                reason = f"how far its view {view.name} of features is can't be read: {error.message}"
                untold.append(Untold(view.table, region.name, reason))
                continue
            if snapshot is not None:
                found.append(Followed(view.table, snapshot, f"{region.name}/{view.name}"))
    return tuple(found), tuple(untold)


class References:
    """All branches and tags, and what this region's own copy of the catalog shows of `main` and of its replica. The
    second look, and each one after it, costs what changed since.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._looked: dict[str, str] = {}

    def look(self) -> tuple[ShowingReference, ...]:
        """Return what the references show; of one that was looked at before, what was put there since."""
        context, found = self._context, []
        for reference in context.primary.references():
            found += self._news(context.primary, reference, reference.name)
        if context.catalog is not context.primary:
            for branch in (SOURCE_BRANCH, context.region.replica_branch):
                found += self._served(branch)
        return tuple(found)

    def _served(self, branch: str) -> list[ShowingReference]:
        try:
            reference = self._context.catalog.reference(branch)
        except ReferenceNotFound:
            return []  # the copy has not got it yet: nobody reads it there
        return self._news(self._context.catalog, reference, f"{OWN_COPY} {branch}")

    def _news(self, catalog: CatalogReader, reference: Reference, name: str) -> list[ShowingReference]:
        known = self._looked.get(name)
        if reference.hash in (known, catalog.no_ancestor()):
            return []
        try:
            if known is None:
                shown = tuple(tables_at(catalog, reference.name, reference.hash))
            else:
                changes = catalog.diff(reference.name, known, reference.hash)
                shown = tuple(_shown((entry.key, entry.new) for entry in changes if entry.new is not None))
        except ReferenceNotFound:
            if reference.name in {each.name for each in catalog.references()}:
                raise  # it moved, or the catalog has forgotten what it was: a later run looks anew
            return []
        self._looked[name] = reference.hash
        return [ShowingReference(name, shown, _replica_of(self._context.registry, reference))]


def _replica_of(registry: Registry, reference: Reference) -> str:
    """Return the region whose replica a reference shows, "" where that isn't certain."""
    for region in registry.regions:
        if reference.name == region.replica_branch:
            return region.name
    # One region's name may begin as another's does: then it isn't certain.
    fits = [
        region.name for region in registry.regions if reference.kind == "TAG" and may_be_of(region.name, reference.name)
    ]
    return fits[0] if len(fits) == 1 else ""


def _region(context: RegionContext, region: Region, since: datetime) -> RegionFacts:
    head = read_head(context.primary, region.replica_branch)
    if head.commit_time is None:
        return RegionFacts(region.name)
    listed = read_list(context.objects, head.listed, region.replica_root)
    return RegionFacts(
        region.name,
        head.watermark,
        listed.entries or (),
        listed.lost,
        tuple(kept_heads(context.primary, region, head, since)),
    )


def kept_heads(catalog: CatalogReader, region: Region, head: Head, since: datetime) -> Iterator[Shown]:
    """Yield what the heads of a replica branch put since a moment, and what the first of them showed."""
    for commit in catalog.history(f"{region.replica_branch}@{head.hash}", operations=True):
        yield from _put(commit)
        if commit.commit_time < since:
            yield from tables_at(catalog, region.replica_branch, commit.hash)
            return


def _history(
    catalog: CatalogReader, head: str, regions: Iterable[RegionFacts]
) -> tuple[tuple[MainCommit, ...], tuple[Shown, ...]]:
    """Return the commits of `main` back to the oldest that a region asks for, and what stood at the last of them."""
    wanted = {hash for region in regions for hash in (region.watermark, *(item.good for item in region.held)) if hash}
    times = [held_since(item) for region in regions for item in region.held if not item.good]
    oldest = min((time for time in times if time is not None), default=None)
    commits: list[MainCommit] = []
    if head == catalog.no_ancestor():
        return (), ()
    for commit in catalog.history(f"{SOURCE_BRANCH}@{head}", operations=True):
        commits.append(MainCommit(commit.hash, commit.commit_time, tuple(_put(commit))))
        wanted.discard(commit.hash)
        if not wanted and (oldest is None or commit.commit_time < oldest):
            break
    return tuple(commits), tuple(tables_at(catalog, SOURCE_BRANCH, commits[-1].hash))


def _refused(registry: Registry, region: str, keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key for key in keys if registry.refusal(key, region)) if registry.refuses else frozenset()


def tables_at(catalog: CatalogReader, reference: str, hash: str) -> Iterator[Shown]:
    """Yield what a reference shows at a commit."""
    if hash != catalog.no_ancestor():
        yield from _shown(catalog.entries(reference, hash))


def _put(commit: Commit) -> Iterator[Shown]:
    return _shown((put.key, put.content) for put in commit.operations or () if isinstance(put, Put))


def _shown(entries: Iterable[tuple[Key, Content]]) -> Iterator[Shown]:
    for key, content in entries:
        if content.kind != NAMESPACE:
            snapshot = content.payload.get("snapshotId")
            current = snapshot if isinstance(snapshot, int) and snapshot >= 0 else None  # Nessie says -1 for none
            yield Shown(key_name(key), content.kind, content.metadata_location or "", current)
