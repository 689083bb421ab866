"""Publishing: the whole batch in one commit on the replica branch, compared-and-swapped on its head."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from sterna.catalog.commit_once import NOTHING, commit_once
from sterna.catalog.model import NAMESPACE, Content, Delete, Operation, Put, parse_key
from sterna.errors import Busy, CatalogConflict
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica import head as properties
from sterna.replica.head import is_recorded, read_head, refuse_deleting, refuse_foreign, with_held
from sterna.replica.held import Held
from sterna.replica.held_list import HeldList, held_list, write_list
from sterna.replica.news import NEWS, news_property
from sterna.replica.records import Action, Plan, StageReport
from sterna.replica.region import Progress, RegionContext
from sterna.replica.writing import writer
from sterna.sync.holds import Settled, settle

_TRIES = 120  # a second apart: a clean-up deletes for half a minute at a time


def settle_plan(plan: Plan, failed: StageReport) -> Settled:
    """Take the tables that failed to be copied or localized, and those that wait for them, out of a plan."""
    templates = {item.key: item for item in plan.since}
    faults = [
        Held(each.table, each.kind, each.reason, each.file, templates[each.table].since, templates[each.table].good)
        for each in failed.failed
        if each.table in templates
    ]
    return settle(plan.actions, (*plan.held, *faults), plan.together, templates, plan.relaxed)


def changes_nothing(context: RegionContext, plan: Plan, settled: Settled) -> bool:
    """Say whether the replica branch says already all that a settled plan would tell it."""
    if settled.actions or plan.more:
        return False
    head = read_head(context.primary, context.region.replica_branch)
    return head.hash == plan.replica_hash and is_recorded(
        with_held(context.objects, head), settled.held, plan.source_hash, plan.digest, filtered=plan.filtered
    )


def publish_plan(
    context: RegionContext, plan: Plan, settled: Settled, progress: Progress, listed: HeldList | None = None
) -> str | None:
    """Commit a settled plan to the replica branch, once the list of what is held stands where the commit says.

    Args:
        context: the region.
        plan: made for the head that is expected.
        settled: what goes ahead and what is held.
        progress: called with lines for people.
        listed: what the commit says of held keys; default: those of the settled plan.

    Returns:
        The new head; None when another run of sterna was first, or a failover: its work stands, ours is found by the
        next plan.

    Raises:
        BranchChanged: somebody else committed to the branch.
        CatalogError, StoreError: the catalog, or the store with the replica root, does not answer; a later run resumes.
    """
    branch = context.region.replica_branch
    if context.registry.has_copies and _taken_back(context, plan):
        progress("a failover took back what this was planned for; nothing is published")
        return None
    listed = listed or held_list(settled.held)
    write_list(context.objects, listed)
    found = _properties(context, plan, settled, listed)
    found[NEWS] = news_property(context, context.primary, plan, settled.actions, settled.held)
    message = _message(plan, settled, listed.count)
    cleared = _cleared(settled.actions)
    progress(f"publishing {len(settled.actions)} changes on {branch}")
    catalog, expected = writer(context), plan.replica_hash
    try:
        if expected == catalog.no_ancestor():
            catalog.create_branch(branch)
        if cleared:
            expected = _clear(context, plan, cleared, f"{message} (keys that change their kind)", found)
        operations = _operations(_rest(settled.actions, cleared)) or NOTHING
        return commit_once(catalog, branch, expected, operations, message, found, named_by=[properties.RUN_ID])
    except CatalogConflict as error:
        progress(f"the branch has moved: {error.message}")
        for commit in context.primary.history(branch, operations=False, until=plan.replica_hash):
            refuse_foreign(branch, commit)
            if commit.properties[properties.RUN_ID] == plan.run_id:
                return commit.hash  # an earlier try of this very task made the branch, and it
        return None


def overtake(context: RegionContext, run_id: str) -> None:
    """Say once more what the replica branch's head says: whatever was planned before is published no more.

    For who wrote over files that such a plan may count on.

    Args:
        context: the region.
        run_id: names the commit.

    Raises:
        Busy: a clean-up deletes files, and does not come to an end.
        CatalogConflict: others were first, again and again.
        BranchChanged: the head isn't sterna's.
        CatalogError: the catalog doesn't answer.
    """
    branch = context.region.replica_branch
    for left in reversed(range(_TRIES)):
        try:
            commit = next(iter(context.primary.history(branch, operations=False)))
            refuse_foreign(branch, commit)
            refuse_deleting(properties.head_of(commit))
            found = {**commit.properties, properties.RUN_ID: run_id, properties.WROTE_ANEW: run_id}
            message = f"sterna: {run_id} wrote files anew"
            commit_once(writer(context), branch, commit.hash, NOTHING, message, found, named_by=[properties.RUN_ID])
            return
        except (Busy, CatalogConflict):
            if not left:
                raise
            time.sleep(1.0)


def _taken_back(context: RegionContext, plan: Plan) -> bool:
    """Say whether the primary is another one by now, and has not what the plan was made for.

    Its commit of `main`, or the branch's head.
    """
    catalog = context.primary
    known = plan.replica_hash == catalog.no_ancestor() or catalog.exists(plan.replica_hash)
    if not (known and catalog.exists(plan.source_hash)):
        return True
    if plan.source_hash == catalog.no_ancestor():
        return False  # planned for a `main` without any commit: there is none that a failover could have taken
    # It may be there and on `main` no more: on a branch that keeps what was lost.
    return all(commit.hash != plan.source_hash for commit in catalog.history(SOURCE_BRANCH, operations=False))


def _clear(context: RegionContext, plan: Plan, cleared: list[Action], message: str, found: dict[str, str]) -> str:
    """Commit the drops of keys that change their kind; return the branch's head then.

    Nessie can't put another kind over a key in one commit: it says no, and does it. What follows is this commit's other
    half; until then the branch stands for what it stood for, and a run that finds it so looks at everything. A try that
    finds its own first half made goes on with the second.
    """
    half = {
        **found,
        properties.RUN_ID: f"{plan.run_id}-clears",
        properties.SOURCE_HASH: plan.watermark,
        properties.DIGEST: "",
    }
    return commit_once(
        writer(context),
        context.region.replica_branch,
        plan.replica_hash,
        _deletes(cleared),
        message,
        {name: value for name, value in half.items() if value},
        named_by=[properties.RUN_ID],
    )


def _operations(actions: Iterable[Action]) -> list[Operation]:
    """Deletes (children first), then namespaces (parents first), then views and tables."""
    listed = list(actions)
    deletes = _deletes(action for action in listed if action.change == "drop" or action.replaces)
    puts = sorted(
        (action for action in listed if action.change == "put"),
        key=lambda action: (action.kind != NAMESPACE, len(parse_key(action.key))),
    )
    return [*deletes, *(Put(parse_key(action.key), _content(action)) for action in puts)]


def _deletes(actions: Iterable[Action]) -> list[Operation]:
    keys = sorted((parse_key(action.key) for action in actions), key=len, reverse=True)
    return [Delete(key) for key in keys]


def _cleared(actions: Iterable[Action]) -> list[Action]:
    """Return drops that have to be over before the rest.

    Of keys that change their kind, and of what stands below them.
    """
    listed = list(actions)
    changing = [parse_key(action.key) for action in listed if action.clears and action.change == "drop"]
    return [
        action
        for action in listed
        if action.change == "drop" and any(parse_key(action.key)[: len(key)] == key for key in changing)
    ]


def _rest(actions: Iterable[Action], cleared: list[Action]) -> list[Action]:
    """Return what is left for the second half; a rename from a key that is gone by then is a new key."""
    gone = {action.key for action in cleared}
    return [
        replace(action, content_id="", renamed_from="") if action.renamed_from in gone else action
        for action in actions
        if action not in cleared
    ]


def _content(action: Action) -> Content:
    content = Content.of(json.loads(action.content))
    return content.with_id(action.content_id or None)


def _properties(context: RegionContext, plan: Plan, settled: Settled, listed: HeldList) -> dict[str, str]:
    watermark = plan.watermark if plan.filtered or plan.more else plan.source_hash
    found = {
        properties.RUN_ID: plan.run_id,
        properties.REGION: plan.region,
        properties.SOURCE_REF: SOURCE_BRANCH,
        properties.SOURCE_HASH: watermark,
        properties.PLANNED_HASH: plan.source_hash,
        # What is left for later may have been made by an older registry: the next sync has to look at everything again.
        properties.DIGEST: "" if plan.filtered or plan.more else plan.digest,
        properties.REGISTRY: context.registry.digest(),
        properties.BINDINGS: properties.bindings_text(plan.bindings),
        properties.HELD: listed.property,
        properties.COUNTS: properties.counts_text(
            Counter(f"{action.change} {action.kind}" for action in settled.actions)
        ),
        properties.VERSION: sterna_version(),
        properties.REASSERTED: plan.replica_hash if plan.reasserts else "",
        properties.RESEEDED: plan.reseeded_from,
    }
    return {name: value for name, value in found.items() if value}


@cache
def sterna_version() -> str:
    """Return sterna's version; "unknown" where the folder was dropped in without its wheel."""
    try:
        return version("sterna")
    except PackageNotFoundError:
        return "unknown"


def _message(plan: Plan, settled: Settled, held: int) -> str:
    what = (
        f"reasserts the branch over {plan.reasserts}" if plan.reasserts else f"{SOURCE_BRANCH}@{plan.source_hash[:12]}"
    )
    if plan.reseeded_from:
        what = f"{what}, reseeded from {plan.reseeded_from[:12]},"
    return f"sterna: {what} in {plan.region}: {_counts_text(settled.actions)}, {held} held"


def _counts_text(actions: Iterable[Action]) -> str:
    counts = Counter(action.change for action in actions if action.kind != NAMESPACE)
    return f"{counts['put']} put, {counts['drop']} dropped"
