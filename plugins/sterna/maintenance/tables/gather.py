"""Reads the inputs of retention: at the primary, under its term, since a follower may not have the newest pin yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE
from sterna.catalog.reader import CatalogReader
from sterna.config.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import BrokenMetadata, CredentialError, StoreError
from sterna.maintenance.deletion.dropped import read_dropped_versions
from sterna.maintenance.deletion.references import ReferencePoller, put_versions, read_versions
from sterna.maintenance.tables.facts import (
    ConsumerPosition,
    MainCommit,
    RegionState,
    RetentionInputs,
    UnknownPosition,
)
from sterna.maintenance.tables.retention import Retention, compute_retention
from sterna.pipelines.publish.model import transform_channel
from sterna.pipelines.publish.table_state import read_state
from sterna.replication.failover.certain_term import require_certain_term, require_same_term
from sterna.replication.replica.feature_position import read_feature_view_position
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.held import held_since
from sterna.replication.replica.held_list import EMPTY_HELD_LIST, read_held_list
from sterna.replication.replica.reachability import TableVersion
from sterna.replication.replica.region import RegionContext


def read_retention(
    context: RegionContext, settings: Maintenance, now: datetime
) -> tuple[RetentionInputs, Retention, ReferencePoller]:
    """Read what retention depends on, and compute it; expiry and sweeps go by nothing else.

    Raises:
        SternaError: as `read_inputs`.
    """
    inputs, references = read_inputs(context, settings, now)
    max_wait = timedelta(seconds=settings.max_wait)
    retention = compute_retention(inputs, max_wait=max_wait, exclude_regions=settings.excluded_regions)
    return inputs, retention, references


def read_inputs(
    context: RegionContext, settings: Maintenance, now: datetime
) -> tuple[RetentionInputs, ReferencePoller]:
    """Read all that retention depends on.

    Args:
        settings: which regions are left out, and for how long heads are kept.

    Returns:
        The inputs, and the poller of references, for later polls.

    Raises:
        UpkeepBlocked: which region is the primary isn't certain.
        Busy: the primary was switched meanwhile, or a branch was reset.
        BranchChanged: a replica branch was changed by another client.
        CatalogError, StoreError: something doesn't answer.
    """
    term = require_certain_term(context, settings.gone)
    references = ReferencePoller(context, (SOURCE_BRANCH, context.region.replica_branch))
    polled = tuple(references.poll())
    since = now - timedelta(seconds=settings.keep_heads)
    # The head of `main` last, so that the watermarks of all regions are behind it.
    regions = tuple(
        _read_region(context, region, since, now, reads_store=region.name not in settings.excluded_regions)
        for region in context.registry.regions
    )
    head = context.primary.reference(SOURCE_BRANCH).hash
    main = tuple(read_versions(context.primary, SOURCE_BRANCH, head))
    included = [region for region in regions if region.name not in settings.excluded_regions]
    commits, base = _read_history(context.primary, head, included)
    keys = {version.key for version in (*main, *base, *(version for commit in commits for version in commit.put))}
    transform_positions, unknown_transforms = read_transform_positions(context, settings, main)
    view_positions, unknown_views = _read_view_positions(context, settings)
    require_same_term(context, settings.gone, term)
    return RetentionInputs(
        now=now,
        head=head,
        main=main,
        commits=commits,
        base=base,
        references=tuple(reference for reference in polled if reference.name != SOURCE_BRANCH),
        regions=tuple(
            replace(region_state, excluded_keys=_excluded_keys(context.registry, region_state.name, keys))
            for region_state in regions
        ),
        term=term,
        consumer_positions=(*transform_positions, *view_positions),
        unknown_positions=(*unknown_transforms, *unknown_views),
    ), references


def read_transform_positions(
    context: RegionContext, settings: Maintenance, main: Iterable[TableVersion]
) -> tuple[tuple[ConsumerPosition, ...], tuple[UnknownPosition, ...]]:
    """Return the positions of the transforms, and the transforms whose applied position names no snapshot.

    A transform without a target, or without a position there, begins with all rows and needs no snapshot.

    Raises:
        BrokenMetadata: a target's metadata can't be read.
        StoreError: its store doesn't answer.
    """
    if not settings.transforms:
        return (), ()
    targets = {version.key: version for version in main if version.kind == ICEBERG_TABLE}
    positions, unknown = list[ConsumerPosition](), list[UnknownPosition]()
    for transform in settings.transforms:
        if transform.into not in targets:
            continue
        state = read_state(context, transform.into, targets[transform.into].metadata)
        applied_position = state.properties.get(transform_channel(transform.name).position_property, "")
        snapshot = applied_position.partition("/")[0]
        if snapshot.isdecimal():
            positions.append(ConsumerPosition(transform.source, int(snapshot), transform.name))
        elif applied_position:
            reason = f"transform {transform.name}: its applied position on {transform.into} names no snapshot"
            unknown.append(UnknownPosition(transform.source, context.region.name, reason))
    return tuple(positions), tuple(unknown)


def _read_view_positions(
    context: RegionContext, settings: Maintenance
) -> tuple[tuple[ConsumerPosition, ...], tuple[UnknownPosition, ...]]:
    """Return the positions of the feature views in each region that serves them, and the views of unknown position.

    A view that was never filled begins with all rows, and needs no snapshot.
    """
    features, positions, unknown = settings.features, list[ConsumerPosition](), list[UnknownPosition]()
    regions = [candidate for candidate in context.registry.regions if candidate.name not in settings.excluded_regions]
    for region in regions if features else ():
        for view in features.views if features and region.name in features.online else ():
            if context.registry.exclusion_reason(view.table, region.name):
                continue
            try:
                snapshot = read_feature_view_position(context.objects, region.replica_root, view.name, view.table)
            except (StoreError, CredentialError, BrokenMetadata) as error:
                reason = f"how far its view {view.name} of features is can't be read: {error.message}"
                unknown.append(UnknownPosition(view.table, region.name, reason))
                continue
            if snapshot is not None:
                positions.append(ConsumerPosition(view.table, snapshot, f"{region.name}/{view.name}"))
    return tuple(positions), tuple(unknown)


def _read_region(
    context: RegionContext, region: Region, since: datetime, now: datetime, *, reads_store: bool
) -> RegionState:
    """Return how far a region is; what it holds doesn't count where it is left out, and its store may be gone."""
    head = read_head(context.primary, region.replica_branch)
    if head.commit_time is None:
        return RegionState(region.name)
    held_list = EMPTY_HELD_LIST
    if reads_store:
        held_list = read_held_list(context.objects, head.held_list, region.replica_root)
    dropped = read_dropped_versions(context.of_region(region), head.hash, now)
    return RegionState(
        region.name,
        head.watermark,
        held_list.entries or (),
        held_list.read_error,
        (*read_head_versions(context.primary, region, head, since), *dropped),
    )


