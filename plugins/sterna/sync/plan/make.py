"""The plan: `main` at one commit against a replica branch, and which files that takes. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sterna.errors import (
    Damaged,
    EngineError,
    NotResident,
    OverLimit,
    PlanKilled,
    SternaError,
    TableError,
    Unsupported,
)
from sterna.registry.mapping import check_bindings
from sterna.registry.model import digest, inside
from sterna.replica.editions import edition_now
from sterna.replica.head import Head, is_recorded, read_head, refuse_deleting, with_held
from sterna.replica.held import Held
from sterna.replica.ids import new_run_id
from sterna.replica.records import Action, Batch, Plan
from sterna.replica.region import Progress, RegionContext
from sterna.replica.transit import Transit
from sterna.sync.blame import fault_of
from sterna.sync.engine import Engine
from sterna.sync.holds import Settled, settle
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changed_table import Lister, needs_here
from sterna.sync.plan.changes import Changes, find_changes
from sterna.sync.plan.compare import Draft, compare, held_entry, seed_group
from sterna.sync.plan.damage import damaged, held_for
from sterna.sync.plan.in_parts import Dealing
from sterna.sync.plan.lanes import (
    Brought,
    brought_whole,
    is_wanted,
    large_lane,
    left_to,
    on_the_way,
    reign,
    too_large,
    without,
)
from sterna.sync.plan.presence import ToBring, find_files
from sterna.sync.plan.ship import waiting_to_ship
from sterna.sync.plan.suspects import ReadLater, Suspects
from sterna.sync.plan.table_files import LeftToLargeLane
from sterna.sync.sizes import Outages

if TYPE_CHECKING:
    import pyarrow as pa


TABLES_AT_ONCE = 8
_NO_DAMAGE = (NotResident, Unsupported, OverLimit, PlanKilled)  # of a file of the replica's own


def make_plan(
    context: RegionContext,
    options: SyncOptions = SyncOptions(),  # noqa: B008
    progress: Progress = lambda line: None,
    run_id: str = "",
    engine: Engine | None = None,
) -> tuple[Plan, pa.Table | None]:
    """Plan a sync: only looks.

    What it reads of foreign metadata is kept in the run's folder, where the region was opened for a run.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        run_id: the run's name; "" for a new one.
        engine: lists the new files of tables that have very many; None: this process does, a part after the other.

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
    begun = _begin(context, options, progress)
    head, seen = begun.head, begun.seen
    leaves = options.leaves_large(context.region)
    # Files of another generation are made for who asked for them alone: no later sync would wait for them.
    lister = Lister(Dealing(context, engine, progress), leaves and not options.generation, begun.brought)
    settled, found, since = _what_goes_on(context, begun, options, run_id, lister)
    line = found.line if found else ""
    if found and leaves:
        settled, found = small_tables(context, settled, found, since, seen, options, begun.large)
    if found:
        progress(line)
    settled = replace(settled, held=_carried(settled.held, head, seen))
    plan = _written(context, options, run_id or new_run_id(), begun, settled, found, since)
    return plan, found.files if found else None


@dataclass(frozen=True)
class _Begun:
    """What a plan begins with: the two branches, compared.

    Args:
        head: of the replica branch.
        digest: of now.
        seen: what may differ.
        draft: what does.
        seeding: the branch has no watermark yet.
        chosen: the actions of this plan.
        more: there are others, for the next plan.
        blamed: the keys that can't go on, as far as that is known without their metadata.
        large: what the large lane is at.
        brought: by key name, what that one has brought whole.
        epoch: of the primary, in the large lane.
    """

    head: Head
    digest: str
    seen: Changes
    draft: Draft
    seeding: bool
    chosen: list[Action]
    more: bool
    blamed: tuple[Held, ...]
    large: Transit | None
    brought: dict[str, Brought]
    epoch: str


