"""Publishing: all changes of a plan in one commit on the replica branch, by compare-and-swap on its head."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from sterna.catalog.commit_once import NO_CHANGES, commit_once
from sterna.catalog.model import NAMESPACE, Content, Delete, Operation, Put, parse_key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Busy, CatalogConflict
from sterna.replication.plan.dependencies import Resolution, resolve_dependencies
from sterna.replication.replica import head as properties
from sterna.replication.replica.change_record import CHANGE_RECORD_PROPERTY, change_record_property
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import is_recorded, load_held_list, read_head, require_no_gc, require_own_commit
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import HeldList, build_held_list, write_held_list
from sterna.replication.replica.model import Action, Plan, StageReport
from sterna.replication.replica.region import Progress, RegionContext

_MAX_ATTEMPTS = 120  # a second apart: a clean-up deletes for half a minute at a time


def resolve_plan(plan: Plan, failed: StageReport) -> Resolution:
    """Take the tables that failed to be copied or localized, and those that wait for them, out of a plan."""
    held_if_failed = {held_key.key: held_key for held_key in plan.held_if_failed}
    faults = [
        Held(
            failure.table,
            failure.kind,
            failure.reason,
            failure.file,
            held_if_failed[failure.table].since,
            held_if_failed[failure.table].good,
        )
        for failure in failed.failed
        if failure.table in held_if_failed
    ]
    return resolve_dependencies(plan.actions, (*plan.held, *faults), plan.atomic_groups, held_if_failed, plan.relaxed)


def is_up_to_date(context: RegionContext, plan: Plan, resolution: Resolution) -> bool:
    """Return whether the replica branch records already all that a resolved plan would commit."""
    if resolution.actions or plan.more:
        return False
    head = read_head(context.primary, context.region.replica_branch)
    return head.hash == plan.replica_hash and is_recorded(
        load_held_list(context.objects, head), resolution.held, plan.source_hash, plan.digest, filtered=plan.filtered
    )


def publish_plan(
    context: RegionContext, plan: Plan, resolution: Resolution, progress: Progress, held: HeldList | None = None
) -> str | None:
    """Commit a resolved plan to the replica branch, after the list of held keys is written where the commit names it.

    Args:
        plan: made for the head that is expected.
        resolution: the actions to publish, and the held keys.
        held: the held keys that the commit lists; default: those of the resolved plan.

    Returns:
        The new head; None when another run of sterna was first, or a failover: its commit stays, and the next plan
        takes over the files of this one.

    Raises:
        BranchChanged: another writer committed to the branch.
        CatalogError, StoreError: the catalog, or the store with the replica root, does not answer; a later run resumes.
    """
    branch = context.region.replica_branch
    if context.registry.has_regional_catalogs and _is_rolled_back(context, plan):
        progress("a failover took back what this was planned for; nothing is published")
        return None
    held = held or build_held_list(resolution.held)
    write_held_list(context.objects, held)
    commit_properties = _commit_properties(context, plan, resolution, held)
    commit_properties[CHANGE_RECORD_PROPERTY] = change_record_property(
        context, context.primary, plan, resolution.actions, resolution.held
    )
    message = _message(plan, resolution, held.count)
    early_drops = _early_drops(resolution.actions)
    progress(f"publishing {len(resolution.actions)} changes on {branch}")
    catalog, expected = writer(context), plan.replica_hash
    try:
        if expected == catalog.no_ancestor():
            catalog.create_branch(branch)
        if early_drops:
            expected = _commit_early_drops(
                context, plan, early_drops, f"{message} (keys that change their kind)", commit_properties
            )
        operations = _operations(_remaining(resolution.actions, early_drops)) or NO_CHANGES
        return commit_once(
            catalog, branch, expected, operations, message, commit_properties, identified_by=[properties.RUN_ID]
        )
    except CatalogConflict as error:
        progress(f"the branch has moved: {error.message}")
        for commit in context.primary.history(branch, operations=False, until=plan.replica_hash):
            require_own_commit(branch, commit)
            if commit.properties[properties.RUN_ID] == plan.run_id:
                return commit.hash  # an earlier try of this very task made the branch, and it
        return None


def invalidate_plans(context: RegionContext, run_id: str) -> None:
    """Repeat the properties of the replica branch's head in a new commit, so that no earlier plan can be published.

    Called after files were overwritten on which such a plan may count.

    Args:
        run_id: names the commit.

    Raises:
        Busy: a clean-up deletes files, and does not come to an end.
        CatalogConflict: others were first, again and again.
        BranchChanged: the head isn't sterna's.
        CatalogError: the catalog doesn't answer.
    """
    branch = context.region.replica_branch
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            commit = next(iter(context.primary.history(branch, operations=False)))
            require_own_commit(branch, commit)
            require_no_gc(properties.parse_head(commit))
            commit_properties = {**commit.properties, properties.RUN_ID: run_id, properties.OVERWRITTEN_BY: run_id}
            message = f"sterna: {run_id} rewrote files"
            commit_once(
                writer(context),
                branch,
                commit.hash,
                NO_CHANGES,
                message,
                commit_properties,
                identified_by=[properties.RUN_ID],
            )
            return
        except (Busy, CatalogConflict):
            if not attempts_left:
                raise
            time.sleep(1.0)


def _is_rolled_back(context: RegionContext, plan: Plan) -> bool:
    """Return whether the primary lacks the plan's commit of `main`, or its head of the branch, since a failover."""
    catalog = context.primary
    head_exists = plan.replica_hash == catalog.no_ancestor() or catalog.exists(plan.replica_hash)
    if not (head_exists and catalog.exists(plan.source_hash)):
        return True
    if plan.source_hash == catalog.no_ancestor():
        return False  # planned for a `main` without any commit: there is none that a failover could have taken
    # It may be there and on `main` no more: on a branch that keeps what was lost.
    return all(commit.hash != plan.source_hash for commit in catalog.history(SOURCE_BRANCH, operations=False))


