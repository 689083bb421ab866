"""The plan: `main` at one commit against a replica branch, and which files that takes. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content
from sterna.errors import (
    Damaged,
    NotResident,
    SourceGone,
    SternaError,
    StoreUnreachable,
    TableError,
    Unsupported,
)
from sterna.iceberg import LOCALIZER_VERSION
from sterna.registry.mapping import Mapping, check_bindings
from sterna.registry.model import digest, inside
from sterna.replica.head import Head, is_recorded, read_head, refuse_deleting
from sterna.replica.held import Held
from sterna.replica.records import Action, Batch, Plan
from sterna.replica.region import Progress, RegionContext
from sterna.replica.run_folder import new_run_id
from sterna.replica.wanted import kept
from sterna.sync.blame import OUTAGES, fault_of, place_of
from sterna.sync.copy import other_original
from sterna.sync.holds import Settled, settle
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changes import Changes, find_changes
from sterna.sync.plan.compare import compare, held_entry, seed_group
from sterna.sync.plan.presence import Listed, ToBring, find_files
from sterna.sync.plan.table_files import ReplicaLost, reached_content, read_metadata, table_files, view_files
from sterna.sync.sizes import Dark, source_sizes

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
        CatalogError, StoreError, CredentialError: something can't be used; a later run resumes. Where it is a store of
            others and some tables can go on without, those that need it are held instead.
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
    settled, found, since = _what_goes_on(context, chosen, (*draft.held, *waiting), head, seen, options)
    held = _carried(settled.held, head, seen)
    files, batches, present = (found.files, found.batches, found.present) if found else (None, (), 0)
    if found:
        progress(found.line)
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
        was_held=tuple(item.key for item in head.held),
    )
    return plan, files


def sync_digest(context: RegionContext) -> str:
    """Return the digest that decides whether all keys are compared.

    It is over what of the registry decides a replica (`Registry.digest`), and the localizer's version.
    """
    return digest([context.registry.digest(), LOCALIZER_VERSION])


def _what_goes_on(
    context: RegionContext,
    chosen: list[Action],
    blamed: tuple[Held, ...],
    head: Head,
    seen: Changes,
    options: SyncOptions,
) -> tuple[Settled, ToBring | None, dict[str, Held]]:
    """Settle which of some actions go on, for all that their metadata and the files that are here say.

    Args:
        context, head, seen, options: of the plan.
        chosen: the actions.
        blamed: the keys that are known to have a fault.

    Returns:
        What goes on, the files of it, and by key name how each action would be held.
    """
    outages = Outages()
    actions, parts, faults = _tables(context, chosen, head, seen, outages)
    since = {action.key: held_entry(action.key, head, seen) for action in actions} | {
        fault.key: fault for fault in faults
    }
    while True:  # each time without those that were found at fault
        blamed = (*blamed, *faults)
        settled = settle(actions, blamed, seen.together, since, seen.relaxed)
        needed = {item.key: parts[item.key] for item in settled.actions if item.change == "put" and item.key in parts}
        # Without a table to bring there is nothing to list, and pyarrow need not be imported: most runs end here.
        found, wrong = find_files(context, needed, options) if needed else (None, {})
        for error in wrong.values():
            outages.take(error, context.mapping)
        faults = [_fault(since[name], error) for name, error in wrong.items()]
        if found:
            faults += _damaged(context, settled, found.listed, since, seen, outages)
        if not faults:
            break
    if outages.first is not None and not settled.actions:
        # Nobody else's tables could go on: as an error it is tried again soon.
        raise outages.first
    return settled, found, since


@dataclass
class Outages:
    """The stores of others that a plan could not use.

    Args:
        dark: those that don't answer: no other table waits for them again.
        first: the first error of any.
    """

    dark: Dark = field(default_factory=dict)
    first: SternaError | None = None

    def take(self, error: SternaError, mapping: Mapping) -> None:
        """Remember a failure, where it is a store's."""
        if isinstance(error, OUTAGES):
            self.first = self.first or error
        if isinstance(error, StoreUnreachable):
            self.dark.setdefault(place_of(error.file, mapping), error)


def _tables(
    context: RegionContext, chosen: list[Action], head: Head, seen: Changes, outages: Outages
) -> tuple[tuple[Action, ...], dict[str, pa.Table], list[Held]]:
    """Read what the tables and views among some actions need here.

    Args:
        context, head, seen: of the plan.
        chosen: the actions.
        outages: takes each store of others that can't be used.

    Returns:
        The actions, with what the metadata added; by key name, the rows of its files; the keys that have a fault.
    """

    def read(action: Action) -> tuple[Action, pa.Table | Held | None]:
        if action.change == "drop" or not action.target:
            return action, None
        try:
            if error := outages.dark.get(context.mapping.locate(action.source).location.id):
                raise error
            return _table(context, action, seen)
        except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
            fault = fault_of(error, context.mapping, "reading its metadata", action.source, action.key)
            outages.take(fault, context.mapping)
            return action, held_entry(action.key, head, seen, _own_fault(context, fault))

    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        found = list(pool.map(read, chosen))
    faults = [result for _, result in found if isinstance(result, Held)]
    parts = {action.key: result for action, result in found if result is not None and not isinstance(result, Held)}
    return tuple(action for action, _ in found), parts, faults


