"""The plan: `main` at one commit against a replica branch, and which files that takes. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sterna.config.mapping import validate_bindings
from sterna.libraries import pa
from sterna.replication.execution.source_sizes import Outages
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.plan.admission import (
    LargeLane,
    held_in_transit,
    hold_large_tables,
    needs_bulk_run,
    read_large_lane,
)
from sterna.replication.plan.batch_sources import assign_sources, egress_cost
from sterna.replication.plan.branch_diff import Changes, find_changes, with_published_versions
from sterna.replication.plan.dependencies import Resolution, resolve_dependencies
from sterna.replication.plan.inventory import Inventory
from sterna.replication.plan.key_diff import Draft, compare, held_entry, paused_entries, seed_group, waiting_to_ship
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.quarantine import Quarantine, TableReader
from sterna.replication.plan.sharded_listing import ShardedListing
from sterna.replication.plan.size_mismatches import held_with_error, hold_size_mismatches
from sterna.replication.replica.bulk_state import BulkState
from sterna.replication.replica.head import Head, is_recorded, load_held_list, read_head, require_no_gc
from sterna.replication.replica.held import Held
from sterna.replication.replica.ids import new_run_id
from sterna.replication.replica.metadata_version import sync_digest
from sterna.replication.replica.model import Action, Plan
from sterna.replication.replica.region import Progress, RegionContext


def make_plan(
    context: RegionContext,
    options: SyncOptions = SyncOptions(),  # noqa: B008
    progress: Progress = lambda line: None,
    run_id: str = "",
    engine: Engine | None = None,
) -> tuple[Plan, pa.Table | None]:
    """Plan a sync, without changing anything.

    What it reads of foreign metadata is kept in the run's folder, where the region was opened for a run.

    Args:
        options: those of the sync.
        run_id: the run's name; "" for a new one.
        engine: lists the new files of tables that have very many; None: this process does, a part after the other.

    Returns:
        The plan, and its list of files (`sterna.replication.replica.file_list`), None when no table or view is to be
        put.

    Raises:
        BranchChanged: another writer committed to the replica branch.
        Diverged: the watermark is no ancestor of `main`'s head.
        RegistryError: an id of the registry is bound to something else.
        Busy: a clean-up is deleting files; it is over within seconds.
        CatalogError, StoreError, CredentialError: something is unavailable; a later run resumes. Where it is a foreign
            store and some tables don't need it, those that do are held instead.
    """
    context = context.with_verbatim_copies()
    comparison = _compare_branches(context, options, progress)
    head, changes = comparison.head, comparison.changes
    defers_large = options.defers_large(context.region)
    # Files of another metadata version are only made on request: no later sync would wait for them.
    listing = ShardedListing(
        context, engine, progress, defers_large and not options.generation, comparison.large_lane.completed
    )
    resolution, inventory, held_if_failed = _resolve_actions(context, comparison, options, run_id, listing)
    line = inventory.line if inventory else ""
    if inventory and defers_large:
        resolution, inventory = defer_large_tables(
            context, resolution, inventory, held_if_failed, changes, options, comparison.large_lane.state
        )
    if inventory:
        progress(line)
    resolution = replace(resolution, held=_with_carried(resolution.held, head, changes))
    plan = _build_plan(context, options, run_id or new_run_id(), comparison, resolution, inventory, held_if_failed)
    return plan, inventory.files if inventory else None


@dataclass(frozen=True)
class _Comparison:
    """The comparison of the two branches that a plan begins with.

    Args:
        head: of the replica branch.
        digest: the current one.
        changes: the keys that may differ.
        draft: the changes of those that do.
        seeding: the branch has no watermark yet.
        actions: the actions of this plan.
        more: there are others, for the next plan.
        held: the keys that are held for a reason that doesn't depend on their metadata.
        large_lane: as the plan sees it.
    """

    head: Head
    digest: str
    changes: Changes
    draft: Draft
    seeding: bool
    actions: list[Action]
    more: bool
    held: tuple[Held, ...]
    large_lane: LargeLane


def _compare_branches(context: RegionContext, options: SyncOptions, progress: Progress) -> _Comparison:
    head = read_head(context.primary, context.region.replica_branch)
    require_no_gc(head)
    validate_bindings(context.registry, head.bindings or {})
    current_digest = sync_digest(context.registry, context.mapping)
    head = load_held_list(context.objects, head)
    if head.held_list.read_error:
        progress(f"{head.held_list.read_error}: all keys are compared, and the list is written again")
    changes = find_changes(context, head, current_digest, options)
    draft = compare(context, head, changes, options)
    seeding = not head.watermark and not changes.filtered
    actions, more, waiting = (
        seed_group(draft, changes, head, options.seed_group) if seeding else (draft.actions, False, [])
    )
    progress(
        f"{len(changes.candidates)} keys compared: {len(draft.actions)} to change, "
        f"{draft.unchanged} as they should be, {len(draft.faults)} held"
    )
    large_lane = read_large_lane(context, head, options, current_digest)
    changes = with_published_versions(context, head, changes, (*draft.faults, *(action.key for action in actions)))
    held = (*waiting, *_held_unread(context, head, changes, draft, actions, large_lane))
    return _Comparison(head, current_digest, changes, draft, seeding, actions, more, held, large_lane)


def _held_unread(
    context: RegionContext, head: Head, changes: Changes, draft: Draft, actions: list[Action], large_lane: LargeLane
) -> tuple[Held, ...]:
    """Return the entries of keys that are held for a reason that doesn't depend on their metadata."""
    faulty = [held_entry(name, head, changes, fault) for name, fault in draft.faults.items()]
    paused = paused_entries(context, actions, head, changes)
    paused_keys = {entry.key for entry in paused}
    actions_left = [action for action in actions if action.key not in paused_keys]
    in_transit = held_in_transit(large_lane.state, head, actions_left)
    return (*faulty, *paused, *in_transit, *waiting_to_ship(context, actions_left, head, changes))


