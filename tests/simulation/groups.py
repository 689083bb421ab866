"""Table groups as a model: what was committed together is planned, copied and published by one bulk run.

A model of a protocol that is not built, with `main`, a replica branch and a store in memory, and its rules as pure
functions. What sterna does today, with two lanes, is played by `tests.simulation.world` with its own code.

The state of a replica is one commit: the watermark W, and *entries*, one for each key that does not show what `main`
has at W. An entry has the commit that the key does show (`good`), since when it is behind, and how many files are left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.simulation.groups_model import (
    Catalog,
    ChangeRecord,
    Entry,
    MainCommit,
    Registry,
    ReplicaCommit,
    Shown,
    Version,
)

LIMIT = 1  # files that a small sync copies for a group
GC_EXPIRY_TICKS = 60  # ticks after which a clean-up counts as dead


@dataclass(frozen=True)
class SmallPlan:
    """What a small sync publishes: W moves on to the plan's commit of `main`."""

    head: ReplicaCommit
    source: MainCommit
    registry: Registry
    targets: Mapping[str, Version | None]
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Group:
    """What a bulk run publishes together.

    Args:
        source: H0, the commit of `main` that it was planned for.
        entries: of its keys, as they were at the head of its plan.
        targets: what `main` has at H0; None: nothing, or a rule excludes it.
    """

    source: str
    registry: Registry
    entries: Mapping[str, Entry]
    targets: Mapping[str, Version | None]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted({file for target in self.targets.values() if target for file in target.files}))

    @property
    def all_files(self) -> tuple[str, ...]:
        """Its content files, and the localized metadata."""
        targets = [target for target in self.targets.values() if target]
        return (*self.files, *(metadata_file(target, self.registry.number) for target in targets))


def metadata_file(version: Version, registry: int) -> str:
    """Return the localized metadata of a version; content follows from the name."""
    return f"metadata-{version.number}-by-{registry}"


def files_of(version: Version, registry: int) -> tuple[str, ...]:
    return (*version.files, metadata_file(version, registry))


def position(main: Sequence[MainCommit], hash: str) -> int | None:
    """Return the index of a commit on `main`; None where it is not there."""
    return next((index for index, commit in enumerate(main) if commit.hash == hash), None)


def first_change(main: Sequence[MainCommit], key: str, after: int, until: int) -> int | None:
    """Return the time of the oldest commit in (after, until] that changed a key."""
    return next((commit.time for commit in main[after + 1 : until + 1] if key in commit.changed), None)


def merge(groups: Iterable[Collection[str]]) -> list[set[str]]:
    """Join groups that share a member."""
    merged: list[set[str]] = []
    for group in groups:
        joined = [other for other in merged if other & set(group)]
        merged = [other for other in merged if not other & set(group)] + [set(group).union(*joined)]
    return merged


def labels(entries: Mapping[str, Entry]) -> list[set[str]]:
    """Return what entries say of what moves together."""
    return [{key, entry.group} for key, entry in entries.items() if entry.group]


def plan_small(
    main: Sequence[MainCommit], head: ReplicaCommit, registry: Registry, present: Collection[str]
) -> SmallPlan:
    """Plan a small sync to the newest commit of `main`; what is in transit is not opened."""
    source, last = main[-1], len(main) - 1
    watermark = position(main, head.watermark)
    assert watermark is not None, "main has left the watermark"
    commits = main[watermark + 1 :]
    keys = {key for commit in commits for key in commit.changed} | head.entries.keys()
    if head.registry != registry.number:
        keys |= source.tables.keys() | head.tables.keys()
    targets: dict[str, Version | None] = {}
    in_transit: dict[str, int] = {}
    for key in sorted(keys):
        wanted, shown, entry = wanted_version(source, key, registry), head.tables.get(key), head.entries.get(key)
        if entry and entry.left and wanted:
            in_transit[key] = entry.left
        elif wanted is None and shown is not None:
            targets[key] = None
        elif wanted and (shown is None or (shown.version, shown.registry) != (wanted, registry.number)):
            targets[key] = wanted
    groups = merge([*(commit.changed for commit in commits), *labels(head.entries), *({key} for key in sorted(keys))])
    entries: dict[str, Entry] = {}
    for group in groups:
        left = {key: count_missing(targets.get(key), present) for key in group}
        is_large = sum(left.values()) > LIMIT
        if not is_large and not group & in_transit.keys():
            continue
        blocked = sorted(group & (targets.keys() | in_transit.keys()))
        for key in blocked:
            since = first_change(main, key, watermark, last)
            entry = head.entries.get(key) or Entry(source.time if since is None else since, head.watermark)
            count = in_transit.get(key) or (left[key] if is_large else 0)
            entries[key] = replace(entry, group=blocked[0] if len(blocked) > 1 else "", left=count)
            targets.pop(key, None)
    return SmallPlan(head, source, registry, targets, entries)


