"""One changed table or view in a plan: what of its new version the replica has already, and what it needs here."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_VIEW, Content
from sterna.catalog.tables import content_snapshot_id
from sterna.config.metadata_names import extra_snapshot_id, metadata_digest
from sterna.errors import BrokenMetadata, SourceGone
from sterna.libraries import pa
from sterna.replication.plan.admission import CompletedTable
from sterna.replication.plan.branch_diff import Changes, shown_metadata_uri
from sterna.replication.plan.metadata_reader import read_metadata, read_replica_metadata, read_view_uuid
from sterna.replication.plan.sharded_listing import ShardedListing
from sterna.replication.plan.table_files import ReplicaFileMissing, list_table_files, list_view_files
from sterna.replication.replica.desired_state import excluded_snapshot, retained_snapshots
from sterna.replication.replica.metadata_version import target_metadata_version
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.iceberg.metadata.table import TableMetadata


def read_needed_files(
    context: RegionContext, action: Action, changes: Changes, listing: ShardedListing
) -> tuple[Action, pa.Table]:
    """Read what a changed table or view needs here.

    Args:
        changes: the plan's candidates.
        listing: of the plan's tables.

    Returns:
        The action, with what the metadata added, and the version that proves what is left out; and the rows of its
        files.

    Raises:
        TableError: a file that is needed is gone, broken or unsupported.
        EngineError, StoreError: its files can't be listed.
        DeferredToBulk: the large lane is to list them.
    """
    if action.kind == ICEBERG_VIEW:
        return _with_view_identity(context, action, changes), list_view_files(action.key, action.source, action.target)
    from sterna.iceberg.metadata.history import prune_snapshots

    full_metadata = read_metadata(context, action.source)
    action = _with_target(context, action, full_metadata)
    metadata = prune_snapshots(
        full_metadata,
        retained_snapshots(context.registry.policy(action.key), full_metadata, extra_snapshot_id(action.target)),
    )
    shown_uri = shown_metadata_uri(action, changes)
    proves = not _proves_nothing(context, action, shown_uri)
    replica_metadata = None if action.replaces else read_replica_metadata(context, shown_uri, required=proves)
    if replica_metadata is not None and replica_metadata.uuid != metadata.uuid:
        action = replace(action, replaces=not action.renamed_from, content_id="", renamed_from="")
        replica_metadata = None
    action = _with_snapshots(action, full_metadata, replica_metadata)
    completed_metadata, completed = _completed_version(context, action, metadata, listing)
    list_files = partial(list_table_files, context, action.key, action.source, action.target, metadata)
    list_content = partial(listing.list_content, is_shown=bool(shown_uri))
    if completed is not None and completed_metadata is not None:
        with suppress(ReplicaFileMissing):
            rows = list_files(completed_metadata, list_content=partial(list_content, completed=completed))
            return _with_proof(context, action, completed.bulk_table.target), rows
        completed = None
    list_files = partial(list_files, list_content=partial(list_content, completed=completed))
    if proves and replica_metadata is not None:
        with suppress(ReplicaFileMissing):
            return _with_proof(context, action, shown_uri), list_files(replica_metadata)
    return _with_proof(context, action, ""), list_files(None)


def _with_proof(context: RegionContext, action: Action, uri: str) -> Action:
    """Return an action with the version that proves what its plan leaves out; only markers of verbatim copies need it.

    Elsewhere a plan is as versions before read it.
    """
    return replace(action, proven_by=uri) if context.region.verbatim_copies else action


def _with_target(context: RegionContext, action: Action, metadata: TableMetadata) -> Action:
    """Return an action with the place that the table's metadata.json has here.

    The entry's snapshot may change without a new metadata.json on `main`: where the policy leaves it out, the replica's
    has another content, and so another name.
    """
    entry, policy = Content.of(json.loads(action.content)), context.registry.policy(action.key)
    shown = excluded_snapshot(policy, metadata, content_snapshot_id(entry))
    metadata_version = target_metadata_version(context.mapping, action.target)
    target = context.mapping.metadata_uri(action.source, policy, metadata_version, extra_snapshot_id=shown)
    if target == action.target:
        return action
    return replace(action, target=target, content=json.dumps(entry.with_metadata_location(target).payload))


def _with_view_identity(context: RegionContext, action: Action, changes: Changes) -> Action:
    """Return what puts a view, as another one than the replica has where their UUIDs differ.

    They are read only where the catalog's ids don't show it.
    """
    replica = changes.candidates[action.key].replica
    if not action.content_id or replica is None or action.renamed_from or changes.candidates[action.key].before:
        return action
    with suppress(SourceGone, BrokenMetadata):  # the replica's own file, or a fault that localizing will report
        if read_view_uuid(context, action.source) != read_view_uuid(context, replica.metadata_location or ""):
            return replace(action, replaces=True, content_id="")
    return action


def _completed_version(
    context: RegionContext, action: Action, metadata: TableMetadata, listing: ShardedListing
) -> tuple[TableMetadata | None, CompletedTable | None]:
    """Return the metadata of the table's version that the large lane has completed, where that proves files, and its
    record; None where there is none of this table.
    """
    completed = listing.completed.get(action.key)
    if completed is None or _proves_nothing(context, action, completed.bulk_table.target):
        return None, None
    if not completed.proves:
        return None, completed
    completed_metadata = read_replica_metadata(context, completed.bulk_table.target, required=False)
    if completed_metadata is None:
        return None, None
    # A table that was created again (another UUID) counts as one that changes fast.
    return completed_metadata if completed_metadata.uuid == metadata.uuid else None, completed


def _with_snapshots(action: Action, metadata: TableMetadata, replica_metadata: TableMetadata | None) -> Action:
    """Add the snapshots between which an action changes its table, and the operations: the commit records them."""
    from sterna.iceberg.metadata.history import operations_since

    previous = replica_metadata.current_snapshot_id if replica_metadata else None
    # Where the replica's metadata can't be read the previous snapshot is unknown.
    operations = operations_since(metadata, previous) if replica_metadata or not action.content_id else None
    return replace(action, snapshot=metadata.current_snapshot_id, previous=previous, operations=operations)


def _proves_nothing(context: RegionContext, action: Action, uri: str) -> bool:
    """Return whether the replica's metadata of a table at some URI proves none of the files that are needed.

    Its files are of another metadata version. Or residency rules by place were added since: it proves that files are
    here, not that they may be.
    """
    mapping = context.mapping
    metadata_version, current_version = target_metadata_version(mapping, action.target), mapping.metadata_version(uri)
    if current_version is None or current_version.folder != metadata_version.folder:
        return True
    policy_digest = mapping.digest(context.registry.policy(action.key), metadata_version.localizer_version)
    return bool(mapping.excluded_places) and metadata_digest(uri) != policy_digest
