"""The plan: `main` at one commit against a replica branch, and which files that takes. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content
from sterna.errors import Damaged, NotResident, SourceGone, StoreUnreachable, TableError, Unsupported
from sterna.iceberg import LOCALIZER_VERSION
from sterna.registry.mapping import check_bindings
from sterna.registry.model import digest, inside
from sterna.replica import file_list as listing
from sterna.replica.head import Head, is_recorded, read_head, refuse_deleting
from sterna.replica.held import Held
from sterna.replica.records import Action, Batch, Plan
from sterna.replica.region import Progress, RegionContext
from sterna.replica.run_folder import new_run_id
from sterna.replica.wanted import kept
from sterna.sync.copy import other_original
from sterna.sync.holds import Settled, settle
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changes import Changes, find_changes
from sterna.sync.plan.compare import compare, held_entry, seed_group
from sterna.sync.plan.presence import Listed, look_up, to_copy
from sterna.sync.plan.table_files import ReplicaLost, reached_content, read_metadata, table_files, view_files

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.iceberg.metadata.table import TableMetadata

_TABLES_AT_ONCE = 8


def make_plan(
    context: RegionContext,
    options: SyncOptions = SyncOptions(),  # noqa: B008
    progress: Progress = lambda line: None,
    run_id: str = "",
) -> tuple[Plan, pa.Table | None]:
    """Plan a sync: only looks.

    What it reads of foreign metadata is kept in the run's folder, where the region was opened for a run.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        run_id: the run's name; "" for a new one.

    Returns:
        The plan, and its list of files (`sterna.replica.file_list`), None when no table or view is to be put.

    Raises:
        BranchChanged: somebody else committed to the replica branch.
        Diverged: the watermark is no ancestor of `main`'s head.
        RegistryError: an id of the registry is bound to something else.
        Busy: a clean-up is deleting files; it is over within seconds.
        CatalogError, StoreError: something does not answer; a later run resumes. Where a foreign store is dark and
            tables of others can go on, those that need it are held instead.
    """
    head = read_head(context.primary, context.region.replica_branch)
    refuse_deleting(head)
    check_bindings(context.registry, head.bindings or {})
    current = sync_digest(context)
    seen = find_changes(context, head, current, options)
    draft = compare(context, head, seen)
    seeding = not head.watermark and not seen.chosen
    chosen, more, waiting = seed_group(draft, seen, head, options.seed_group) if seeding else (draft.actions, False, [])
    progress(
        f"{len(seen.candidates)} keys compared: {len(draft.actions)} to change, {draft.left} as they should be, "
        f"{len(draft.held)} held"
    )
    settled, listed, since = _what_goes_on(context, chosen, (*draft.held, *waiting), head, seen)
    held = _carried(settled.held, head, seen)
    files, batches, present = to_copy(listed, context.mapping, options, progress) if listed else (None, (), 0)
    plan = Plan(
        run_id=run_id or new_run_id(),
        region=context.region.name,
        source_hash=seen.source_hash,
        watermark=head.watermark,
        replica_hash=head.hash,
        digest=current,
        bindings={**(head.bindings or {}), **context.registry.bindings()},
        oldest=seen.oldest,
        seeding=seeding,
        more=more,
        filtered=seen.chosen,
        idle=not settled.actions and is_recorded(head, held, seen.source_hash, current, filtered=seen.chosen),
        actions=settled.actions,
        held=held,
        together=seen.together,
        relaxed=seen.relaxed,
        left=draft.left,
        batches=batches,
        egress=_egress(context, batches),
        present=present,
        since=tuple(since[action.key] for action in settled.actions),
        registry=context.registry.fingerprint(),
        reseeded_from=seen.reseeded_from,
    )
    return plan, files


def sync_digest(context: RegionContext) -> str:
    """Return the digest that decides whether all keys are compared.

    It is over what of the registry decides a replica (`Registry.digest`), and the localizer's version.
    """
    return digest([context.registry.digest(), LOCALIZER_VERSION])


def _what_goes_on(
    context: RegionContext, chosen: list[Action], blamed: tuple[Held, ...], head: Head, seen: Changes
) -> tuple[Settled, Listed | None, dict[str, Held]]:
    """Settle which of some actions go on, for all that their metadata and the files that are here say.

    Args:
        context, head, seen: of the plan.
        chosen: the actions.
        blamed: the keys that are known to have a fault.

    Returns:
        What goes on, the files of it, and by key name how each action would be held.
    """
    dark: dict[str, StoreUnreachable] = {}
    actions, parts, faults = _tables(context, chosen, head, seen, dark)
    since = {action.key: held_entry(action.key, head, seen) for action in actions} | {
        fault.key: fault for fault in faults
    }
    blamed = (*blamed, *faults)
    settled = settle(actions, blamed, seen.together, since, seen.relaxed)
    listed = _listed(context, settled, parts)
    damaged = _damaged(context, settled, listed, since, seen) if listed else []
    if damaged:
        settled = settle(actions, (*blamed, *damaged), seen.together, since, seen.relaxed)
        listed = _listed(context, settled, parts)
    if dark and not settled.actions:
        # Nobody else's tables could go on: as an error it is tried again soon.
        raise next(iter(dark.values()))
    return settled, listed, since


def _tables(
    context: RegionContext, chosen: list[Action], head: Head, seen: Changes, dark: dict[str, StoreUnreachable]
) -> tuple[tuple[Action, ...], dict[str, pa.Table], list[Held]]:
    """Read what the tables and views among some actions need here.

    Args:
        context, head, seen: of the plan.
        chosen: the actions.
        dark: takes, by the id of the location, the error of each foreign store that does not answer; no other table
            waits for it again.

    Returns:
        The actions, with what the metadata added; by key name, the rows of its files; the keys that have a fault.
    """

    def read(action: Action) -> tuple[Action, pa.Table | Held | None]:
        if action.change == "drop" or not action.target:
            return action, None
        try:
            if error := dark.get(context.mapping.locate(action.source).location.id):
                raise error
            return _table(context, action, seen)
        except TableError as error:
            return action, held_entry(action.key, head, seen, _own_fault(context, error))
        except StoreUnreachable as error:
            if not error.file or context.mapping.is_local(error.file):
                raise
            dark.setdefault(context.mapping.locate(error.file).location.id, error)
            return action, held_entry(action.key, head, seen, error)

    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        found = list(pool.map(read, chosen))
    faults = [result for _, result in found if isinstance(result, Held)]
    parts = {action.key: result for action, result in found if result is not None and not isinstance(result, Held)}
    return tuple(action for action, _ in found), parts, faults


def _own_fault(context: RegionContext, error: TableError) -> TableError:
    """Return a table's error, or that the replica is damaged where it is about one of the replica's own files."""
    own = inside(error.file, context.region.replica_root) and not isinstance(error, (NotResident, Unsupported))
    return Damaged(error.message, file=error.file) if own else error


def _table(context: RegionContext, action: Action, seen: Changes) -> tuple[Action, pa.Table]:
    if action.kind == ICEBERG_VIEW:
        return action, view_files(action.key, action.source, action.target)
    from sterna.iceberg.metadata.history import pruned

    metadata = read_metadata(context, action.source)
    metadata = pruned(metadata, kept(context.registry.policy(action.key), metadata))
    here = (
        None if action.replaces else _metadata_here(context, seen.candidates[action.renamed_from or action.key].replica)
    )
    if here is not None and here.uuid != metadata.uuid:
        action, here = replace(action, replaces=not action.renamed_from, content_id="", renamed_from=""), None
    if here is not None and _made_under_other_rules(context, action.key, seen, action.renamed_from):
        here = None  # it proves that files are here, not that they may be
    try:
        files = table_files(context, action.key, action.source, action.target, metadata, here)
    except ReplicaLost:
        files = table_files(context, action.key, action.source, action.target, metadata, None)
    return replace(action, snapshot=metadata.current_snapshot_id), files


def _made_under_other_rules(context: RegionContext, key: str, seen: Changes, renamed_from: str) -> bool:
    """Tell whether residency rules by place may have come since a replica's metadata.json was written."""
    replica = seen.candidates[renamed_from or key].replica
    made = context.mapping.digest(context.registry.policy(key), LOCALIZER_VERSION)
    return (
        bool(context.mapping.kept_out) and replica is not None and f"-{made}." not in (replica.metadata_location or "")
    )


