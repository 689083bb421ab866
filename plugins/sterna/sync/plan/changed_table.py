"""One changed table or view in a plan: what of its new version the replica has already, and what it needs here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_VIEW, Content
from sterna.errors import BrokenMetadata, SourceGone
from sterna.registry.mapping import shown_by
from sterna.replica.editions import edition_at
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.replica.wanted import kept, left_out, shown_snapshot
from sterna.sync.plan.changes import Changes, shown_at
from sterna.sync.plan.in_parts import Dealing
from sterna.sync.plan.lanes import Brought, leaves_listing
from sterna.sync.plan.reading import metadata_here, read_metadata, view_uuid
from sterna.sync.plan.table_files import ReplicaLost, table_files, view_files

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.iceberg.metadata.table import TableMetadata


@dataclass(frozen=True)
class Lister:
    """How the tables of a plan are listed.

    Args:
        dealing: lists the files of those that have very many.
        leaves: those are left to the large lane.
        brought: by key name, what that one has brought whole.
    """

    dealing: Dealing
    leaves: bool
    brought: Mapping[str, Brought]

    def leaves_listing(self, brought: Brought | None, manifests: int) -> bool:
        """Tell whether it is left to the large lane to list so many new manifests."""
        return self.leaves and leaves_listing(brought, manifests)


def needs_here(context: RegionContext, action: Action, seen: Changes, lister: Lister) -> tuple[Action, pa.Table]:
    """Read what a changed table or view needs here.

    Args:
        context: the region.
        action: puts it.
        seen: the plan's candidates.
        lister: how tables are listed.

    Returns:
        The action, with what the metadata added; and the rows of its files.

    Raises:
        TableError: a file that is needed is gone, broken or unsupported.
        EngineError, StoreError: its files can't be listed.
        LeftToLargeLane: the large lane is to list them.
    """
    if action.kind == ICEBERG_VIEW:
        return _known_view(context, action, seen), view_files(action.key, action.source, action.target)
    from sterna.iceberg.metadata.history import pruned

    whole = read_metadata(context, action.source)
    action = _placed(context, action, whole)
    metadata = pruned(whole, kept(context.registry.policy(action.key), whole, shown_by(action.target)))
    at = shown_at(action, seen)
    proves = not _made_otherwise(context, action, at)
    here = None if action.replaces else metadata_here(context, at, needed=proves)
    if here is not None and here.uuid != metadata.uuid:
        action, here = replace(action, replaces=not action.renamed_from, content_id="", renamed_from=""), None
    action = _with_snapshots(action, whole, here)
    version, brought = _brought(context, action, metadata, lister)
    listed = partial(table_files, context, action.key, action.source, action.target, metadata)
    listed = partial(listed, dealing=lister.dealing, shown=bool(at))
    if version is not None:
        with suppress(ReplicaLost):
            return action, listed(version, leaves=partial(lister.leaves_listing, brought))
        brought = None
    listed = partial(listed, leaves=partial(lister.leaves_listing, brought))
    try:
        return action, listed(here if proves else None)
    except ReplicaLost:
        return action, listed(None)


def _placed(context: RegionContext, action: Action, metadata: TableMetadata) -> Action:
    """Return an action with the place that the table's metadata.json has here.

    The entry's snapshot may change without a new metadata.json on `main`: where the policy leaves it out, the replica's
    has another content, and so another name.
    """
    entry, policy = Content.of(json.loads(action.content)), context.registry.policy(action.key)
    shown = left_out(policy, metadata, shown_snapshot(entry))
    edition = edition_at(context.mapping, action.target)
    target = context.mapping.metadata(action.source, policy, edition, shown=shown)
    if target == action.target:
        return action
    return replace(action, target=target, content=json.dumps(entry.with_metadata_location(target).payload))


def _known_view(context: RegionContext, action: Action, seen: Changes) -> Action:
    """Return what puts a view, as another one than the replica has where their UUIDs differ.

    They are read only where the catalog's ids can't tell.
    """
    here = seen.candidates[action.key].replica
    if not action.content_id or here is None or action.renamed_from or seen.candidates[action.key].before:
        return action
    with suppress(SourceGone, BrokenMetadata):  # the replica's own, or what localizing it will tell of
        if view_uuid(context, action.source) != view_uuid(context, here.metadata_location or ""):
            return replace(action, replaces=True, content_id="")
    return action


def _brought(
    context: RegionContext, action: Action, metadata: TableMetadata, lister: Lister
) -> tuple[TableMetadata | None, Brought | None]:
    """Return what a table's version says of itself that the large lane has brought whole and that proves files, and
    what is known of it; None where there is none of this table.
    """
    brought = lister.brought.get(action.key)
    if brought is None or _made_otherwise(context, action, brought.moving.target):
        return None, None
    if not brought.proves:
        return None, brought
    found = metadata_here(context, brought.moving.target, needed=False)
    if found is None:
        return None, None
    return (found if found.uuid == metadata.uuid else None), brought  # made anew, it changes as fast as anything can


def _with_snapshots(action: Action, metadata: TableMetadata, here: TableMetadata | None) -> Action:
    """Add from which snapshot to which an action leads its table, and by what: that is told with the commit."""
    from sterna.iceberg.metadata.history import operations_since

    previous = here.current_snapshot_id if here else None
    # Where something stands here and can't be read, nobody knows where the way begins.
    operations = operations_since(metadata, previous) if here or not action.content_id else None
    return replace(action, snapshot=metadata.current_snapshot_id, previous=previous, operations=operations)


def _made_otherwise(context: RegionContext, action: Action, at: str) -> bool:
    """Tell whether the replica's version of a table at some place proves nothing of what is to be there.

    Its files are of another edition. Or residency rules by place may have come since: it proves that files are here,
    not that they may be.
    """
    mapping = context.mapping
    edition, made = edition_at(mapping, action.target), mapping.edition(at)
    if made is None or made.folder != edition.folder:
        return True
    digested = mapping.digest(context.registry.policy(action.key), edition.version)
    return bool(mapping.kept_out) and not any(f"-{digested}{end}" in at for end in (".", "-s"))