def _build_plan(
    context: RegionContext,
    options: SyncOptions,
    run_id: str,
    comparison: _Comparison,
    resolution: Resolution,
    inventory: Inventory | None,
    held_if_failed: dict[str, Held],
) -> Plan:
    """Return the plan of the actions that continue."""
    head, changes, is_large_lane = comparison.head, comparison.changes, options.lane == "large"
    batches = assign_sources(context, inventory, resolution.actions, changes) if inventory else ()
    return Plan(
        run_id=run_id,
        region=context.region.name,
        source_hash=changes.source_hash,
        watermark=head.watermark,
        replica_hash=head.hash,
        digest=comparison.digest,
        bindings={**(head.bindings or {}), **context.registry.bindings()},
        oldest=changes.oldest,
        seeding=comparison.seeding,
        more=comparison.more,
        filtered=changes.filtered,
        idle=not resolution.actions
        and (
            is_large_lane
            or is_recorded(head, resolution.held, changes.source_hash, comparison.digest, filtered=changes.filtered)
        ),
        actions=resolution.actions,
        held=resolution.held,
        atomic_groups=changes.atomic_groups,
        relaxed=changes.relaxed,
        unchanged=comparison.draft.unchanged,
        batches=batches,
        egress_cost=egress_cost(context, batches),
        present_files=inventory.present if inventory else 0,
        held_if_failed=_planned_holds(resolution, held_if_failed, inventory if is_large_lane else None),
        registry=context.registry.fingerprint(),
        watermark_reset_from=changes.watermark_reset_from,
        was_held=tuple(held_key.key for held_key in head.held),
        lane="large" if is_large_lane else "",
        bulk_run_needed=needs_bulk_run(resolution.held, head, comparison.large_lane.state),
        term=comparison.large_lane.term,
        verbatim=_verbatim_tables(context, options, comparison),
    )


