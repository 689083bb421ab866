"""What may be published of a plan.

Tables committed together move together, and namespaces stay while something lives in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sterna.catalog.model import NAMESPACE, Key, key_name, parse_key
from sterna.replication.replica.held import IN_TRANSIT, WAITS, Held
from sterna.replication.replica.model import Action


@dataclass(frozen=True)
class Resolution:
    """The actions that go ahead and the keys that stay behind."""

    actions: tuple[Action, ...]
    held: tuple[Held, ...]


def resolve_dependencies(
    actions: tuple[Action, ...],
    held: tuple[Held, ...],
    atomic_groups: tuple[tuple[str, ...], ...],
    held_if_failed: dict[str, Held],
    relaxed: Collection[str] = (),
) -> Resolution:
    """Hold back what was committed together with a held key.

    Args:
        actions: everything that could be published.
        held: keys with a fault of their own.
        atomic_groups: groups of key names committed together.
        held_if_failed: for every key of an action, its entry should it have to be held (reason and waits_for are filled
            in here).
        relaxed: key names that wait for no other; a strict one waits for them all the same while they are held.

    Returns:
        The actions that remain, and all held keys, sorted.
    """
    entries = {held_key.key: replace(held_key, group="") for held_key in held}
    action_keys = {action.key for action in actions}
    for group in _merged_groups(atomic_groups, actions, set(relaxed) - entries.keys()):
        leader = leader_of(group, entries)
        if leader is None:
            continue
        blocked = [name for name in group if name in entries or name in action_keys]
        # What they have in common has to outlast a relaxed one's recovery.
        label = next((name for name in blocked if name not in relaxed), leader)
        has_fault = not entries[leader].in_transit
        for name in blocked:
            entry = entries.get(name)
            # It isn't copied while it can't be published; once the fault is gone, it is in transit again.
            if entry is None or (has_fault and entry.kind == IN_TRANSIT and name not in relaxed):
                entry = _waiting_entry(
                    entry or held_if_failed[name], entries[leader], "committed together with {leader}"
                )
            entries[name] = replace(entry, group=label)
    kept_drops = {
        parse_key(action.key): action.key for action in actions if action.change == "drop" and action.key in entries
    }
    for action in actions:
        child = _kept_child(action, kept_drops)
        if child is not None and action.key not in entries:
            entries[action.key] = _waiting_entry(held_if_failed[action.key], entries[child], "{leader} is still in it")
    for action in actions:
        parent = _held_parent(action, entries)
        if parent is not None and action.key not in entries:
            entries[action.key] = _waiting_entry(held_if_failed[action.key], entries[parent], "it is below {leader}")
    publishable = tuple(action for action in actions if action.key not in entries)
    return Resolution(publishable, tuple(sorted(entries.values(), key=lambda held_key: held_key.key)))


def merge_groups(groups: Iterable[set[str]]) -> tuple[tuple[str, ...], ...]:
    """Join groups that share a member, again and again, until none do; sorted."""
    leader: dict[str, str] = {}

    def find_leader(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for group in groups:
        first, *others = sorted(group)
        for other in others:
            leader[find_leader(other)] = find_leader(first)
    merged: dict[str, list[str]] = {}
    for name in sorted(leader):
        merged.setdefault(find_leader(name), []).append(name)
    return tuple(sorted(tuple(group) for group in merged.values()))


def leader_of(group: Iterable[str], entries: Mapping[str, Held]) -> str | None:
    """Return the key that the others of a group wait for: one with a fault before one in transit."""
    held = [name for name in group if name in entries]
    return next((name for name in held if not entries[name].in_transit), held[0] if held else None)


def _waiting_entry(template: Held, leader: Held, reason: str) -> Held:
    """Return the entry of a key that waits for another; it isn't held where that one is in transit."""
    kind = leader.kind if leader.in_transit else WAITS
    full_reason = f"{reason.format(leader=leader.key)}, which is {leader.state}"
    links = {"waits_for": leader.key, "group": leader.key}
    return Held(template.key, kind, full_reason, "", template.since, template.good, bytes=template.bytes, **links)


def publication_groups(
    atomic_groups: tuple[tuple[str, ...], ...], actions: tuple[Action, ...], relaxed: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the groups of actions that are published together while nothing is held; single ones are groups of one."""
    grouped = _merged_groups(atomic_groups, actions, set(relaxed))
    ungrouped = {action.key for action in actions}.difference(*grouped)
    return (*grouped, *((name,) for name in sorted(ungrouped)))


def _merged_groups(
    atomic_groups: tuple[tuple[str, ...], ...], actions: tuple[Action, ...], relaxed: set[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the groups of keys that are published together or not at all.

    A relaxed key is in none, except that a new name is never published without the old one's drop.
    """
    renames = [{action.key, action.renamed_from} for action in actions if action.renamed_from]
    strict = (set(group) - relaxed for group in atomic_groups)
    return merge_groups([*(group for group in strict if group), *renames])


def _held_parent(action: Action, entries: dict[str, Held]) -> str | None:
    """Return the name of the held key below which something is to be put.

    It may not be the namespace yet that it is on `main`.
    """
    key = parse_key(action.key)
    names = (key_name(key[:depth]) for depth in range(1, len(key)))
    return next((name for name in names if name in entries), None) if action.change == "put" else None


def _kept_child(action: Action, kept_drops: dict[Key, str]) -> str | None:
    """Return the name of something that has to stay in a namespace which is to be dropped."""
    if action.kind != NAMESPACE or action.change != "drop":
        return None
    parent = parse_key(action.key)
    return next((name for key, name in kept_drops.items() if key[: len(parent)] == parent), None)
