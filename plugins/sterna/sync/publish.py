"""Publishing: the whole batch in one commit on the replica branch, compared-and-swapped on its head."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from sterna.catalog.model import NAMESPACE, Commit, Content, Delete, Operation, Put, Unchanged, parse_key
from sterna.errors import CatalogConflict, CatalogStateUnknown
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica import head as properties
from sterna.replica.head import encode_held, head_of, is_recorded, newest_commit, read_head, refuse_foreign
from sterna.replica.held import Held
from sterna.replica.records import Action, Plan, StageReport
from sterna.replica.region import Progress, RegionContext
from sterna.sync.holds import Settled, settle

# Nessie accepts a commit without changes only when it names some key as unchanged; it needn't exist.
_NO_KEY = ("sterna",)


def settle_plan(plan: Plan, failed: StageReport) -> Settled:
    """Take the tables that failed to be copied or localized, and those that wait for them, out of a plan."""
    templates = {item.key: item for item in plan.since}
    faults = [
        Held(key, kind, message, file, templates[key].since, templates[key].good)
        for key, kind, message, file in failed.failed
        if key in templates
    ]
    return settle(plan.actions, (*plan.held, *faults), plan.together, templates, plan.relaxed)


def changes_nothing(context: RegionContext, plan: Plan, settled: Settled) -> bool:
    """Say whether the replica branch says already all that a settled plan would tell it."""
    if settled.actions or plan.more:
        return False
    head = read_head(context.primary, context.region.replica_branch)
    return head.hash == plan.replica_hash and is_recorded(
        head, settled.held, plan.source_hash, plan.digest, filtered=plan.filtered
    )


def publish_plan(context: RegionContext, plan: Plan, settled: Settled, progress: Progress) -> str | None:
    """Commit a settled plan to the replica branch.

    Args:
        context: the region.
        plan: made for the head that is expected.
        settled: what goes ahead and what is held.
        progress: called with lines for people.

    Returns:
        The new head; None when another run of sterna was first, or a failover: its work stands, ours is found by the
        next plan.

    Raises:
        BranchChanged: somebody else committed to the branch.
        CatalogError: the catalog does not answer; a later run resumes.
    """
    branch = context.region.replica_branch
    if context.registry.has_copies and _taken_back(context, plan):
        progress("a failover took back what this was planned for; nothing is published")
        return None
    found = _properties(context, plan, settled)
    message = _message(plan, settled)
    cleared = _cleared(settled.actions)
    progress(f"publishing {len(settled.actions)} changes on {branch}")
    try:
        expected = plan.replica_hash
        if expected == context.primary.no_ancestor():
            context.primary.create_branch(branch)
        if cleared:
            expected = _clear(context, plan, cleared, f"{message} (keys that change their kind)", found)
        return context.primary.commit(
            branch, expected, _operations(_rest(settled.actions, cleared)) or [Unchanged(_NO_KEY)], message, found
        )
    except (CatalogConflict, CatalogStateUnknown) as error:
        progress(f"commit not confirmed ({error.message}); looking at the branch's log")
        return _find_own(context, plan, error)


def _taken_back(context: RegionContext, plan: Plan) -> bool:
    """Say whether the primary is another one by now, and has not what the plan was made for.

    Its commit of `main`, or the branch's head.
    """
    catalog = context.primary
    known = plan.replica_hash == catalog.no_ancestor() or catalog.exists(plan.replica_hash)
    if not (known and catalog.exists(plan.source_hash)):
        return True
    # It may be there and on `main` no more: on a branch that keeps what was lost.
    return all(commit.hash != plan.source_hash for commit in catalog.history(SOURCE_BRANCH, operations=False))


def _clear(context: RegionContext, plan: Plan, cleared: list[Action], message: str, found: dict[str, str]) -> str:
    """Commit the drops of keys that change their kind; return the branch's head then.

    Nessie can't put another kind over a key in one commit: it says no, and does it. What follows is this commit's other
    half; until then the branch stands for what it stood for, and a run that finds it so looks at everything. A try that
    finds its own first half made goes on with the second.
    """
    branch, run_id = context.region.replica_branch, _half_of(plan)
    head = newest_commit(context.primary, branch)
    if head is not None and head.properties.get(properties.RUN_ID) == run_id:
        return head.hash
    half = {**found, properties.RUN_ID: run_id, properties.SOURCE_HASH: plan.watermark, properties.DIGEST: ""}
    try:
        properties_of_half = {name: value for name, value in half.items() if value}
        return context.primary.commit(branch, plan.replica_hash, _deletes(cleared), message, properties_of_half)
    except CatalogStateUnknown:
        head = newest_commit(context.primary, branch)
        if head is None or head.properties.get(properties.RUN_ID) != run_id:
            raise
        return head.hash


def _half_of(plan: Plan) -> str:
    return f"{plan.run_id}-clears"


def _find_own(context: RegionContext, plan: Plan, error: CatalogConflict | CatalogStateUnknown) -> str | None:
    """Look for our run id in the commits since the head that we expected.

    Raises:
        BranchChanged: one of them isn't sterna's.
        CatalogStateUnknown: the branch hasn't moved, or stands at our own first half: the commit may yet arrive.
    """
    branch = context.region.replica_branch
    commits: list[Commit] = list(context.primary.history(branch, operations=False, until=plan.replica_hash))
    for commit in commits:
        refuse_foreign(branch, commit)
        if head_of(commit).run_id == plan.run_id:
            return commit.hash
    ours = not commits or head_of(commits[0]).run_id == _half_of(plan)
    if ours and isinstance(error, CatalogStateUnknown):
        raise error
    return None


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


def _properties(context: RegionContext, plan: Plan, settled: Settled) -> dict[str, str]:
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
        properties.BINDINGS: json.dumps(plan.bindings, separators=(",", ":"), sort_keys=True),
        properties.HELD: encode_held(settled.held),
        properties.COUNTS: json.dumps(
            dict(Counter(f"{action.change} {action.kind}" for action in settled.actions)), sort_keys=True
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


def _message(plan: Plan, settled: Settled) -> str:
    what = (
        f"reasserts the branch over {plan.reasserts}" if plan.reasserts else f"{SOURCE_BRANCH}@{plan.source_hash[:12]}"
    )
    if plan.reseeded_from:
        what = f"{what}, reseeded from {plan.reseeded_from[:12]},"
    return f"sterna: {what} in {plan.region}: {_counts_text(settled.actions)}, {len(settled.held)} held"


def _counts_text(actions: Iterable[Action]) -> str:
    counts = Counter(action.change for action in actions if action.kind != NAMESPACE)
    return f"{counts['put']} put, {counts['drop']} dropped"
