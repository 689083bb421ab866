"""Admission to the two lanes: tables of which much is to be copied don't delay the others.

The small lane leaves them out, as in transit, and publishes the rest. The large lane copies what is in transit, and
publishes nothing. So there is one publisher, and once the files are here the next sync of the small lane finds them.

To find them again may take as long as it took to list them. So a version that the large lane has completed counts as
one that readers see: its lists prove what is here. The small lane lists a very large table itself where another bulk
run would not help: where it changes as fast as it is copied, or clean-ups delete its files repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from sterna.errors import Busy, StoreUnreachable
from sterna.replication.plan.branch_diff import Changes
from sterna.replication.plan.dependencies import Resolution, publication_groups
from sterna.replication.plan.inventory import Inventory
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.bulk_state import BulkState, BulkTable, read_bulk_state
from sterna.replication.replica.catalog_copy import read_primary_term
from sterna.replication.replica.head import Head, files_replaced_since
from sterna.replication.replica.held import IN_TRANSIT, Held
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext


def held_in_transit(bulk_state: BulkState | None, head: Head, actions: Iterable[Action]) -> tuple[Held, ...]:
    """Return the entries of tables that are being copied right now: they stay in transit, and plans skip them.

    A table may have a million files. For one that moves together with them there is no entry here: it waits for them.
    """
    puts = {action.key for action in actions if action.change == "put" and action.target}
    return tuple(
        held_key
        for held_key in head.held
        if bulk_state and held_key.key in puts and held_key.bytes and bulk_state.is_copying(held_key)
    )


@dataclass(frozen=True)
class CompletedTable:
    """A version of a table in transit that the large lane has completed.

    Args:
        bulk_table: the table, as that bulk run copied it.
        proves: all of its files are still here: it proves them, as does a version that readers see.
        bulk_run_over: the bulk run is over, so the large lane is free.
    """

    bulk_table: BulkTable
    proves: bool
    bulk_run_over: bool


@dataclass(frozen=True)
class LargeLane:
    """The large lane, as a plan sees it.

    Args:
        state: what it is at; None where that doesn't matter to the plan.
        completed: by key name, the versions that it has completed.
        term: the primary's, of a plan of the large lane; "" where it doesn't matter.
    """

    state: BulkState | None
    completed: dict[str, CompletedTable]
    term: str


def read_large_lane(context: RegionContext, head: Head, options: SyncOptions, digest: str) -> LargeLane:
    """Return what a plan has to know of the large lane.

    Args:
        options: those of the sync.
        digest: the present one (`sterna.replication.replica.metadata_version.sync_digest`).

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
        CatalogError: the catalog doesn't answer.
    """
    has_large_tables = any(held_key.bytes for held_key in head.held)
    is_relevant = context.region.bulk_copy_threshold > 0 and options.lane != "all" and has_large_tables
    state = read_bulk_state(context.objects, context.region) if is_relevant else None
    term = _current_term(context) if options.lane == "large" and has_large_tables else ""
    return LargeLane(state, completed_tables(context, state, head, digest), term)


def _current_term(context: RegionContext) -> str:
    """Return the primary's term; where another region becomes the primary just now, what is no term."""
    try:
        return read_primary_term(context)
    except Busy:
        return uuid4().hex