def read_head_versions(catalog: CatalogReader, region: Region, head: Head, since: datetime) -> Iterator[TableVersion]:
    """Yield what the heads of a replica branch put since a moment, and what the first of them showed."""
    for commit in catalog.history(f"{region.replica_branch}@{head.hash}", operations=True):
        yield from put_versions(commit)
        if commit.commit_time < since:
            yield from read_versions(catalog, region.replica_branch, commit.hash)
            return


def _read_history(
    catalog: CatalogReader, head: str, regions: Iterable[RegionState]
) -> tuple[tuple[MainCommit, ...], tuple[TableVersion, ...]]:
    """Return the commits of `main` back to the oldest that a region needs, and what `main` showed at that one."""
    unmet_hashes = {
        hash
        for region in regions
        for hash in (region.watermark, *(held_table.good for held_table in region.held))
        if hash
    }
    times = [held_since(held_table) for region in regions for held_table in region.held if not held_table.good]
    oldest = min((time for time in times if time is not None), default=None)
    commits: list[MainCommit] = []
    if head == catalog.no_ancestor():
        return (), ()
    for commit in catalog.history(f"{SOURCE_BRANCH}@{head}", operations=True):
        commits.append(MainCommit(commit.hash, commit.commit_time, tuple(put_versions(commit))))
        unmet_hashes.discard(commit.hash)
        if not unmet_hashes and (oldest is None or commit.commit_time < oldest):
            break
    return tuple(commits), tuple(read_versions(catalog, SOURCE_BRANCH, commits[-1].hash))


def _excluded_keys(registry: Registry, region: str, keys: Iterable[str]) -> frozenset[str]:
    candidates = keys if registry.has_exclusions else ()
    return frozenset(key for key in candidates if registry.exclusion_reason(key, region))