def _own_fault(context: RegionContext, error: SternaError) -> SternaError:
    """Return a table's error, or that the replica is damaged where it is about one of the replica's own files."""
    broken = isinstance(error, TableError) and not isinstance(error, (NotResident, Unsupported))
    own = broken and inside(error.file, context.region.replica_root)
    return Damaged(error.message, file=error.file) if own else error


def _table(context: RegionContext, action: Action, seen: Changes) -> tuple[Action, pa.Table]:
    if action.kind == ICEBERG_VIEW:
        return action, view_files(action.key, action.source, action.target)
    from sterna.iceberg.metadata.history import pruned

    whole = read_metadata(context, action.source)
    metadata = pruned(whole, kept(context.registry.policy(action.key), whole))
    here = (
        None if action.replaces else _metadata_here(context, seen.candidates[action.renamed_from or action.key].replica)
    )
    if here is not None and here.uuid != metadata.uuid:
        action, here = replace(action, replaces=not action.renamed_from, content_id="", renamed_from=""), None
    action = _with_snapshots(action, whole, here)
    if here is not None and _made_under_other_rules(context, action.key, seen, action.renamed_from):
        here = None  # it proves that files are here, not that they may be
    try:
        files = table_files(context, action.key, action.source, action.target, metadata, here)
    except ReplicaLost:
        files = table_files(context, action.key, action.source, action.target, metadata, None)
    return action, files


def _with_snapshots(action: Action, metadata: TableMetadata, here: TableMetadata | None) -> Action:
    """Add from which snapshot to which an action leads its table, and by what: that is told with the commit."""
    from sterna.iceberg.metadata.history import operations_since

    previous = here.current_snapshot_id if here else None
    # Where something stands here and can't be read, nobody knows where the way begins.
    operations = operations_since(metadata, previous) if here or not action.content_id else None
    return replace(action, snapshot=metadata.current_snapshot_id, previous=previous, operations=operations)


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


def _damaged(
    context: RegionContext, settled: Settled, listed: Listed, since: dict[str, Held], seen: Changes, outages: Outages
) -> list[Held]:
    """Hold tables of whose own version on the replica a file is here with a wrong size: readers have it, and
    somebody must be told.

    One that nobody reads yet is what a killed copy left, and copied anew. But nothing outside the replica root is ever
    written over.
    """
    differing, root = listed.wrong(), context.region.replica_root
    found = {file.table: other_original(file) for file in differing if not inside(file.target, root)}
    suspects = [file for file in differing if inside(file.target, root)]
    # Where the source isn't as large as main says either, it is main that is wrong: the copy finds that out.
    sources, closed = source_sizes(context.objects, [(file.table, file.source) for file in suspects], outages.dark)
    faults: dict[str, SternaError] = {**found}
    for (table, _), error in closed.items():
        outages.take(error, context.mapping)
        faults.setdefault(table, error)
    wrong: dict[str, set[str]] = defaultdict(set)
    for file in suspects:
        if file.table not in faults and sources[file.source] in (None, file.size):
            wrong[file.table].add(file.target)
    for action in settled.actions if wrong else ():
        damage = _readers_have(context, action, wrong[action.key], seen) if action.key in wrong else None
        if damage is not None:
            faults[action.key] = damage
    return [_fault(since[name], error) for name, error in faults.items()]


def _readers_have(context: RegionContext, action: Action, wrong: set[str], seen: Changes) -> SternaError | None:
    """Return the damage where the version of a table that the replica shows has some files of a wrong size."""
    try:
        here = _metadata_here(context, seen.candidates[action.renamed_from or action.key].replica)
        reached = reached_content(context, here, wrong) if here else set()
    except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
        return fault_of(error, context.mapping, "reading what the replica shows of it", action.target, action.key)
    if not reached:
        return None
    return Damaged(f"{len(reached)} files that the replica's readers use have a wrong size", file=min(reached))


def _fault(held: Held, error: SternaError) -> Held:
    return replace(held, kind=type(error).__name__, reason=error.message, file=error.file)


def _egress(context: RegionContext, batches: Iterable[Batch]) -> float:
    prices = {location.id: location.egress_per_gb for location in context.registry.locations}
    name = context.region.name
    return sum(
        batch.bytes / 1e9 * prices[batch.origin].get(name, prices[batch.origin].get("*", 0.0)) for batch in batches
    )
