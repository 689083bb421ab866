"""Files that are here with a wrong size: a killed copy's, which is sent again, or damage, of which somebody is told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from sterna.errors import Damaged, SternaError
from sterna.registry.model import inside
from sterna.replica.held import Held
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.sync.blame import fault_of
from sterna.sync.copy import other_original
from sterna.sync.holds import Settled
from sterna.sync.plan.changes import Changes, shown_at
from sterna.sync.plan.presence import ToBring
from sterna.sync.plan.reading import metadata_here
from sterna.sync.plan.table_files import reached_content
from sterna.sync.sizes import Outages, source_sizes


def damaged(
    context: RegionContext, settled: Settled, found: ToBring, since: dict[str, Held], seen: Changes, outages: Outages
) -> list[Held]:
    """Hold tables of whose own version on the replica a file is here with a wrong size: readers have it, and
    somebody must be told.

    One that nobody reads yet is what a killed copy left, and copied anew. But nothing outside the replica root is ever
    written over.
    """
    differing, root = found.wrong(), context.region.replica_root
    others = {file.table: other_original(file) for file in differing if not inside(file.target, root)}
    suspects = [file for file in differing if inside(file.target, root)]
    # Where the source isn't as large as main says either, it is main that is wrong: the copy finds that out.
    sources, closed = source_sizes(context.objects, [(file.table, file.source) for file in suspects], outages.dark)
    faults: dict[str, SternaError] = {**others}
    for (table, _), error in closed.items():
        outages.note(error)
        faults.setdefault(table, error)
    wrong: dict[str, set[str]] = defaultdict(set)
    for file in suspects:
        if file.table not in faults and sources[file.source] in (None, file.size):
            wrong[file.table].add(file.target)
    for action in settled.actions if wrong else ():
        damage = _readers_have(context, action, wrong[action.key], seen) if action.key in wrong else None
        if damage is not None:
            faults[action.key] = damage
    return [held_for(since[name], error) for name, error in faults.items()]


def _readers_have(context: RegionContext, action: Action, wrong: set[str], seen: Changes) -> SternaError | None:
    """Return the damage where the version of a table that the replica shows has some files of a wrong size."""
    try:
        here = metadata_here(context, shown_at(action, seen))
        reached = reached_content(context, here, wrong) if here else set()
    except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
        return fault_of(error, context.mapping, "reading what the replica shows of it", action.target, action.key)
    if not reached:
        return None
    return Damaged(f"{len(reached)} files that the replica's readers use have a wrong size", file=min(reached))


def held_for(held: Held, error: SternaError) -> Held:
    """Return the entry of a held key with an error as its reason."""
    return replace(held, kind=type(error).__name__, reason=error.message, file=error.file)