def completed_tables(
    context: RegionContext, bulk_state: BulkState | None, head: Head, digest: str
) -> dict[str, CompletedTable]:
    """Return, by key name, the versions of tables in transit that the large lane has completed.

    All of their files were here when it checked, or were copied then, under the same registry. What was deleted or
    rewritten since follows from the replica branch (`sterna.replication.replica.head.files_replaced_since`), except for
    what a promotion left behind.

    Args:
        bulk_state: the large lane's state.
        digest: the present one (`sterna.replication.replica.metadata_version.sync_digest`).

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    if bulk_state is None:
        return {}
    bulk_run = bulk_state.run
    tables = (
        (held_key.key, bulk_run.find_table(held_key))
        for held_key in head.held
        if held_key.bytes and bulk_state.is_complete(held_key.key)
    )
    completed = {key: bulk_table for key, bulk_table in tables if bulk_table}
    basis = (bulk_run.digest, bulk_run.registry, bulk_run.term)
    if not completed or basis != (digest, context.registry.fingerprint(), _current_term(context)):
        return {}
    replaced = files_replaced_since(context.primary, context.region.replica_branch, bulk_run.replica_hash, head.hash)
    return {
        key: CompletedTable(bulk_table, not replaced, bulk_run.finished or not bulk_state.is_alive)
        for key, bulk_table in completed.items()
    }


def defers_listing(completed: CompletedTable | None, manifests: int) -> bool:
    """Return whether the small lane leaves it to the large one to list a very large table's new files.

    Not where a bulk run left half of them or more: the next one would, too, and the table would never leave transit.
    Nor where a clean-up deleted files while the large lane is busy, or for the second time.

    Args:
        completed: the table's version that the large lane has completed, None where there is none.
        manifests: how many of them are new, beyond what that proves.
    """
    if completed is None:
        return True
    if not completed.proves:
        return completed.bulk_run_over and not completed.bulk_table.invalidated
    return (
        not completed.bulk_run_over
        or completed.bulk_table.manifests == 0
        or 2 * manifests < completed.bulk_table.manifests
    )


def hold_large_tables(
    context: RegionContext,
    inventory: Inventory,
    resolution: Resolution,
    held_if_failed: dict[str, Held],
    changes: Changes,
    bulk_state: BulkState | None,
) -> tuple[Held, ...]:
    """Return the entries of tables that the large lane has to copy.

    Args:
        inventory: the files that are missing here.
        resolution: what could be published.
        held_if_failed: by key name, how each would be held.
        changes: what was committed together.
        bulk_state: what the large lane is at.
    """
    limit = context.region.bulk_copy_threshold
    missing_bytes = {name: size for name, (_, size) in inventory.copied_by_table().items()}
    entries: list[Held] = []
    for group in publication_groups(changes.atomic_groups, resolution.actions, changes.relaxed):
        members = [
            replace(held_if_failed[name], bytes=missing_bytes[name])
            for name in group
            if missing_bytes.get(name) and name in held_if_failed
        ]
        total = sum(member.bytes for member in members)
        if total > limit and not _outpaces_bulk_run(members, missing_bytes, bulk_state, limit):
            entries += [defer_to_bulk(bulk_state, member, "the large lane brings it") for member in members]
    return tuple(entries)


def _outpaces_bulk_run(
    members: Sequence[Held], missing_bytes: dict[str, int], bulk_state: BulkState | None, limit: int
) -> bool:
    """Return whether a bulk run left half or more of what it had to copy: the next one would, too.

    Such a table is copied by the small lane, or it would never leave transit. A bulk run that had little to copy
    predicts nothing of the next one, nor does one that copied other tables for most of its time: the next one will be
    shorter by them.

    Args:
        members: that are to be published together.
        missing_bytes: by key name, how many bytes are to be copied now.
        bulk_state: the large lane's state.
        limit: bytes that the small lane copies itself.
    """
    if bulk_state is None or not bulk_state.run.finished:
        return False
    planned_bytes = [bulk_state.run.initial_bytes(member) for member in members]
    failed = any(bulk_state.run.find_failure(member) for member in members)
    planned_total, total = sum(size or 0 for size in planned_bytes), sum(member.bytes for member in members)
    tables = bulk_state.run.tables
    next_is_shorter = 2 * sum(missing_bytes.get(table.key, 0) for table in tables) < sum(
        table.bytes for table in tables
    )
    return not failed and not next_is_shorter and None not in planned_bytes and 2 * total >= planned_total > limit


def defer_to_bulk(bulk_state: BulkState | None, held: Held, reason: str) -> Held:
    """Return the entry of a table that the large lane has to copy; with the reason of its failure, if any."""
    failure = bulk_state.run.find_failure(held) if bulk_state else None
    if bulk_state and failure and failure.kind == StoreUnreachable.__name__ and not bulk_state.run.find_table(held):
        # The store may answer by now: what is in transit is tried again at once.
        return replace(held, kind=IN_TRANSIT, reason=f"{reason}; the last time: {failure.reason}", file=failure.file)
    if failure:
        return replace(held, kind=failure.kind, reason=failure.reason, file=failure.file)
    return replace(held, kind=IN_TRANSIT, reason=reason)


def needs_bulk_run(held: Iterable[Held], head: Head, bulk_state: BulkState | None) -> bool:
    """Return whether the large lane should start: a table has newly come into transit, or is so without a live run."""
    in_transit = [held_key for held_key in held if held_key.bytes and held_key.in_transit]
    if not (bulk_state and bulk_state.is_alive):
        return bool(in_transit)
    held_before = {held_key.key for held_key in head.held if held_key.in_transit}
    return any(held_key.key not in held_before and not bulk_state.run.find_table(held_key) for held_key in in_transit)
