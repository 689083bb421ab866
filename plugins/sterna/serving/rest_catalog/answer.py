"""The answer to a commit: what `main` has now, localized for this one table or view.

The files of the table's earlier version are here, and the new ones are this region's own: nothing is copied, and no
sync stands in the request. The localized files have the URIs and bytes that the next sync would write: it finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from sterna.catalog.model import NAMESPACE, Content, Key, key_name
from sterna.errors import SternaError
from sterna.libraries import pa
from sterna.replication.plan.branch_diff import Candidate, Changes
from sterna.replication.plan.changed_table import read_needed_files
from sterna.replication.plan.inventory import take_inventory
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.sharded_listing import ShardedListing
from sterna.replication.replica import run_folder
from sterna.replication.replica.desired_state import desired_content
from sterna.replication.replica.ids import new_run_id
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.localize import localize_files


def stands_for(context: RegionContext, key: Key, shown: Content | None, source: Content) -> bool:
    """Return whether what this region shows under a key is what `main` has.

    Args:
        shown: the content that clients of this region see; None: nothing.
        source: the content on `main`.
    """
    return shown is not None and _replica_content(context, key, source, shown) == shown.with_id(None)


def replaced_contents(
    context: RegionContext,
    before: Mapping[Key, Content | None],
    after: Mapping[Key, Content | None],
    shown: Mapping[Key, Content | None],
) -> dict[Key, Content]:
    """Return, by key that a commit has changed, what a sync may still publish that was planned before.

    Args:
        before, after: what `main` had, and has; None: nothing.
        shown: what clients of this region saw before.
    """
    changed = {key: source for key, source in before.items() if source is not None and source != after[key]}
    localized = {key: _replica_content(context, key, source, shown[key]) for key, source in changed.items()}
    return {key: content for key, content in localized.items() if content is not None}


def _replica_content(context: RegionContext, key: Key, source: Content, shown: Content | None) -> Content | None:
    """Return what the replica branch will have for what `main` has under a key; None: this region can't show that."""
    try:
        return desired_content(context, key_name(key), source, shown)
    except SternaError:
        return None


def localize_entry(context: RegionContext, key: Key, source: Content, shown: Content | None) -> Content | None:
    """Localize a table or view as `main` has it, and return the content that this region's replica branch will have.

    Args:
        source: the content on `main`.
        shown: the earlier version of it that clients of this region see, all of whose files are here; None: none.

    Returns:
        The content, without id; None where files have to be copied before, or this region can't show it: that is for
        a sync.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
    """
    name = key_name(key)
    desired = desired_content(context, name, source, shown)
    if source.kind == NAMESPACE:
        return desired
    action = Action(
        key=name,
        kind=source.kind,
        change="put",
        content=json.dumps(desired.payload),
        content_id=(shown and shown.id) or "",
        source=source.metadata_location or "",
        target=desired.metadata_location or "",
    )
    action, files = _needed_files(context, key, action, source, shown)
    return Content.of(json.loads(action.content)) if _localize(context, name, files) else None


def _needed_files(
    context: RegionContext, key: Key, action: Action, source: Content, shown: Content | None
) -> tuple[Action, pa.Table]:
    changes = Changes("", {action.key: Candidate(key, source, shown)})
    return read_needed_files(context, action, changes, ShardedListing(context))


def _localize(context: RegionContext, name: str, files: pa.Table) -> bool:
    """Localize some files if nothing has to be copied for them; return whether that was done."""
    inventory, faults = take_inventory(context, {name: files}, SyncOptions())
    if inventory is None or faults or inventory.batches or inventory.size_mismatches:
        return False
    run = run_folder.run_uri(context, new_run_id())
    return not localize_files(context, run, inventory.files, _work_here, _quiet).failed


def _work_here(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    """Localize in this process: an answer doesn't wait for Spark."""
    return [function(item) for item in items]


def _quiet(line: str) -> None:
    """Progress isn't reported: an answer takes a moment."""
