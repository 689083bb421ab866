"""Restoring a replica branch: foreign changes are reverted, by one more commit on top of them.

The branch then has the content of sterna's newest commit again, for the same commit of `main`, and a sync continues
from there. Nothing is reset: the history keeps what happened. A table that is held meanwhile is at its last good
version, not at a foreign one.
"""

from __future__ import annotations

import json

from sterna.catalog.model import NAMESPACE, Commit, Content, DiffEntry, key_name
from sterna.config.registry.model import is_inside
from sterna.errors import BranchChanged, ReferenceNotFound
from sterna.replication.plan.dependencies import Resolution
from sterna.replication.replica.head import (
    PLANNED_HASH,
    RUN_ID,
    Head,
    describe_commit,
    load_held_list,
    parse_head,
    require_no_gc,
)
from sterna.replication.replica.ids import new_run_id
from sterna.replication.replica.model import Action, Plan
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.sync.publish import publish_plan


def restore_branch(context: RegionContext, progress: Progress) -> None:
    """Revert foreign changes on the replica branch; nothing is done where its head is sterna's own.

    Where no commit of sterna's is left in its history (the branch was assigned to something else), entries outside the
    replica root are dropped, and the next sync seeds the branch again.

    Raises:
        Busy: a clean-up is deleting files, below the foreign commits; it is over within seconds.
        BranchChanged: another writer committed once more meanwhile.
        CatalogError: the catalog does not answer; a retry resumes.
    """
    branch = context.region.replica_branch
    try:
        reference = context.primary.reference(branch)
    except ReferenceNotFound:
        return
    newest, count, own = _foreign_commits(context, f"{branch}@{reference.hash}")
    if newest is None:
        return
    if own is not None:
        require_no_gc(parse_head(own))
    others_text = f" and {count - 1} more before it" if count > 1 else ""
    head = load_held_list(context.objects, parse_head(own)) if own else Head(reference.hash, exists=True)
    plan = _build_plan(context, reference.hash, own, head, f"{describe_commit(newest)}{others_text}")
    progress(f"restoring {branch} over {plan.restored_commits}")
    publish_plan(context, plan, Resolution(plan.actions, plan.held), progress, head.held_list)


def _foreign_commits(context: RegionContext, branch: str) -> tuple[Commit | None, int, Commit | None]:
    """Return the newest commit that isn't sterna's, how many there are above sterna's own newest one, and that one."""
    newest, count = None, 0
    for commit in context.primary.history(branch, operations=False):
        if _is_own(commit):
            return newest, count, commit
        newest, count = newest or commit, count + 1
    return newest, count, None


def _is_own(commit: Commit) -> bool:
    try:
        return RUN_ID in commit.properties and bool(parse_head(commit).run_id)
    except BranchChanged:  # it has sterna's properties, with values that sterna doesn't write
        return False


def _build_plan(context: RegionContext, replica_hash: str, own: Commit | None, head: Head, foreign: str) -> Plan:
    """Return the operations that restore the content of sterna's own newest commit."""
    actions = _restore_actions(context, own.hash, replica_hash) if own else _drop_foreign(context, replica_hash)
    return Plan(
        run_id=new_run_id(),
        region=context.region.name,
        source_hash=own.properties.get(PLANNED_HASH, "") if own else "",
        watermark=head.watermark,
        replica_hash=replica_hash,
        digest="",
        bindings=head.bindings or {},
        filtered=True,  # the watermark stays, and the next sync compares everything
        actions=actions,
        held=head.held,
        was_held=tuple(held_key.key for held_key in head.held),
        restored_commits=foreign,
    )


def _restore_actions(context: RegionContext, own_hash: str, replica_hash: str) -> tuple[Action, ...]:
    changed = context.primary.diff(context.region.replica_branch, own_hash, replica_hash)
    return tuple(action for entry in changed for action in _undo(entry))


def _undo(entry: DiffEntry) -> list[Action]:
    """Return what gives a key back its older content.

    Under the id that it has now, where it still is of the same kind.
    """
    name, old, new = key_name(entry.key), entry.old, entry.new
    if new is not None and (old is None or old.kind != new.kind):
        drop = [Action(name, new.kind, "drop", clears=old is not None)]
        return drop if old is None else [*drop, _put(name, old, "")]
    return [_put(name, old, (new.id or "") if new else "")] if old is not None else []


def _put(name: str, content: Content, content_id: str) -> Action:
    target = content.metadata_location or ""
    return Action(name, content.kind, "put", json.dumps(content.with_id(None).payload), content_id, target=target)


def _drop_foreign(context: RegionContext, replica_hash: str) -> tuple[Action, ...]:
    """Return drops of all entries that sterna can't have put there.

    All content of a replica branch is below the replica root.
    """
    entries = context.primary.entries(context.region.replica_branch, replica_hash)
    root = context.region.replica_root
    return tuple(
        Action(key_name(key), content.kind, "drop")
        for key, content in entries
        if content.kind != NAMESPACE and not is_inside(content.metadata_location or "", root)
    )
