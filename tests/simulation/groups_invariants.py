"""What must hold of a replica branch on which table groups are published beside small syncs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation import groups
from tests.simulation.groups_model import MainCommit, ReplicaCommit
from tests.simulation.store import Violation

if TYPE_CHECKING:
    from tests.simulation.groups_world import GroupsWorld


class GroupInvariants:
    """Looks at each new commit of the replica branch, and at the files of its head.

    Nothing here uses the rules of the protocol: it compares with what `main` had.
    """

    def __init__(self, world: GroupsWorld) -> None:
        self._world = world
        self._checked = 1  # replica commits
        self._positions: dict[str, int] = {}
        self._unordered: set[tuple[str, str]] = set()  # a commit of `main` and a key of which no side can be told

    def restart(self) -> None:
        """A failover took commits back: what was shown may go back with them, once."""
        self._checked = min(self._checked, len(self._world.catalog.replica))
        self._positions = {}

    def check(self) -> None:
        """Look at what is new.

        Raises:
            Violation: something doesn't hold.
        """
        replica = self._world.catalog.replica
        for parent, commit in zip(replica[self._checked - 1 :], replica[self._checked :], strict=False):
            self._checked += 1
            self._check_commit(parent, commit)
        self._check_files(replica[-1])

    def _check_files(self, head: ReplicaCommit) -> None:
        for key, shown in head.tables.items():
            for file, size in shown.sizes.items():
                if file not in self._world.store:
                    raise Violation(f"closure: {key} shows {file}, which is missing")
                if self._world.store[file][0] != size:
                    raise Violation(f"closure: {key} shows {file} with another size")

    def _check_commit(self, parent: ReplicaCommit, commit: ReplicaCommit) -> None:
        main = self._world.catalog.main
        watermark = groups.position(main, commit.watermark)
        if watermark is None:
            raise Violation(f"order: main does not have the watermark {commit.watermark}")
        if watermark < (groups.position(main, parent.watermark) or 0):
            raise Violation("order: the watermark goes back")
        if any(commit.run_id == other.run_id for other in self._world.catalog.replica if other is not commit):
            raise Violation(f"identity: a second commit of {commit.run_id}")
        positions = self._check_keys(commit, watermark)
        self._check_order(positions, watermark)
        if commit.run_id.startswith("bulk-") and commit.watermark != parent.watermark:
            raise Violation("order: a group moves the watermark")
        if not commit.run_id.startswith(("collect-", "repair-")):
            self._check_record(parent, commit)
            self._check_published(commit, watermark)
            if commit.collecting or commit.rewrote:
                raise Violation(f"markers: {commit.run_id} repeats what another one did")

    def _check_keys(self, commit: ReplicaCommit, watermark: int) -> dict[str, int]:
        """Equality: a key shows what `main` has at W; one with an entry, what it had at its last good commit."""
        main = self._world.catalog.main
        keys = main[watermark].tables.keys() | commit.tables.keys() | commit.entries.keys()
        positions = dict.fromkeys(keys, watermark)
        for key in sorted(keys):
            entry, shown = commit.entries.get(key), commit.tables.get(key)
            if entry:
                good = groups.position(main, entry.good)
                if good is None or good > watermark:
                    raise Violation(f"entries: {key} is said to show {entry.good}, at {commit.watermark}")
                positions[key] = good
                behind_since = _first_difference(main, key, good, watermark)
                if behind_since is not None and entry.since > behind_since:
                    raise Violation(f"entries: {key} is behind since {behind_since}, not {entry.since}")
            source = main[positions[key]].tables.get(key)
            if source is not None and shown is None and self._is_excluded(commit, key, entry is not None):
                continue
            if (shown.version if shown else None) != source:
                raise Violation(f"equality: {key} shows {shown}, and main has {source} ({entry})")
        return positions

    def _is_excluded(self, commit: ReplicaCommit, key: str, has_entry: bool) -> bool:
        """Return whether a rule took a key off this region; by which registry is told by its number alone."""
        return any(
            key in registry.excluded
            for registry in self._world.registries
            if registry.number <= commit.registry and (has_entry or registry.number == commit.registry)
        )

    def _check_order(self, positions: Mapping[str, int], watermark: int) -> None:
        for key, at in positions.items():
            if at < self._positions.get(key, -1):
                raise Violation(f"order: {key} goes back from {self._positions[key]} to {at}")
        self._positions = dict(positions)
        main = self._world.catalog.main
        for number in range(min(positions.values(), default=watermark) + 1, watermark + 1):
            changed = main[number]
            sides = {
                key: self._sides(key, positions.get(key, watermark), number, watermark)
                for key in changed.changed
                if (changed.hash, key) not in self._unordered
            }
            self._unordered |= {(changed.hash, key) for key, side in sides.items() if len(side) > 1}
            if {"before"} in sides.values() and {"after"} in sides.values():
                raise Violation(f"order: {changed.hash} changed {sorted(changed.changed)} at once, shown {sides}")

    def _sides(self, key: str, at: int, number: int, watermark: int) -> set[str]:
        """Tell whether what is shown of a key may be from before a commit, from after it, or both."""
        main = self._world.catalog.main
        shown = main[at].tables.get(key)
        if any(key in registry.excluded for registry in self._world.registries):
            return {"before", "after"}
        before = any(main[index].tables.get(key) == shown for index in range(number))
        after = any(main[index].tables.get(key) == shown for index in range(number, watermark + 1))
        return {*(["before"] if before else []), *(["after"] if after else [])}

    def _check_published(self, commit: ReplicaCommit, watermark: int) -> None:
        """What is published was not dropped by `main`, is localized by the commit's registry, and belongs here."""
        world = self._world
        for key in commit.record.previous:
            shown, source = commit.tables.get(key), world.catalog.main[watermark].tables.get(key)
            if shown is None:
                continue
            if source is None or source.id != shown.version.id:
                raise Violation(f"drops: {key} is published, and main dropped it")
            if shown.registry != commit.registry:
                raise Violation(f"registry: {key} is published by an old registry")
            registry = next(registry for registry in world.registries if registry.number == commit.registry)
            if key in registry.excluded:
                raise Violation(f"residency: {key} is published in a region that it is kept out of")

    def _check_record(self, parent: ReplicaCommit, commit: ReplicaCommit) -> None:
        """Events: numbers go up by one, and each announces the step from what was shown to what is shown."""
        record = commit.record
        if record.number != parent.record.number + 1:
            raise Violation(f"events: number {record.number} follows {parent.record.number}")
        for key, previous in record.previous.items():
            shown = parent.tables.get(key)
            if previous != (shown.version.number if shown else None):
                raise Violation(f"events: {key} is said to have shown {previous}")
        changed = {
            key
            for key in parent.tables.keys() | commit.tables.keys()
            if parent.tables.get(key) != commit.tables.get(key)
        }
        if not changed <= record.previous.keys():
            raise Violation(f"events: {sorted(changed - record.previous.keys())} change without an event")
        if record.released != parent.entries.keys() - commit.entries.keys():
            raise Violation(f"events: {sorted(record.released)} are said to be free")


def _first_difference(main: list[MainCommit], key: str, good: int, watermark: int) -> int | None:
    """Return the time of the oldest commit since which a key is not what it was."""
    shown = main[good].tables.get(key)
    return next((commit.time for commit in main[good + 1 : watermark + 1] if commit.tables.get(key) != shown), None)