def _begin(context: RegionContext, options: SyncOptions, progress: Progress) -> _Begun:
    head = read_head(context.primary, context.region.replica_branch)
    refuse_deleting(head)
    check_bindings(context.registry, head.bindings or {})
    current = sync_digest(context)
    head = with_held(context.objects, head)
    if head.listed.lost:
        progress(f"{head.listed.lost}: all keys are compared, and the list is made anew")
    seen = find_changes(context, head, current, options)
    draft = compare(context, head, seen, options)
    seeding = not head.watermark and not seen.chosen
    chosen, more, waiting = seed_group(draft, seen, head, options.seed_group) if seeding else (draft.actions, False, [])
    progress(
        f"{len(seen.candidates)} keys compared: {len(draft.actions)} to change, {draft.left} as they should be, "
        f"{len(draft.held)} held"
    )
    large = large_lane(context, head, options)
    epoch = reign(context) if options.lane == "large" and any(item.bytes for item in head.held) else ""
    brought = brought_whole(context, large, head, current)
    ships = waiting_to_ship(context, chosen, head, seen)
    blamed = (*draft.held, *waiting, *on_the_way(large, head, chosen), *ships)
    return _Begun(head, current, seen, draft, seeding, chosen, more, blamed, large, brought, epoch)


def _written(
    context: RegionContext,
    options: SyncOptions,
    run_id: str,
    begun: _Begun,
    settled: Settled,
    found: ToBring | None,
    since: dict[str, Held],
) -> Plan:
    """Return the plan of what goes on."""
    head, seen, alone = begun.head, begun.seen, options.lane == "large"
    batches = found.all_batches if found else ()
    return Plan(
        run_id=run_id,
        region=context.region.name,
        source_hash=seen.source_hash,
        watermark=head.watermark,
        replica_hash=head.hash,
        digest=begun.digest,
        bindings={**(head.bindings or {}), **context.registry.bindings()},
        oldest=seen.oldest,
        seeding=begun.seeding,
        more=begun.more,
        filtered=seen.chosen,
        idle=not settled.actions
        and (alone or is_recorded(head, settled.held, seen.source_hash, begun.digest, filtered=seen.chosen)),
        actions=settled.actions,
        held=settled.held,
        together=seen.together,
        relaxed=seen.relaxed,
        left=begun.draft.left,
        batches=batches,
        egress=_egress(context, batches),
        present=found.all_present if found else 0,
        since=_templates(settled, since, found if alone else None),
        registry=context.registry.fingerprint(),
        reseeded_from=seen.reseeded_from,
        was_held=tuple(item.key for item in head.held),
        lane="large" if alone else "",
        large=is_wanted(settled.held, head, begun.large),
        epoch=begun.epoch,
    )


def sync_digest(context: RegionContext) -> str:
    """Return the digest that decides whether all keys are compared.

    It is over what of the registry decides a replica (`Registry.digest`), and the localizer's version.
    """
    return digest([context.registry.digest(), edition_now(context.mapping).version])


def _what_goes_on(
    context: RegionContext, begun: _Begun, options: SyncOptions, run_id: str, lister: Lister
) -> tuple[Settled, ToBring | None, dict[str, Held]]:
    """Settle which actions go on, for all that their metadata and the files that are here say.

    Args:
        context, options, run_id, lister: of the plan.
        begun: what it begins with.

    Returns:
        What goes on, the files of it, and by key name how each action would be held.
    """
    outages, head, seen, blamed = Outages(), begun.head, begun.seen, begun.blamed
    suspects = Suspects(context, run_id, asked=seen.chosen)
    actions, parts, faults = _tables(context, begun, outages, suspects, lister)
    since = {action.key: held_entry(action.key, head, seen) for action in actions} | {
        fault.key: fault for fault in faults
    }
    while True:  # each time without those that were found at fault
        blamed = (*blamed, *faults)
        settled = settle(actions, blamed, seen.together, since, seen.relaxed)
        needed = {item.key: parts[item.key] for item in settled.actions if item.change == "put" and item.key in parts}
        # Without a table to bring there is nothing to list, and pyarrow need not be imported: most runs end here.
        found, wrong = find_files(context, needed, options) if needed else (None, {})
        if found:
            in_parts, wrong = lister.dealing.look_up(needed, options)
            found = replace(found, parts=in_parts)
        for error in wrong.values():
            outages.take(error, context.objects)
        faults = [held_for(since[name], error) for name, error in wrong.items()]
        if found:
            faults += damaged(context, settled, found, since, seen, outages)
        if not faults:
            break
    going = settled.actions or is_wanted(settled.held, head, begun.large)  # the commit starts the large lane
    if outages.first is not None and not going and options.lane != "large":
        # Nobody else's tables could go on: as an error it is tried again soon. Of the large lane's the small one tells.
        raise outages.first
    return settled, found, since


