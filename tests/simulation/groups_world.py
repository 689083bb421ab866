"""One seeded run of the model of table groups: writers, small syncs, two bulk runs, clean-ups, repair and failovers.

Each actor is a generator: at each `yield` others may go on, or it is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from random import Random

from tests.simulation import groups
from tests.simulation.groups import Group
from tests.simulation.groups_invariants import GroupInvariants
from tests.simulation.groups_model import Catalog, Registry, ReplicaCommit, Version
from tests.simulation.groups_runs import Actor, BulkProgress, Faults, Lease, Steps, first_base, may_publish
from tests.simulation.groups_scenes import play_scene
from tests.simulation.store import Violation

_KEYS = tuple("abcdefgh")
_LARGE = 4  # files that a large append adds
_KEEP_TICKS = 10  # a clean-up leaves what older heads reach for so long
_GRACE_TICKS = 10
_DELETING_TICKS = 20
_LEASE_TICKS = 30
_SETTLING_SYNCS = 12
_MAX_LOST = 8  # commits of all branches, by a failover


class GroupsWorld:
    """Everything that takes part, made from a seed; where there is one publisher, that is the small sync."""

    def __init__(self, seed: int, *, one_publisher: bool = False) -> None:
        self.one_publisher = one_publisher
        self.completed: list[groups.CompletedGroup] = []
        self.seed = seed
        self.rng = Random(seed)
        self.trace: list[str] = []
        self.time = 0
        self.catalog = Catalog()
        self.registry = Registry()
        self.registries = [self.registry]
        self.store: dict[str, tuple[int, int]] = {}  # by file, its size and when it was written
        self.purged: set[str] = set()
        self.dropped: list[Version] = []
        self.late: list[Callable[[], bool]] = []
        self.kept = 0  # replica commits that no failover loses: what they show was deleted for later ones
        self.lease = Lease()
        self.garbage: dict[str, int] = {}  # by file, since when clean-ups find it unreachable
        self.planned_groups = 0
        self.commits_by_kind = {"small": 0, "bulk": 0}
        self._numbers = 0
        self.faults = Faults(
            kill=self.rng.choice((0.0, 0.01, 0.05)),
            unknown=self.rng.choice((0.0, 0.1, 0.3)),
            copy=self.rng.choice((0.0, 0.02, 0.1)),
        )
        self.speeds = [self.rng.choice((1, 3, 9)) for _ in range(5)]
        self.lease_lost = self.rng.choice((0.1, 0.9))
        self.invariants = GroupInvariants(self)
        starts = (self.small_sync, self.small_sync, self.bulk_run, self.bulk_run, self.clean_up)
        self.actors = [Actor(name, start) for name, start in zip("STLMC", starts, strict=True)]

    def tell(self, line: str) -> None:
        self.trace.append(f"{self.time}: {line}")

    def play(self) -> None:
        """Run the seed: steps with faults, then none.

        Raises:
            Violation: something that must always hold did not.
        """
        for _ in range(self.rng.choice((200, 400, 800))):
            self.time += self.rng.choice((0, 1, 1, 3))
            self.rng.choices((self._write, self._go_on, self._disturb), (2, 20, 1))[0]()
            self.invariants.check()
        self.settle()
        play_scene(self)

    def settle(self) -> None:
        """Nothing goes wrong any more: the replica catches up, without an entry left."""
        self.faults = Faults()
        while self.late:
            self.late.pop()()
            self.invariants.check()
        self.time += groups.GC_EXPIRY_TICKS + _LEASE_TICKS
        for _ in range(_SETTLING_SYNCS):
            self.time += _LEASE_TICKS
            for steps in (self.small_sync(), self.bulk_run()):
                for _ in steps:
                    self.time += 1
                self.invariants.check()
        head, source = self.catalog.head, self.catalog.main[-1]
        if head.entries or head.watermark != source.hash:
            raise Violation(f"progress: {head.entries} at {head.watermark}, and main is at {source.hash}")
        before = len(self.catalog.replica)
        list(self.small_sync())
        if len(self.catalog.replica) != before:
            raise Violation("progress: nothing changed, and a sync commits")

    # What goes on by itself.

    def _go_on(self) -> None:
        actor = self.rng.choices(self.actors, self.speeds)[0]
        if actor.steps is None:
            actor.steps = actor.start()
            self.tell(f"{actor.name} starts")
        elif self.rng.random() < self.faults.kill:
            self.tell(f"{actor.name} is killed")
            actor.steps = None
            return
        if next(actor.steps, "over") == "over":
            actor.steps = None

    def _write(self) -> None:
        """Change one table or two in one commit; drop one, rename one, recreate one, or bring a dropped one back."""
        tables = self.catalog.main[-1].tables
        key = self.rng.choice(_KEYS)
        changes: dict[str, Version | None]
        if key in tables and self.rng.random() < 0.2:
            changes = {key: None}
            self.dropped.append(tables[key])
            free = sorted(set(_KEYS) - tables.keys())
            if free and self.rng.random() < 0.5:
                changes[self.rng.choice(free)] = self.appended(tables[key], tables[key].id)
            elif self.rng.random() < 0.3:
                changes[key] = self.appended(None)
        elif key not in tables and (back := self._restorable()) and self.rng.random() < 0.8:
            changes = {key: self.appended(self.rng.choice(back), self.number(), large=True)}
        else:
            changes = {key: self.appended(tables.get(key))}
            if self.rng.random() < 0.2:
                other = self.rng.choice(_KEYS)
                changes.setdefault(other, self.appended(tables.get(other)))
        self.write(changes)

    def write(self, changes: Mapping[str, Version | None]) -> None:
        """Commit to `main`; two commits may have the same time."""
        self.catalog.commit_main(self.time, changes)
        self.tell(f"{self.catalog.main[-1].hash}: {changes}")

    def appended(self, table: Version | None, id: int = 0, *, large: bool = False) -> Version:
        """Return a table with some files more, sometimes without its oldest ones: they expired."""
        count = _LARGE if large or self.rng.random() < 0.3 else 1
        files = [f"file-{self.number()}" for _ in range(count)]
        kept = table.files[self.rng.choice((0, 0, 2)) :] if table else ()
        return Version(id or (table.id if table else self.number()), self.number(), (*kept, *files))

    def _restorable(self) -> list[Version]:
        return [version for version in self.dropped if not self.purged & set(version.files)]

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _disturb(self) -> None:
        self.rng.choices(
            (self._fail_over, self._change_registry, self._arrive, self._purge, self._repair), (1, 1, 3, 3, 1)
        )[0]()

    def _fail_over(self) -> None:
        lost = min(self.rng.choice((0, 1, 3, self.catalog.since_deletion())), _MAX_LOST)
        lost = self.catalog.count_lost(lost, self.kept)
        self.catalog.fail_over(lost)
        self.tell(f"a failover loses {lost} commits: main is at {self.catalog.main[-1].hash}")
        self.invariants.restart()

    def _change_registry(self) -> None:
        excluded = frozenset(key for key in _KEYS if self.rng.random() < 0.1)
        self.registry = Registry(self.registry.number + 1, excluded)
        self.registries.append(self.registry)
        self.tell(f"registry {self.registry.number} leaves out {sorted(excluded)}")

    def _arrive(self) -> None:
        if self.late:
            self.tell(f"a late commit arrives: {self.late.pop()()}")

    def _purge(self) -> None:
        """Maintenance deletes at their source the files that no region needs.

        It keeps what `main` showed since W, and since the last good commit of each key that has an entry.
        """
        main = self.catalog.main
        heads = self.catalog.replica[-_MAX_LOST - 1 :]  # a failover may bring each back
        hashes = {hash for head in heads for hash in (head.watermark, *(e.good for e in head.entries.values()))}
        oldest = min(groups.position(main, hash) or 0 for hash in hashes)
        needed = {file for commit in main[oldest:] for version in commit.tables.values() for file in version.files}
        shown = {file for commit in main[:-_MAX_LOST] for version in commit.tables.values() for file in version.files}
        self.purged |= shown - needed

    def _repair(self) -> None:
        """Overwrite a file that a running sync may count on; no head reaches it. Its length is another one then."""
        reached = self.reached(self.catalog.head)
        self.kept = len(self.catalog.replica) - 1
        free = sorted(self.store.keys() - reached)
        if free and not self.catalog.head.collecting:
            name = self.rng.choice(free)
            size, _ = self.store[name]
            self.store[name] = (size + 1, self.time)
            head = self.catalog.head
            marked = replace(head, run_id=f"repair-{self.number()}", rewrote=True, collecting="", time=self.time)
            self.catalog.commit(head.hash, self.catalog.term, marked)
            self.tell(f"repair overwrites {name}")

    # The actors.

    def is_collecting(self, head: ReplicaCommit) -> bool:
        return bool(head.collecting) and self.time - head.time < groups.GC_EXPIRY_TICKS

    def reached(self, head: ReplicaCommit) -> set[str]:
        return {file for shown in head.tables.values() for file in shown.sizes}

    def small_sync(self) -> Steps:
        catalog = self.catalog
        head, term, registry, run_id = catalog.head, catalog.term, self.registry, f"small-{self.number()}"
        if self.is_collecting(head):
            return
        yield
        if groups.position(catalog.main, head.watermark) is None:
            return
        main = tuple(catalog.main)
        plan = groups.plan_small(main, head, registry, self.store.keys())
        files = {file for target in plan.targets.values() if target for file in target.files}
        sizes = {file: self.store[file][0] for file in files if file in self.store}
        commit = groups.small_commit(plan, sizes, run_id, self.time)
        completed = groups.completed_groups(catalog, plan, commit, main, self.completed)
        recorded = (head.watermark, head.registry, head.entries) == (commit.watermark, commit.registry, commit.entries)
        if recorded and not plan.targets and not completed:
            return
        for file in sorted(files - sizes.keys()):
            yield
            if not self.copy(file):
                return
            sizes[file] = self.store[file][0]
        sizes |= self.localize(plan.targets, registry)
        yield
        if registry != self.registry:
            return
        commit = groups.small_commit(plan, sizes, run_id, self.time)
        if completed:
            commit = groups.small_and_completed_commit(commit, plan, completed, main)
        # An answer that is lost is looked for by the task's next try, which plans again here.
        self.commits_by_kind["small"] += bool(self.send(head.hash, term, commit))

    def copy(self, file: str) -> bool:
        """Copy a file; one that maintenance took away at its source is missing."""
        if file not in self.store and (file in self.purged or self.rng.random() < self.faults.copy):
            self.tell(f"{file} is not copied")
            return False
        self.store.setdefault(file, (1, self.time))
        return True

    def localize(self, targets: Mapping[str, Version | None], registry: Registry) -> dict[str, int]:
        sizes = {}
        for target in targets.values():
            if target:
                name = groups.metadata_file(target, registry.number)
                self.store.setdefault(name, (1, self.time))
                sizes[name] = self.store[name][0]
        return sizes

    def send(self, expected: str, term: int, commit: ReplicaCommit) -> bool | None:
        """Commit; None where the answer is lost: then the commit is there, never comes, or comes later."""
        if self.rng.random() < self.faults.unknown:
            fate = self.rng.choice(("now", "never", "later"))
            self.tell(f"the answer is lost; {commit.run_id} arrives: {fate}")
            if fate == "now":
                self.catalog.commit(expected, term, commit)
            elif fate == "later":
                self.late.append(lambda: self.catalog.commit(expected, term, commit))
            return None
        is_committed = self.catalog.commit(expected, term, commit)
        self.tell(f"{commit.run_id} {'is committed' if is_committed else 'is refused: the branch has moved'}")
        return is_committed

    def bulk_run(self) -> Steps:
        """Plan all groups in transit, copy one after the other, and publish each that is here."""
        is_alive = self.time - self.lease.time < _LEASE_TICKS
        if is_alive and self.rng.random() >= self.lease_lost:
            return
        catalog = self.catalog
        head, registry = catalog.head, self.registry
        if self.is_collecting(head):
            return
        run = BulkProgress(f"bulk-{self.number()}", catalog.term, head.hash)
        yield
        planned = groups.plan_groups(tuple(catalog.main), head, registry)
        self.planned_groups += len(planned)
        run.sizes |= {file: self.store[file][0] for group in planned for file in group.files if file in self.store}
        for group in planned:
            for file in group.files:
                self.lease = Lease(run.run_id, self.time, len(run.sizes))
                if file not in run.sizes:
                    yield
                    if self.copy(file):
                        run.sizes[file] = self.store[file][0]
                    else:
                        run.missing.add(file)
            yield
            if may_publish(group, run):
                run.sizes |= self.localize(group.targets, registry)
                if self.one_publisher:
                    sizes = {file: run.sizes.get(file, 0) for file in group.all_files}
                    self.completed.append(groups.CompletedGroup(group, run.base, run.term, sizes))
                else:
                    yield from self.publish(run, [group])

    def publish(self, run: BulkProgress, ready: list[Group]) -> Steps:
        """Publish what still stands of some groups, in one commit."""
        run.publications += 1
        run_id = groups.publication_id(run.run_id, run.publications)
        base = first_base(run)
        while True:
            yield
            head = self.catalog.head
            if self.is_collecting(head):
                continue
            commits = self.catalog.since(base)
            if commits is None or not groups.is_same_term(self.catalog, run.term):
                self.tell(f"{run_id}: a failover took back what it was planned for")
                return
            if any(commit.run_id == run_id for commit in commits):
                self._require_shown(run_id, ready)
                return
            if groups.is_replaced(commits):
                self.tell(f"{run_id}: its files are proven again")
                ready = yield from self.prove(run, ready)
                base = run.newest = head.hash
                continue
            base = run.newest = head.hash
            main = tuple(self.catalog.main)
            standing = [group for group in ready if groups.stands(group, head, main, self.registry)]
            if len(standing) < len(ready):
                self.tell(f"{run_id}: a group is planned again")
            if not standing:
                return
            yield
            commit = groups.group_commit(standing, head, main, run.sizes, run_id, self.time)
            if self.send(head.hash, run.term, commit):
                self.commits_by_kind["bulk"] += 1
                return

    def prove(self, run: BulkProgress, ready: list[Group]) -> Generator[None, None, list[Group]]:
        """Look at the size of each file again; return the groups of which none is missing."""
        complete = []
        for group in ready:
            names = group.all_files
            for name in names:
                yield
                if name in self.store:
                    run.sizes[name] = self.store[name][0]
            if all(name in self.store for name in names):
                complete.append(group)
        return complete

    def _require_shown(self, run_id: str, ready: list[Group]) -> None:
        """A publication that is reported is that of these groups."""
        commit = next(commit for commit in self.catalog.replica if commit.run_id == run_id)
        published = {key for group in ready for key in group.entries}
        if not commit.record.previous.keys() <= published:
            raise Violation(f"identity: {run_id} published {sorted(commit.record.previous)}, not {sorted(published)}")

    def clean_up(self) -> Steps:
        """Delete, behind a fence, what was unreachable for long enough."""
        catalog, pass_id = self.catalog, f"collect-{self.number()}"
        head = catalog.head
        if self.is_collecting(head):
            return
        yield
        kept = [commit for commit in catalog.replica if self.time - commit.time < _KEEP_TICKS]
        reached = set[str]().union(*(self.reached(commit) for commit in (catalog.head, *kept)))
        unreached = self.store.keys() - reached
        self.garbage = {file: self.garbage.get(file, self.time) for file in unreached}
        ready = sorted(
            file
            for file, since in self.garbage.items()
            if self.time - since >= _GRACE_TICKS and groups.may_delete(self.store[file][1], catalog.head)
        )
        if not ready:
            return
        yield
        head, began, term = catalog.head, self.time, catalog.term
        if not catalog.commit(
            head.hash, term, replace(head, time=began, run_id=pass_id, collecting=pass_id, rewrote=False)
        ):
            return
        fenced = catalog.head.hash
        self.kept = len(catalog.replica) - 1
        self.tell(f"{pass_id} deletes")
        reached = self.reached(head)
        for file in ready:
            yield
            if self.time - began > _DELETING_TICKS or catalog.term != term:
                break
            if file in self.store and file not in reached and groups.may_delete(self.store[file][1], head):
                self.tell(f"{pass_id} deletes {file}")
                del self.store[file]
                self.garbage.pop(file, None)
                self.invariants.check()
        yield
        done = replace(head, time=self.time, run_id=f"{pass_id}-done", collecting="", rewrote=False)
        catalog.commit(fenced, term, done)