def _commit_early_drops(
    context: RegionContext, plan: Plan, early_drops: list[Action], message: str, commit_properties: dict[str, str]
) -> str:
    """Commit the drops of keys that change their kind; return the branch's head then.

    Nessie can't put another kind over a key in one commit: it reports an error, and commits it. The puts follow in a
    second commit; until then the branch's watermark is the old one, and a run that starts here compares all keys. A
    retry that finds its own first commit continues with the second.
    """
    first_half = {
        **commit_properties,
        properties.RUN_ID: f"{plan.run_id}-clears",
        properties.SOURCE_HASH: plan.watermark,
        properties.DIGEST: "",
    }
    return commit_once(
        writer(context),
        context.region.replica_branch,
        plan.replica_hash,
        _deletes(early_drops),
        message,
        {name: value for name, value in first_half.items() if value},
        identified_by=[properties.RUN_ID],
    )


def _operations(actions: Iterable[Action]) -> list[Operation]:
    """Deletes (children first), then namespaces (parents first), then views and tables."""
    all_actions = list(actions)
    deletes = _deletes(action for action in all_actions if action.change == "drop" or action.replaces)
    puts = sorted(
        (action for action in all_actions if action.change == "put"),
        key=lambda action: (action.kind != NAMESPACE, len(parse_key(action.key))),
    )
    return [*deletes, *(Put(parse_key(action.key), _content(action)) for action in puts)]


def _deletes(actions: Iterable[Action]) -> list[Operation]:
    keys = sorted((parse_key(action.key) for action in actions), key=len, reverse=True)
    return [Delete(key) for key in keys]


def _early_drops(actions: Iterable[Action]) -> list[Action]:
    """Return drops that have to be over before the rest.

    Of keys that change their kind, and of the keys below them.
    """
    all_actions = list(actions)
    changed_kinds = [parse_key(action.key) for action in all_actions if action.clears and action.change == "drop"]
    return [
        action
        for action in all_actions
        if action.change == "drop" and any(parse_key(action.key)[: len(key)] == key for key in changed_kinds)
    ]


def _remaining(actions: Iterable[Action], early_drops: list[Action]) -> list[Action]:
    """Return what is left for the second half; a rename from a key that is gone by then is a new key."""
    dropped = {action.key for action in early_drops}
    return [
        replace(action, content_id="", renamed_from="") if action.renamed_from in dropped else action
        for action in actions
        if action not in early_drops
    ]


def _content(action: Action) -> Content:
    content = Content.of(json.loads(action.content))
    return content.with_id(action.content_id or None)


def _commit_properties(context: RegionContext, plan: Plan, resolution: Resolution, held: HeldList) -> dict[str, str]:
    watermark = plan.watermark if plan.filtered or plan.more else plan.source_hash
    commit_properties = {
        properties.RUN_ID: plan.run_id,
        properties.REGION: plan.region,
        properties.SOURCE_REF: SOURCE_BRANCH,
        properties.SOURCE_HASH: watermark,
        properties.PLANNED_HASH: plan.source_hash,
        # What is left for later may have been made by an older registry: the next sync has to compare everything again.
        properties.DIGEST: "" if plan.filtered or plan.more else plan.digest,
        properties.REGISTRY: context.registry.digest(),
        properties.BINDINGS: properties.bindings_text(plan.bindings),
        properties.HELD: held.property_text,
        properties.COUNTS: properties.counts_text(
            Counter(f"{action.change} {action.kind}" for action in resolution.actions)
        ),
        properties.VERSION: sterna_version(),
        properties.RESTORED_OVER: plan.replica_hash if plan.restored_commits else "",
        properties.WATERMARK_RESET_FROM: plan.watermark_reset_from,
    }
    return {name: value for name, value in commit_properties.items() if value}


@cache
def sterna_version() -> str:
    """Return sterna's version; "unknown" where the folder was dropped in without its wheel."""
    try:
        return version("sterna")
    except PackageNotFoundError:
        return "unknown"


def _message(plan: Plan, resolution: Resolution, held_count: int) -> str:
    subject = f"{SOURCE_BRANCH}@{plan.source_hash[:12]}"
    if plan.restored_commits:
        subject = f"restores the branch over {plan.restored_commits}"
    if plan.watermark_reset_from:
        subject = f"{subject}, watermark reset from {plan.watermark_reset_from[:12]},"
    return f"sterna: {subject} in {plan.region}: {_counts_text(resolution.actions)}, {held_count} held"


def _counts_text(actions: Iterable[Action]) -> str:
    counts = Counter(action.change for action in actions if action.kind != NAMESPACE)
    return f"{counts['put']} put, {counts['drop']} dropped"