def _verbatim_tables(
    context: RegionContext, options: SyncOptions, comparison: _Comparison
) -> Literal["", "unmarked", "all"]:
    """Return whose verbatim copies a sync looks up beside those of what it publishes: where it compares every table."""
    if not context.region.verbatim_copies or options.tables or options.lane == "large":
        return ""
    if comparison.more:
        return ""  # the last group's does it: with each of them, all groups before would be looked up
    if options.full:
        return "all"  # a copy may be lost
    return "unmarked" if comparison.head.digest != comparison.digest else ""


def _resolve_actions(
    context: RegionContext, comparison: _Comparison, options: SyncOptions, run_id: str, listing: ShardedListing
) -> tuple[Resolution, Inventory | None, dict[str, Held]]:
    """Determine which actions continue, by their metadata and the files that are here.

    Args:
        context, options, run_id, listing: of the plan.
        comparison: what it begins with.

    Returns:
        The actions that continue, their files, and by key name how each action would be held.
    """
    outages, head, changes, held = Outages(), comparison.head, comparison.changes, comparison.held
    quarantine = Quarantine(context, run_id, requested=changes.filtered)
    reader = TableReader(head, changes, comparison.large_lane.state, listing, quarantine, outages)
    actions, table_rows, faults = reader.read(comparison.actions, {held_key.key for held_key in held})
    held_if_failed = {action.key: held_entry(action.key, head, changes) for action in actions} | {
        fault.key: fault for fault in faults
    }
    while True:  # each time without those that were found at fault
        held = (*held, *faults)
        resolution = resolve_dependencies(actions, held, changes.atomic_groups, held_if_failed, changes.relaxed)
        needed = {
            change.key: table_rows[change.key]
            for change in resolution.actions
            if change.change == "put" and change.key in table_rows
        }
        # Without a table to copy there is nothing to list, and pyarrow need not be imported: most runs end here.
        inventory, errors = listing.take_inventory(needed, options) if needed else (None, {})
        for error in errors.values():
            outages.record(error, context.objects)
        faults = [held_with_error(held_if_failed[name], error) for name, error in errors.items()]
        if inventory:
            faults += hold_size_mismatches(context, resolution, inventory, held_if_failed, changes, outages)
        if not faults:
            break
    has_progress = resolution.actions or needs_bulk_run(
        resolution.held, head, comparison.large_lane.state
    )  # the commit starts the large lane
    if outages.first is not None and not has_progress and options.lane != "large":
        # No other table could continue: an error is retried soon. The small lane reports those of the large one.
        raise outages.first
    return resolution, inventory, held_if_failed


def defer_large_tables(
    context: RegionContext,
    resolution: Resolution,
    inventory: Inventory,
    held_if_failed: dict[str, Held],
    changes: Changes,
    options: SyncOptions,
    bulk_state: BulkState | None,
) -> tuple[Resolution, Inventory | None]:
    """Leave what is large to the large lane, with all that moves together with it."""
    large_tables = hold_large_tables(context, inventory, resolution, held_if_failed, changes, bulk_state)
    if not large_tables:
        return resolution, inventory
    remaining = resolve_dependencies(
        resolution.actions, (*resolution.held, *large_tables), changes.atomic_groups, held_if_failed, changes.relaxed
    )
    deferred = {action.key for action in resolution.actions} - {action.key for action in remaining.actions}
    return remaining, inventory.exclude_tables(deferred, context.mapping, options)


def _planned_holds(
    resolution: Resolution, held_if_failed: dict[str, Held], inventory: Inventory | None
) -> tuple[Held, ...]:
    """Return how each action's key would be held; in the large lane with the bytes that are to be copied for it."""
    sizes = inventory.copied_by_table() if inventory else {}
    return tuple(
        replace(held_if_failed[action.key], bytes=sizes.get(action.key, (0, 0))[1]) for action in resolution.actions
    )


def _with_carried(held: tuple[Held, ...], head: Head, changes: Changes) -> tuple[Held, ...]:
    """Add the head's held keys that this sync, of other tables, didn't compare."""
    compared = {held_key.key for held_key in held} | changes.candidates.keys()
    others = [held_key for held_key in head.held if held_key.key not in compared] if changes.filtered else []
    return tuple(sorted((*held, *others), key=lambda held_key: held_key.key))
