"""Bugs that the model of table groups has to find, each put in the place of one of its rules.

The first part are outcomes that bugs of the two lanes had; the second are those that only groups can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation import groups, groups_world
from tests.simulation.groups import Group
from tests.simulation.groups_model import Catalog, Entry, MainCommit, ReplicaCommit
from tests.simulation.groups_runs import first_base, may_publish
from tests.simulation.groups_world import GroupsWorld


def planted(part: Any, bug: Any, holder: Any = groups) -> AbstractContextManager[Any]:
    return patch.object(holder, part.__name__, bug)


# As with the lanes.


def a_deletion_is_not_noticed() -> AbstractContextManager[Any]:
    """What was copied counts as here, though a clean-up deleted since."""
    return planted(groups.is_replaced, lambda commits: any(commit.rewrote for commit in commits))


def a_rewritten_file_is_not_noticed() -> AbstractContextManager[Any]:
    """What was copied counts as it was, though a repair overwrote it."""
    return planted(groups.is_replaced, lambda commits: any(commit.collecting for commit in commits))


def a_missing_copy_is_forgotten() -> AbstractContextManager[Any]:
    """A group goes out though a file of it could not be copied."""
    return planted(may_publish, lambda group, run: True, groups_world)


def labels_are_forgotten() -> AbstractContextManager[Any]:
    """What was committed together with a key in transit goes ahead without it."""
    return planted(groups.labels, lambda entries: [])


def what_is_in_transit_is_not_recorded() -> AbstractContextManager[Any]:
    """A small sync leaves a key to the bulk run, and no entry has it."""
    real = groups.plan_small

    def plan(*arguments: Any) -> Any:
        small = real(*arguments)
        return replace(small, entries={key: entry for key, entry in small.entries.items() if not entry.left})

    return planted(groups.plan_small, plan)


# Of groups alone.


def a_changed_key_loses_its_entry() -> AbstractContextManager[Any]:
    """What `main` changed in (H0, W] is not looked for again."""

    def entries(published: Sequence[Group], head: ReplicaCommit, main: Sequence[MainCommit]) -> dict[str, Entry]:
        keys = {key for group in published for key in group.entries}
        return {key: entry for key, entry in head.entries.items() if key not in keys}

    return planted(groups.remaining_entries, entries)


def an_entry_begins_at_its_publication() -> AbstractContextManager[Any]:
    """A key that changed meanwhile is behind since the newest change, and not since the oldest."""

    def last_change(main: Sequence[MainCommit], key: str, after: int, until: int) -> int | None:
        times = [commit.time for commit in main[after + 1 : until + 1] if key in commit.changed]
        return times[-1] if times else None

    return planted(groups.first_change, last_change)


def keys_as_the_plan_saw_them() -> AbstractContextManager[Any]:
    """It makes no difference whether a key was dropped or published meanwhile."""
    real = groups.remaining_entries

    def entries(published: Sequence[Group], head: ReplicaCommit, main: Sequence[MainCommit]) -> dict[str, Entry]:
        planned = {key: entry for group in published for key, entry in group.entries.items()}
        return real(published, replace(head, entries={**planned, **head.entries}), main)

    return _both(planted(groups.entries_stand, lambda group, head: True), planted(groups.remaining_entries, entries))


def a_dropped_table_is_published() -> AbstractContextManager[Any]:
    """A table goes out that `main` dropped or recreated meanwhile; its drop waits for the same group."""
    return planted(groups.are_same_tables, lambda group, head, main: True)


def ahead_of_the_watermark() -> AbstractContextManager[Any]:
    """Groups are planned at the newest commit of `main`, and W is not waited for."""
    real = groups.plan_groups

    def plan(main: Sequence[MainCommit], head: ReplicaCommit, registry: Any) -> list[Group]:
        return [
            replace(
                group,
                source=main[-1].hash,
                targets={key: groups.wanted_version(main[-1], key, registry) for key in group.targets},
            )
            for group in real(main, head, registry)
        ]

    return _both(
        planted(groups.plan_groups, plan),
        planted(groups.is_behind_watermark, lambda group, head, main: True),
        planted(groups.are_same_tables, lambda group, head, main: True),
    )


def an_old_registry() -> AbstractContextManager[Any]:
    """A group goes out as an older registry, or an older rule of residency, had it."""
    return planted(groups.is_same_registry, lambda group, head, registry: True)


def after_a_failover() -> AbstractContextManager[Any]:
    """It makes no difference whether a failover took back what a group was planned for."""

    def since(self: Catalog, base: str) -> tuple[ReplicaCommit, ...]:
        hashes = [commit.hash for commit in self.replica]
        return tuple(self.replica[hashes.index(base) + 1 :]) if base in hashes else ()

    def publish(self: GroupsWorld, run: Any, ready: Any) -> Any:
        run.term = self.catalog.term
        return real(self, run, ready)

    real = GroupsWorld.publish
    return _both(
        planted(groups.is_same_term, lambda catalog, term: True),
        planted(Catalog.since, since, Catalog),
        planted(groups.is_behind_watermark, lambda group, head, main: True),
        planted(groups.are_same_tables, lambda group, head, main: True),
        planted(GroupsWorld.publish, publish, GroupsWorld),
    )


def a_lost_deletion() -> AbstractContextManager[Any]:
    """A failover lost the commit of a clean-up that deleted: the head is the plan's, and files are gone."""
    real = GroupsWorld.publish

    def publish(self: GroupsWorld, run: Any, ready: Any) -> Any:
        run.term = self.catalog.term
        return real(self, run, ready)

    return _both(
        planted(groups.is_same_term, lambda catalog, term: True), planted(GroupsWorld.publish, publish, GroupsWorld)
    )