def wanted_version(source: MainCommit, key: str, registry: Registry) -> Version | None:
    return None if key in registry.excluded else source.tables.get(key)


def count_missing(version: Version | None, present: Collection[str]) -> int:
    return sum(file not in present for file in version.files) if version else 0


def small_commit(plan: SmallPlan, sizes: Mapping[str, int], run_id: str, time: int) -> ReplicaCommit:
    """Return the commit of a small sync; it is made for the head of its plan, and for no other."""
    tables = changed_tables(plan.head, plan.targets, plan.registry, sizes)
    return ReplicaCommit(
        hash="",
        parent="",
        time=time,
        watermark=plan.source.hash,
        registry=plan.registry.number,
        run_id=run_id,
        tables=tables,
        entries=plan.entries,
        record=next_record(plan.head, plan.targets, plan.entries),
    )


def changed_tables(
    head: ReplicaCommit, targets: Mapping[str, Version | None], registry: Registry, sizes: Mapping[str, int]
) -> dict[str, Shown]:
    tables = dict(head.tables)
    for key, target in targets.items():
        tables.pop(key, None)
        if target:
            names = files_of(target, registry.number)
            tables[key] = Shown(target, registry.number, {name: sizes.get(name, 0) for name in names})
    return tables


def next_record(head: ReplicaCommit, keys: Collection[str], entries: Mapping[str, Entry]) -> ChangeRecord:
    """Return what a commit on a head announces."""
    previous = {key: head.tables[key].version.number if key in head.tables else None for key in keys}
    return ChangeRecord(head.record.number + 1, previous, frozenset(head.entries.keys() - entries.keys()))


def plan_groups(main: Sequence[MainCommit], head: ReplicaCommit, registry: Registry) -> list[Group]:
    """Return the groups in transit, at the watermark: so no group is ever ahead of it."""
    at = position(main, head.watermark)
    if at is None or head.registry != registry.number:
        return []  # a small sync compares all keys first
    entries = head.entries
    groups = merge([*labels(entries), *({key} for key in entries)])
    return [
        Group(
            main[at].hash,
            registry,
            {key: entries[key] for key in sorted(group & entries.keys())},
            {key: wanted_version(main[at], key, registry) for key in sorted(group & entries.keys())},
        )
        for group in groups
        if any(entries[key].left for key in group & entries.keys())
    ]


# Publish(group): (a) and (d), the commits since the group's files were proven.


def is_replaced(commits: Iterable[ReplicaCommit]) -> bool:
    """Return whether files may have been deleted or rewritten in some commits: the files are proven again then."""
    return any(commit.collecting or commit.rewrote for commit in commits)


def is_same_term(catalog: Catalog, term: int) -> bool:
    """Return whether the primary is the plan's: a failover may have lost the commit of a clean-up that deleted."""
    return catalog.term == term


# (b), what must stand at the head that is swapped.


def entries_stand(group: Group, head: ReplicaCommit) -> bool:
    """Return whether each key of the group has the entry that it was planned for: it was not published or dropped.

    The time alone does not identify an entry: two commits may have the same one.
    """
    return all(
        key in head.entries and (head.entries[key].since, head.entries[key].good) == (entry.since, entry.good)
        for key, entry in group.entries.items()
    )


def is_behind_watermark(group: Group, head: ReplicaCommit, main: Sequence[MainCommit]) -> bool:
    """Return whether H0 is on `main`, at or before the watermark."""
    at, watermark = position(main, group.source), position(main, head.watermark)
    return at is not None and watermark is not None and at <= watermark


def are_same_tables(group: Group, head: ReplicaCommit, main: Sequence[MainCommit]) -> bool:
    """Return whether no key of the group was dropped, renamed or recreated on `main` in (H0, W]."""
    at, watermark = position(main, group.source), position(main, head.watermark)
    if at is None or watermark is None:
        return False
    return all(
        content_id(main[at].tables.get(key)) == content_id(main[watermark].tables.get(key)) for key in group.entries
    )


