"""Comparing keys: what must change on the replica branch, before any file is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, key_name
from sterna.errors import SternaError
from sterna.registry.policy import Policy
from sterna.replica.head import Head
from sterna.replica.held import Held
from sterna.replica.named_by import CATALOG_ENTRY, named_by
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.replica.wanted import wanted_here
from sterna.sync.blame import fault_of
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changes import Candidate, Changes


@dataclass
class Draft:
    """What the comparison found.

    Args:
        actions: keys to change.
        held: keys that can't be taken up, with a fault of their own.
        left: how many keys are as they should be.
    """

    actions: list[Action] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    left: int = 0


def compare(context: RegionContext, head: Head, seen: Changes, options: SyncOptions) -> Draft:
    """Compare what `main` holds under each candidate key with what the replica holds."""
    draft, asked = Draft(), Policy(tables=list(options.tables or ("**",)))
    renamed = _renames(seen.candidates.values())
    for name, candidate in sorted(seen.candidates.items()):
        try:
            generation = options.generation if asked.matches(name) else 0
            actions = _actions(context, name, candidate, renamed.get(name), generation)
        except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
            at = (candidate.source and candidate.source.metadata_location) or ""
            fault = fault_of(error, context.mapping, "comparing it", at, name)
            draft.held.append(held_entry(name, head, seen, fault))
            continue
        draft.actions += actions
        draft.left += not actions and candidate.source is not None
    return draft


def seed_group(draft: Draft, seen: Changes, head: Head, size: int) -> tuple[list[Action], bool, list[Held]]:
    """Cut a first seed into groups of tables.

    New tables go first, changed ones of earlier groups after them, and those that failed before last, so that every
    group gets ahead.

    Returns:
        The group's actions, whether more follow, and the held entries of what isn't tried in this group.
    """
    before = head.held_by_key
    puts = [
        action for action in draft.actions if action.change == "put" and action.kind in (ICEBERG_TABLE, ICEBERG_VIEW)
    ]
    late = [action for action in puts if action.kind == ICEBERG_VIEW or action.key in before]
    others = (action for action in puts if action.kind == ICEBERG_TABLE and action.key not in before)
    new = sorted(others, key=lambda action: seen.candidates[action.key].replica is not None)
    first = [action for action in draft.actions if action.change == "drop" or action.kind == NAMESPACE]
    if len(new) <= size:
        return [*first, *new, *late], False, []
    faulty = {item.key for item in draft.held}
    return (
        [*first, *new[:size]],
        True,
        [before[action.key] for action in late if action.key in before and action.key not in faulty],
    )


def held_entry(name: str, head: Head, seen: Changes, error: SternaError | None = None) -> Held:
    """Return the entry with which a key is held: since when, and what is shown of it meanwhile."""
    source = seen.candidates[name].source
    at = (source and source.metadata_location) or ""
    kind, reason, file = (type(error).__name__, error.message, error.file or at) if error else ("", "", "")
    before = head.held_by_key.get(name)
    if before is not None:
        return Held(name, kind, reason, file, before.since, before.good, bytes=before.bytes)
    candidate = seen.candidates[name]
    good = (seen.ahead.get(candidate.key) or seen.shown or head.watermark) if candidate.replica else ""
    return Held(name, kind, reason, file, seen.since.get(name, seen.newest), good)


def _renames(candidates: Iterable[Candidate]) -> dict[str, Candidate]:
    """Return, by new key name, where a content id of `main` stood before under a key that is gone now."""
    listed = list(candidates)
    gone = {
        item.before.id: item
        for item in listed
        if item.before and item.before.id and item.source is None and item.replica
    }
    found = {}
    for item in listed:
        old = (
            gone.get(item.source.id)
            if item.source and item.source.id and not item.before and not item.replica
            else None
        )
        if old is not None and old.before and item.source and old.before.kind == item.source.kind:
            found[key_name(item.key)] = old
    return found


def _actions(
    context: RegionContext, name: str, candidate: Candidate, renamed: Candidate | None, generation: int
) -> list[Action]:
    """Compare one key; return what must change, nothing when it is as it should be.

    Raises:
        TableError: it can't be localized: a kind or URI that this version doesn't take.
    """
    source, replica = candidate.source, candidate.replica
    if source is None or context.registry.refusal(name, context.region.name, namespace=source.kind == NAMESPACE):
        return [Action(name, replica.kind, "drop")] if replica else []
    here = replica or (renamed.replica if renamed else None)
    with named_by(CATALOG_ENTRY):
        wanted = wanted_here(context, name, source, here, generation)
    if replica is not None and replica.with_id(None) == wanted:
        return []
    if replica is not None and replica.kind != source.kind:
        return [Action(name, replica.kind, "drop", clears=True), _put(name, source, wanted)]
    before = candidate.before
    if replica is not None and source.kind != NAMESPACE and before and before.id and before.id != source.id:
        return [_put(name, source, wanted, replaces=True)]
    if replica is not None:
        return [_put(name, source, wanted, content_id=replica.id or "")]
    if renamed is not None and renamed.replica is not None:
        return [_put(name, source, wanted, content_id=renamed.replica.id or "", renamed_from=key_name(renamed.key))]
    return [_put(name, source, wanted)]


def _put(
    name: str, source: Content, wanted: Content, *, content_id: str = "", renamed_from: str = "", replaces: bool = False
) -> Action:
    return Action(
        key=name,
        kind=source.kind,
        change="put",
        content=json.dumps(wanted.payload),
        content_id=content_id,
        renamed_from=renamed_from,
        source=source.metadata_location or "",
        target=wanted.metadata_location or "",
        replaces=replaces,
    )