def entries_as_the_plan_saw_them() -> AbstractContextManager[Any]:
    """The head's entries are overwritten by those of the plan's head."""
    real, heads = groups.group_commit, dict[str, ReplicaCommit]()
    planning = groups.plan_groups

    def plan(main: Any, head: ReplicaCommit, registry: Any) -> list[Group]:
        planned = planning(main, head, registry)
        heads.update({f"{group.source} {sorted(group.entries.items())}": head for group in planned})
        return planned

    def commit(published: Sequence[Group], head: ReplicaCommit, *arguments: Any) -> ReplicaCommit:
        planned = heads[f"{published[0].source} {sorted(published[0].entries.items())}"]
        rebased = real(published, head, *arguments)
        keys = {key for group in published for key in group.entries}
        others = {key: entry for key, entry in planned.entries.items() if key not in keys}
        own = {key: entry for key, entry in rebased.entries.items() if key in keys}
        return replace(rebased, entries={**others, **own})

    return _both(planted(groups.plan_groups, plan), planted(groups.group_commit, commit))


def one_look_for_a_whole_run() -> AbstractContextManager[Any]:
    """What a run's first publication proved again counts as proven for the groups after it."""
    return planted(first_base, lambda run: run.newest or run.base, groups_world)


def one_id_for_a_whole_run() -> AbstractContextManager[Any]:
    """The second publication of a run is taken for the first."""
    return planted(groups.publication_id, lambda run_id, number: run_id)


def a_label_stands_for_a_group() -> AbstractContextManager[Any]:
    """Whatever has the group's label now counts as published with it, though the group grew meanwhile."""
    real = groups.remaining_entries

    def entries(published: Sequence[Group], head: ReplicaCommit, main: Sequence[MainCommit]) -> dict[str, Entry]:
        names = {entry.group for group in published for key in group.entries if (entry := head.entries[key]).group}
        return {key: entry for key, entry in real(published, head, main).items() if entry.group not in names}

    return planted(groups.remaining_entries, entries)


def a_group_moves_the_watermark() -> AbstractContextManager[Any]:
    """A group's commit says that the replica is at H0."""
    return _changed_commit(lambda rebased, published, head: replace(rebased, watermark=published[0].source))


def markers_are_repeated() -> AbstractContextManager[Any]:
    """A group's commit repeats what the head says of a deletion or of rewritten files."""
    return _changed_commit(
        lambda rebased, published, head: replace(rebased, collecting=head.collecting, rewrote=head.rewrote)
    )


def news_of_the_plan() -> AbstractContextManager[Any]:
    """Events are numbered against the head that the group was planned for."""

    def at_plan(rebased: ReplicaCommit, published: Sequence[Group], head: ReplicaCommit) -> ReplicaCommit:
        return replace(rebased, record=replace(rebased.record, number=head.record.number))

    return _changed_commit(at_plan)


def a_small_sync_rebases() -> AbstractContextManager[Any]:
    """Who moves the watermark swaps on whatever head there is."""
    real = Catalog.commit

    def swap(self: Catalog, expected: str, term: int, commit: ReplicaCommit) -> bool:
        return real(self, self.head.hash if commit.run_id.startswith("small-") else expected, term, commit)

    return planted(Catalog.commit, swap, Catalog)


def half_a_group() -> AbstractContextManager[Any]:
    """Each key of a group goes out by itself."""
    real = groups.plan_groups

    def plan(*arguments: Any) -> list[Group]:
        return [
            replace(group, entries={key: group.entries[key]}, targets={key: target})
            for group in real(*arguments)
            for key, target in group.targets.items()
        ]

    return planted(groups.plan_groups, plan)


def _changed_commit(change: Any) -> AbstractContextManager[Any]:
    real = groups.group_commit

    def commit(published: Sequence[Group], head: ReplicaCommit, *arguments: Any) -> ReplicaCommit:
        changed: ReplicaCommit = change(real(published, head, *arguments), published, head)
        return changed

    return planted(groups.group_commit, commit)


@contextmanager
def _both(*bugs: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for bug in bugs:
            stack.enter_context(bug)
        yield
