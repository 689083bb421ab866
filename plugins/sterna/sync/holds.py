"""What may be published of a plan.

Tables committed together move together, and namespaces stay while something lives in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sterna.catalog.model import NAMESPACE, Key, key_name, parse_key
from sterna.replica.held import IN_TRANSIT, WAITS, Held
from sterna.replica.records import Action


@dataclass(frozen=True)
class Settled:
    """The actions that go ahead and the keys that stay behind."""

    actions: tuple[Action, ...]
    held: tuple[Held, ...]


def settle(
    actions: tuple[Action, ...],
    held: tuple[Held, ...],
    together: tuple[tuple[str, ...], ...],
    since: dict[str, Held],
    relaxed: Collection[str] = (),
) -> Settled:
    """Hold back what was committed together with a held key.

    Args:
        actions: everything that could be published.
        held: keys with a fault of their own.
        together: groups of key names committed together.
        since: for every key of an action, its entry should it have to be held (reason and waits_for are filled in
            here).
        relaxed: key names that wait for no other; a strict one waits for them all the same while they are held.

    Returns:
        The actions that remain, and all held keys, sorted.
    """
    entries = {item.key: replace(item, group="") for item in held}
    wanted = {action.key for action in actions}
    for group in _groups(together, actions, set(relaxed) - entries.keys()):
        leader = leader_of(group, entries)
        if leader is None:
            continue
        stay = [name for name in group if name in entries or name in wanted]
        # What they have in common has to outlast a relaxed one's recovery.
        label = next((name for name in stay if name not in relaxed), leader)
        fault = not entries[leader].in_transit
        for name in stay:
            entry = entries.get(name)
            # Why bring what can't be published? Once the fault is gone, it is on its way.
            if entry is None or (fault and entry.kind == IN_TRANSIT and name not in relaxed):
                entry = _waiting(entry or since[name], entries[leader], "committed together with {leader}")
            entries[name] = replace(entry, group=label)
    kept = {
        parse_key(action.key): action.key for action in actions if action.change == "drop" and action.key in entries
    }
    for action in actions:
        child = _child(action, kept)
        if child is not None and action.key not in entries:
            entries[action.key] = _waiting(since[action.key], entries[child], "{leader} still stands in it")
    for action in actions:
        parent = _held_parent(action, entries)
        if parent is not None and action.key not in entries:
            entries[action.key] = _waiting(since[action.key], entries[parent], "it stands below {leader}")
    going = tuple(action for action in actions if action.key not in entries)
    return Settled(going, tuple(sorted(entries.values(), key=lambda item: item.key)))


def merge(groups: Iterable[set[str]]) -> tuple[tuple[str, ...], ...]:
    """Join groups that share a member, again and again, until none do; sorted."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for group in groups:
        first, *others = sorted(group)
        for other in others:
            leader[find(other)] = find(first)
    merged: dict[str, list[str]] = {}
    for name in sorted(leader):
        merged.setdefault(find(name), []).append(name)
    return tuple(sorted(tuple(group) for group in merged.values()))


def leader_of(group: Iterable[str], entries: Mapping[str, Held]) -> str | None:
    """Return who the others of a group wait for: one with a fault before one that is on its way."""
    found = [name for name in group if name in entries]
    return next((name for name in found if not entries[name].in_transit), found[0] if found else None)


def _waiting(template: Held, leader: Held, reason: str) -> Held:
    """Return the entry of what waits for another; nothing is wrong with it where that one is on its way."""
    kind = leader.kind if leader.in_transit else WAITS
    why = f"{reason.format(leader=leader.key)}, which is {leader.state}"
    ties = {"waits_for": leader.key, "group": leader.key}
    return Held(template.key, kind, why, "", template.since, template.good, bytes=template.bytes, **ties)


def groups_of(
    together: tuple[tuple[str, ...], ...], actions: tuple[Action, ...], relaxed: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Return what moves together of some actions while nothing is held; who moves alone is a group of one."""
    grouped = _groups(together, actions, set(relaxed))
    alone = {action.key for action in actions}.difference(*grouped)
    return (*grouped, *((name,) for name in sorted(alone)))


def _groups(
    together: tuple[tuple[str, ...], ...], actions: tuple[Action, ...], free: set[str]
) -> tuple[tuple[str, ...], ...]:
    """Return what moves together or not at all.

    A free one is in none, but that a new name never goes without the old one.
    """
    renames = [{action.key, action.renamed_from} for action in actions if action.renamed_from]
    bound = (set(group) - free for group in together)
    return merge([*(group for group in bound if group), *renames])


def _held_parent(action: Action, entries: dict[str, Held]) -> str | None:
    """Return the name of the held key below which something is to be put.

    It may not be the namespace yet that it is on `main`.
    """
    key = parse_key(action.key)
    names = (key_name(key[:depth]) for depth in range(1, len(key)))
    return next((name for name in names if name in entries), None) if action.change == "put" else None


def _child(action: Action, kept: dict[Key, str]) -> str | None:
    """Return the name of something that has to stay in a namespace which is to be dropped."""
    if action.kind != NAMESPACE or action.change != "drop":
        return None
    parent = parse_key(action.key)
    return next((name for key, name in kept.items() if key[: len(parent)] == parent), None)