def _metadata_here(context: RegionContext, replica: Content | None) -> TableMetadata | None:
    """Return what the replica's metadata.json of a table says.

    None when there is none, or it is lost and so proves nothing.
    """
    if replica is None or replica.kind != ICEBERG_TABLE or not replica.metadata_location:
        return None
    try:
        return read_metadata(context, replica.metadata_location)
    except SourceGone:
        return None


def _carried(held: tuple[Held, ...], head: Head, seen: Changes) -> tuple[Held, ...]:
    """Add what the head holds and this sync, asked for other tables, didn't look at."""
    now = {item.key for item in held} | seen.candidates.keys()
    others = [item for item in head.held if item.key not in now] if seen.chosen else []
    return tuple(sorted((*held, *others), key=lambda item: item.key))


def _listed(context: RegionContext, settled: Settled, parts: dict[str, pa.Table]) -> Listed | None:
    """Return the files of what goes ahead, looked up; None where there is nothing to bring."""
    needed = [parts[action.key] for action in settled.actions if action.change == "put" and action.key in parts]
    # Without a table to bring there is nothing to list, and pyarrow need not be imported: most runs end here.
    return look_up(context, listing.joined(needed)) if needed else None


def _damaged(
    context: RegionContext, settled: Settled, listed: Listed, since: dict[str, Held], seen: Changes
) -> list[Held]:
    """Hold tables of whose own version on the replica a file is here with a wrong size: readers have it, and
    somebody must be told.

    One that nobody reads yet is what a killed copy left, and copied anew. But nothing outside the replica root is ever
    written over.
    """
    differing, root = listed.wrong(), context.region.replica_root
    found = [_fault(since[file.table], other_original(file)) for file in differing if not inside(file.target, root)]
    suspects = [file for file in differing if inside(file.target, root)]
    # Where the source isn't as large as main says either, it is main that is wrong: the copy finds that out.
    sources = context.objects.sizes({file.source for file in suspects}) if suspects else {}
    wrong: dict[str, set[str]] = defaultdict(set)
    for file in suspects:
        if sources[file.source] in (None, file.size):
            wrong[file.table].add(file.target)
    for action in settled.actions if wrong else ():
        here = (
            _metadata_here(context, seen.candidates[action.renamed_from or action.key].replica)
            if action.key in wrong
            else None
        )
        reached = reached_content(context, here, wrong[action.key]) if here else set()
        if reached:
            error = Damaged(f"{len(reached)} files that the replica's readers use have a wrong size", file=min(reached))
            found.append(_fault(since[action.key], error))
    return found


def _fault(held: Held, error: TableError) -> Held:
    return replace(held, kind=type(error).__name__, reason=error.message, file=error.file)


def _egress(context: RegionContext, batches: Iterable[Batch]) -> float:
    prices = {location.id: location.egress_per_gb for location in context.registry.locations}
    name = context.region.name
    return sum(
        batch.bytes / 1e9 * prices[batch.origin].get(name, prices[batch.origin].get("*", 0.0)) for batch in batches
    )