def content_id(version: Version | None) -> int | None:
    return version.id if version else None


def is_same_registry(group: Group, head: ReplicaCommit, registry: Registry) -> bool:
    """Return whether plan, head and this process go by one registry."""
    return group.registry == registry and head.registry == registry.number


def stands(group: Group, head: ReplicaCommit, main: Sequence[MainCommit], registry: Registry) -> bool:
    """Return whether a group may be published on a head."""
    return (
        is_same_registry(group, head, registry)
        and entries_stand(group, head)
        and is_behind_watermark(group, head, main)
        and are_same_tables(group, head, main)
    )


# What is committed.


def publication_id(run_id: str, number: int) -> str:
    """Return the id of a run's publication."""
    return f"{run_id}-{number}"


def remaining_entries(groups: Iterable[Group], head: ReplicaCommit, main: Sequence[MainCommit]) -> dict[str, Entry]:
    """Return the head's entries, without what shows the watermark now; what `main` changed in (H0, W] keeps one."""
    entries = dict(head.entries)
    watermark = position(main, head.watermark)
    for group in groups:
        at = position(main, group.source)
        for key in group.entries:
            entry = entries.pop(key)
            since = first_change(main, key, at, watermark) if at is not None and watermark is not None else None
            if since is not None:
                entries[key] = replace(entry, since=since, good=group.source, left=0)
    return entries


def group_commit(
    groups: Sequence[Group],
    head: ReplicaCommit,
    main: Sequence[MainCommit],
    sizes: Mapping[str, int],
    run_id: str,
    time: int,
) -> ReplicaCommit:
    """Return the commit of some groups on a head: all else is the head's, but for markers of what others did."""
    targets = {key: target for group in groups for key, target in group.targets.items()}
    entries = remaining_entries(groups, head, main)
    return replace(
        head,
        time=time,
        run_id=run_id,
        tables=changed_tables(head, targets, groups[0].registry, sizes),
        entries=entries,
        record=next_record(head, targets, entries),
        collecting="",
        rewrote=False,
    )


# The other way: one publisher. What a bulk run completed is published by the next small sync, at the run's H0.


@dataclass(frozen=True)
class CompletedGroup:
    """A group that a bulk run copied and localized, as it records it beside the replica.

    Args:
        base: hash of the replica commit that the run was planned for.
        term: the primary's, then.
        sizes: of its files.
    """

    group: Group
    base: str
    term: int
    sizes: Mapping[str, int]


def small_and_completed_commit(
    commit: ReplicaCommit, plan: SmallPlan, completed: Sequence[CompletedGroup], main: Sequence[MainCommit]
) -> ReplicaCommit:
    """Return a small sync's commit with the groups that were completed; it is made for the head of the sync's plan."""
    tables: Mapping[str, Shown] = commit.tables
    targets = dict(plan.targets)
    for one in completed:
        rebased = replace(commit, tables=tables)
        tables = changed_tables(rebased, one.group.targets, one.group.registry, one.sizes)
        targets |= one.group.targets
    entries = remaining_entries([one.group for one in completed], commit, main)
    return replace(commit, tables=tables, entries=entries, record=next_record(plan.head, targets, entries))


def completed_groups(
    catalog: Catalog,
    plan: SmallPlan,
    commit: ReplicaCommit,
    main: Sequence[MainCommit],
    completed: Iterable[CompletedGroup],
) -> list[CompletedGroup]:
    """Return what of some completed groups a small sync may publish.

    Args:
        plan, commit: of the small sync, without them.
        main: as the plan saw it.
        completed: by bulk runs.
    """
    standing: list[CompletedGroup] = []
    for one in completed:
        commits = catalog.between(one.base, plan.head.hash)
        stale = commits is None or not is_same_term(catalog, one.term) or is_replaced(commits)
        taken = any(one.group.entries.keys() & other.group.entries.keys() for other in standing)
        if not (stale or taken) and stands(one.group, commit, main, plan.registry):
            standing.append(one)
    return standing


def may_delete(file_time: int, head: ReplicaCommit) -> bool:
    """Return whether a file is older than all that is in transit: what is copied for that is reached by no head yet."""
    since = [entry.since for entry in head.entries.values() if entry.left]
    return not since or file_time < min(since)