def small_tables(
    context: RegionContext,
    settled: Settled,
    found: ToBring,
    since: dict[str, Held],
    seen: Changes,
    options: SyncOptions,
    large: Transit | None,
) -> tuple[Settled, ToBring | None]:
    """Leave what is large to the large lane, with all that moves together with it."""
    moving = too_large(context, found, settled, since, seen, large)
    if not moving:
        return settled, found
    going = settle(settled.actions, (*settled.held, *moving), seen.together, since, seen.relaxed)
    stay = {action.key for action in settled.actions} - {action.key for action in going.actions}
    return going, without(found, stay, context.mapping, options)


def _tables(
    context: RegionContext, begun: _Begun, outages: Outages, suspects: Suspects, lister: Lister
) -> tuple[tuple[Action, ...], dict[str, pa.Table], list[Held]]:
    """Read what the tables and views among some actions need here.

    Args:
        context: the region.
        begun: what the plan begins with. Of tables that are known not to go on nothing is read.
        outages: takes each store of others that can't be used.
        suspects: the tables whose reading ended plans before.
        lister: how tables are listed.

    Returns:
        The actions, with what the metadata added; by key name, the rows of its files; the keys that have a fault, or
        are left to the large lane.
    """
    known = {item.key for item in begun.blamed}

    def held(action: Action, error: SternaError | None = None) -> Held:
        return held_entry(action.key, begun.head, begun.seen, error)

    def read(action: Action, *, alone: bool = False) -> tuple[Action, pa.Table | Held | None] | None:
        if action.change == "drop" or not action.target or action.key in known:
            return action, None
        try:
            if error := outages.dark.get(context.mapping.locate(action.source).location.id):
                raise error
            return suspects.read(action.key, lambda region: needs_here(region, action, begun.seen, lister), alone=alone)
        except ReadLater:
            return None
        except LeftToLargeLane as left:
            return action, left_to(begun.large, replace(held(action), bytes=left.bytes), left.reason)
        except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
            fault: SternaError
            if isinstance(error, EngineError):
                fault = error  # workers may have died of this table: the others go on
            else:
                fault = fault_of(error, context.mapping, "reading its metadata", action.source, action.key)
            outages.take(fault, context.objects)
            return action, held(action, _own_fault(context, fault))

    pool = ThreadPoolExecutor(TABLES_AT_ONCE)
    try:
        first = list(pool.map(read, begun.chosen))
    except BaseException as error:
        lister.dealing.stop()
        # After Ctrl-C nobody waits: whoever lists millions of files has still minutes to go.
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()
    # What may have ended plans before is read when nothing else is.
    later = (known or read(action, alone=True) for action, known in zip(begun.chosen, first, strict=True))
    found = [each for each in later if each is not None]
    faults = [result for _, result in found if isinstance(result, Held)]
    parts = {action.key: result for action, result in found if result is not None and not isinstance(result, Held)}
    return tuple(action for action, _ in found), parts, faults


def _own_fault(context: RegionContext, error: SternaError) -> SternaError:
    """Return a table's error, or that the replica is damaged where it is about one of the replica's own files."""
    broken = isinstance(error, TableError) and not isinstance(error, _NO_DAMAGE)
    own = broken and inside(error.file, context.region.replica_root)
    return Damaged(error.message, file=error.file) if own else error


def _templates(settled: Settled, since: dict[str, Held], found: ToBring | None) -> tuple[Held, ...]:
    """Return how each action's key would be held; in the large lane with the bytes that are to be copied for it."""
    sizes = found.copied_by_table() if found else {}
    return tuple(replace(since[item.key], bytes=sizes.get(item.key, (0, 0))[1]) for item in settled.actions)


def _carried(held: tuple[Held, ...], head: Head, seen: Changes) -> tuple[Held, ...]:
    """Add what the head holds and this sync, asked for other tables, didn't look at."""
    now = {item.key for item in held} | seen.candidates.keys()
    others = [item for item in head.held if item.key not in now] if seen.chosen else []
    return tuple(sorted((*held, *others), key=lambda item: item.key))


def _egress(context: RegionContext, batches: Iterable[Batch]) -> float:
    prices = {location.id: location.egress_per_gb for location in context.registry.locations}
    name = context.region.name
    return sum(
        batch.bytes / 1e9 * prices[batch.origin].get(name, prices[batch.origin].get("*", 0.0)) for batch in batches
    )
