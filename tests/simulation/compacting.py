"""One table that upkeep compacts while writers delete, upsert and replace its rows, in memory.

The plan, the looks, what is committed together, thrown away or tried again, and the sequence number of new files are
sterna's own code (`maintenance/tables/run.py`, `spark/rewrite_data_files.py`). What Spark and Iceberg do stands here:
reading a group and writing it, and the commit by the rules of Iceberg's `MergingSnapshotProducer` (1.12): new deletes
for replaced files are a conflict, equality deletes are none where the new file keeps an older sequence number, and
files of deletes go that are older than each data file that stays.

The oracle is a multiset of rows that each writer changes as SQL would; no sequence number is looked at for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from sterna.catalog.model import Key
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import CatalogStateUnknown, StoreUnreachable
from sterna.maintenance.tables import failed_groups, plan, run
from sterna.maintenance.tables.model import MaintenanceReport
from sterna.replication.replica.region import RegionContext
from sterna.spark.main_catalog import CommitConflict, TableChanged
from sterna.spark.rewrite_data_files import PlannedGroup, TableRewrite, WrittenGroup
from tests.simulation.actor import Actor
from tests.simulation.catalog import ActorsCatalog
from tests.simulation.changes import Changes
from tests.simulation.clock import Clock
from tests.simulation.main import Main
from tests.simulation.store import Objects, Store, Violation
from tests.simulation.tables import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    POSITION_DELETES,
    File,
    Manifest,
    Snapshot,
    Table,
)
from tests.simulation.turns import Faults, Turn
from tests.simulation.world import Serial, mapping, registry
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.small_world import no_secrets

_KEY: Key = ("k", "t")
_SETTINGS = Maintenance.model_validate({"tables": [{"match": ["k.**"], "min_age": "1s"}]})
_FAULTS = Faults(switch=0.05, crash=0.01, unreachable=0.005, unknown=0.15)
_LOST_RACES = 0.1
_TURNS_OF_A_WRITE = 6  # of others, at most, while a group is written
_IDS = 30  # few, so that deletes and upserts meet rows
_STEPS = 60

Row = tuple[int, int]
"""An id, by which rows are deleted and upserted, and a number that no other row has."""
Kind = Callable[[Any, Table], Table]
Java = Any


def read(snapshot: Snapshot | None) -> Counter[Row]:
    """Return a snapshot's rows, by the specification's rules for deletes ("Scan Planning")."""
    if snapshot is None:
        return Counter()
    return Counter(row for file in snapshot.live if file.content == DATA for _, row in live_rows(snapshot, file))


def live_rows(snapshot: Snapshot, file: File) -> Iterator[tuple[int, Row]]:
    """Yield the rows of one data file that no file of deletes takes away, each with its position."""
    gone, values = set[int](), set[int]()
    for delete in snapshot.live:
        if delete.content == POSITION_DELETES and delete.sequence >= file.sequence:
            gone |= {position for path, position in delete.deletes if path == file.path}
        elif delete.content == EQUALITY_DELETES and delete.sequence > file.sequence:
            values |= set(json.loads(delete.data))
    for position, (id, number) in enumerate(json.loads(file.data)):
        if position not in gone and id not in values:
            yield position, (id, number)


class Writers(Changes):
    """Those who change rows; each returns the next version, and changes `rows` as SQL would.

    Attributes:
        rows: what a query has to answer.
    """

    def __init__(self, rng: Random, now_ms: Callable[[], int]) -> None:
        super().__init__(rng, now_ms)
        self.scattered, self.large = False, 0.0
        self.rows: Counter[Row] = Counter()

    def write(self, table: Table) -> tuple[str, Table]:
        """Do one thing, and say which."""
        (kind,) = self.rng.choices(self.KINDS, (8, 4, 4, 2, 2, 2, 0.3, 1, 1))
        return self.word(kind), kind(self, table)

    @staticmethod
    def word(kind: Kind) -> str:
        """Return what a way to change rows is called in the trace."""
        return kind.__name__.replace("_", " ")

    def append(self, table: Table) -> Table:
        """Whatever finds nothing to change appends."""
        return self.append_rows(table)

    def append_rows(self, table: Table) -> Table:
        """New rows, of ids that may be there already."""
        return self._commit(table, [self._data_file(table, self._new(self._ids()))])

    def delete_values(self, table: Table) -> Table:
        """An equality delete, as Flink writes it: nobody reads which rows it meets."""
        ids = self._ids()
        self._forget(ids)
        return self._commit(table, [self._value_deletes(table, ids)])

    def upsert(self, table: Table) -> Table:
        """An equality delete and the new rows, in one commit."""
        ids = self._ids()
        self._forget(ids)
        deletes = self._value_deletes(table, ids)
        return self._commit(table, [self._data_file(table, self._new(ids)), deletes])

    def delete_positions(self, table: Table) -> Table:
        """A file of position deletes for a row or two."""
        live = self._live(table)
        chosen = self.rng.sample(live, min(len(live), 2))
        self.rows -= Counter(row for _, _, row in chosen)
        places = tuple(sorted((file.path, position) for file, position, _ in chosen))
        return self._commit(table, [self._position_deletes(table, places)]) if places else self.append_rows(table)

    def add_vector(self, table: Table) -> Table:
        """A row more in the vector of a data file, which takes the place of the one there was."""
        live = self._live(table)
        if not live:
            return self.append_rows(table)
        file, position, row = self.rng.choice(live)
        self.rows -= Counter([row])
        old = [
            delete_file
            for delete_file in self._snapshot(table).live
            if delete_file.content == POSITION_DELETES and {path for path, _ in delete_file.deletes} == {file.path}
        ]
        places = {place for delete_file in old for place in delete_file.deletes} | {(file.path, position)}
        return self._commit(table, [self._position_deletes(table, tuple(sorted(places)))], old)

    def rewrite_file(self, table: Table) -> Table:
        """Copy on write: a file goes, and another one has its rows but one, and a new row."""
        live = self._live(table)
        if not live:
            return self.append_rows(table)
        file, _, gone = self.rng.choice(live)
        rows = [row for _, row in live_rows(self._snapshot(table), file) if row != gone]
        self.rows -= Counter([gone])
        return self._commit(table, [self._data_file(table, [*rows, *self._new([gone[0]])])], [file])

    def overwrite_all(self, table: Table) -> Table:
        """All data files go; deletes stay behind, with nothing to delete."""
        self.rows.clear()
        data = [file for file in self._snapshot(table).live if file.content == DATA] if table.current else []
        return self._commit(table, [self._data_file(table, self._new(self._ids()))], data)

    def forget_history(self, table: Table) -> Table:
        """Only the newest snapshots stay, perhaps without the one that a compaction has read."""
        kept = table.snapshots[-self.rng.randint(1, 4) :]
        return self.without(table, {snapshot.id for snapshot in table.snapshots} - {snapshot.id for snapshot in kept})

    KINDS: ClassVar[tuple[Kind, ...]] = (
        *(append_rows, delete_values, upsert, delete_positions, add_vector),
        *(rewrite_file, overwrite_all, Changes.rewrite_manifests, forget_history),
    )
    """The ways to change rows."""

    def replaced(self, table: Table, gone: Collection[File], added: Collection[File], sequence: int | None) -> Table:
        """Replace data files as Iceberg's `RewriteFiles` does on this version; rows stay as they are.

        Args:
            table: the head.
            gone: data files of it.
            added: what they have become.
            sequence: the new files' data sequence number; None: the new snapshot's.
        """
        left = [manifest for manifest in self._without(table, gone) if manifest.content == DATA and manifest.live]
        oldest = min((file.sequence for manifest in left for file in manifest.live), default=table.sequence)
        deletes = [
            file
            for manifest in self._carried(table)
            for file in manifest.live
            if file.content != DATA and file.sequence < min(oldest, table.sequence)
        ]
        return self._commit(table, added, [*gone, *deletes], sequence, "replace")

    def data_file(self, table: Table, rows: list[Row]) -> File:
        """Return a data file that no commit has."""
        return self._data_file(table, rows)

    def _ids(self) -> list[int]:
        return self.rng.sample(range(_IDS), self.rng.randint(1, 3))

    def _new(self, ids: Collection[int]) -> list[Row]:
        rows = [(id, self.number()) for id in ids]
        self.rows.update(rows)
        return rows

    def _forget(self, ids: Collection[int]) -> None:
        self.rows = Counter({row: count for row, count in self.rows.items() if row[0] not in ids})

    def _snapshot(self, table: Table) -> Snapshot:
        snapshot = table.snapshot(table.current)
        assert snapshot is not None
        return snapshot

    def _live(self, table: Table) -> list[tuple[File, int, Row]]:
        if table.current is None:
            return []
        snapshot = self._snapshot(table)
        return [
            (file, position, row)
            for file in sorted(snapshot.live, key=lambda file: file.path)
            if file.content == DATA
            for position, row in live_rows(snapshot, file)
        ]

    def _data_file(self, table: Table, rows: Collection[Row]) -> File:
        return replace(self._file(table, DATA, 0, 0), data=json.dumps(list(rows)).encode())

    def _value_deletes(self, table: Table, ids: Collection[int]) -> File:
        return replace(self._file(table, EQUALITY_DELETES, 0, 0), data=json.dumps(list(ids)).encode())

    def _position_deletes(self, table: Table, places: tuple[tuple[str, int], ...]) -> File:
        return self._file(table, POSITION_DELETES, 0, 0, places)

    def _commit(
        self,
        table: Table,
        added: Collection[File],
        gone: Collection[File] = (),
        sequence: int | None = None,
        operation: str = "overwrite",
    ) -> Table:
        """Add a snapshot in which files come and go."""
        id, number = self.number(), table.sequence + 1
        stamped = [replace(file, snapshot=id, sequence=sequence or number) for file in added]
        manifests = [
            self._manifest(
                table, kind, id, number, [(ADDED, file) for file in stamped if (file.content == DATA) == data]
            )
            for kind, data in ((DATA, True), (POSITION_DELETES, False))
            if any((file.content == DATA) == data for file in stamped)
        ]
        return self._next(table, id, [*manifests, *self._without(table, gone, id)], operation)

    def _without(self, table: Table, gone: Collection[File], id: int = 0) -> list[Manifest]:
        """Return the head's manifests; those that hold one of these files are written anew."""
        names, manifests = {file.path for file in gone}, []
        for manifest in self._carried(table):
            if any(file.path in names for file in manifest.live):
                entries = [(DELETED if file.path in names else EXISTING, file) for file in manifest.live]
                manifest = self._manifest(table, manifest.content, id, table.sequence + 1, entries)
            manifests.append(manifest)
        return manifests


@dataclass(frozen=True)
class _Group:
    """Iceberg's `RewriteFileGroup`: data files, and what they have become."""

    replaced: tuple[File, ...]
    added: tuple[File, ...]


@dataclass
class _Loaded:
    """A table as a process of Spark's has loaded it."""

    world: CompactedWorld
    seen: Table

    def refresh(self) -> None:
        self.seen = self.world.table

    def currentSnapshot(self) -> Java:
        current = self.seen.current
        return None if current is None else SimpleNamespace(snapshotId=lambda: current)


class _CommitManager:
    """Iceberg's `RewriteDataFilesCommitManager`, on the table that `main` has."""

    def __init__(
        self,
        world: CompactedWorld,
        turn: Turn,
        loaded: _Loaded,
        start: int | None = None,
        use_starting_number: bool = True,
        summary_properties: Mapping[str, str] | None = None,
    ) -> None:
        self._world, self._turn, self._loaded = world, turn, loaded
        self._start, self._use_starting_number, self._summary_properties = (
            start,
            use_starting_number,
            summary_properties,
        )

    def commitFileGroups(self, groups: Collection[_Group]) -> None:
        """Commit groups on whatever `main` has by now, or say why not."""
        self._turn.call("commit a rewrite")
        if self._turn.chance(_LOST_RACES * bool(self._turn.faults.switch)):
            raise CommitConflict("others were faster")
        table = self._build_table(groups)
        if self._turn.chance(self._turn.faults.unknown):
            if self._turn.chance(0.5):
                self._world.commit("a rewrite, without an answer", table)
            raise CatalogStateUnknown("the simulation lost the answer")
        self._world.commit("a rewrite", table)
        self._turn.die("after")

    def abortFileGroup(self, group: _Group) -> None:
        """Delete what a group has become."""
        for file in group.added:
            self._world.throw_away(file)

    def _build_table(self, groups: Collection[_Group]) -> Table:
        table = self._world.table
        start = table.snapshot(self._start)
        if start is None:
            raise TableChanged("cannot determine history")
        gone = [file for group in groups for file in group.replaced]
        there = {file.path for manifest in self._carried(table) for file in manifest.live}
        if any(file.path not in there for file in gone):
            raise TableChanged("a file is gone")
        for delete in self._deletes_since(table, start):
            if delete.content == POSITION_DELETES and {path for path, _ in delete.deletes} & {f.path for f in gone}:
                raise TableChanged("found new position delete for replaced data file")
            if delete.content == EQUALITY_DELETES and not self._use_starting_number:
                raise TableChanged("found new delete for replaced data file")
        added = [file for group in groups for file in group.added]
        number = start.sequence if self._use_starting_number else None
        return self._world.writers.replaced(table, gone, added, number)

    @staticmethod
    def _carried(table: Table) -> tuple[Manifest, ...]:
        current = table.snapshot(table.current)
        return current.manifests if current else ()

    @staticmethod
    def _deletes_since(table: Table, start: Snapshot) -> list[File]:
        return [
            file
            for snapshot in table.snapshots
            if snapshot.sequence > start.sequence
            for manifest in snapshot.manifests
            for status, file in manifest.entries
            if status == ADDED and file.content != DATA and file.snapshot == snapshot.id
        ]


class _Spark:
    """Stands in for `MainTables`: a driver whose Iceberg is the one above."""

    def __init__(self, world: CompactedWorld, turn: Turn) -> None:
        self.world, self.turn = world, turn
        actions = SimpleNamespace(RewriteDataFilesCommitManager=partial(_CommitManager, world, turn))
        iceberg = SimpleNamespace(iceberg=SimpleNamespace(actions=actions))
        util = SimpleNamespace(util=SimpleNamespace(HashSet=set))
        self.jvm: Java = SimpleNamespace(org=SimpleNamespace(apache=iceberg), java=util)

    def check_executors(self) -> None:
        """Spark always is."""

    def table(self, key: Key) -> _Loaded:
        self.turn.call(f"load {'.'.join(key)}")
        return _Loaded(self.world, self.world.table)

    def call(self, work: Callable[[], Java]) -> Java:
        return work()

    def hash_map(self, values: Mapping[str, str]) -> dict[str, str]:
        return dict(values)

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Rewriting(TableRewrite):
    """`TableRewrite` over `_Spark`: what reads and writes rows is here, what commits is sterna's."""

    def lost_columns(self, spec_id: int) -> list[str]:
        return []

    def rewrite_manifests(self, summary_properties: Mapping[str, str]) -> tuple[int, int]:
        return 0, 0

    def rewrite_deletes(self, summary_properties: Mapping[str, str]) -> tuple[int, int]:
        return 0, 0

    def plan_tasks(self, paths: Collection[str]) -> dict[str, Java]:
        # What is read stands here, as in Iceberg's scan tasks: the snapshot itself may expire.
        snapshot = self.table.seen.snapshot(self.snapshot_id)
        live = snapshot.live if snapshot else []
        return {file.path: (file, [row for _, row in live_rows(snapshot, file)]) for file in live if file.path in paths}

    def write_group(self, planned: PlannedGroup, index: int) -> WrittenGroup:
        spark: Java = self.tables
        spark.turn.call(f"write group {index}")
        for _ in range(spark.turn.rng.randrange(_TURNS_OF_A_WRITE)):
            spark.turn.rest()
        tasks = [self.tasks[path] for path in sorted(planned.paths)]
        replaced, rows = tuple(file for file, _ in tasks), [row for _, task_rows in tasks for row in task_rows]
        written = (spark.world.write_rows(rows),) if rows else ()
        spark.turn.die("after")
        return WrittenGroup(planned, _Group(replaced, written), len(written), sum(len(file.data) for file in written))


class _OtherRegions:
    """The stores of other regions, for what upkeep asks them about: none answers."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def read(self, uri: str) -> bytes:
        raise StoreUnreachable("the simulation has one region", file=uri)


class Compacting(Actor):
    """Whoever runs upkeep; somebody else may run it at the same time."""

    def work(self) -> None:
        """Run it, and tell what came of it."""
        for table in self.once().tables:
            self.tell(f"{table.groups} groups, {table.conflicts} in conflict{': ' * bool(table.failed)}{table.failed}")

    def once(self) -> MaintenanceReport:
        """Run it once."""
        return run.run_maintenance(self.context, _SETTINGS, (), self.tell, dry_run=False)


class CompactedWorld:
    """The table, its writers, and two who compact it, played by a seed.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"compacted {seed}")
        self.trace: list[str] = []
        self.clock = Clock()
        self.store = Store(self.clock.now, "s3://eu-replica")
        self.catalog = InMemoryCatalog(self.clock.now)
        self.main = Main(self.rng, self.catalog, self.store, self.clock.now_ms, self.trace.append)
        self.writers = Writers(self.rng, self.clock.now_ms)
        self.main.put(_KEY, self.writers.create(_KEY[-1], "s3://eu-lake"), "create")
        self.actors = [Compacting(name, self._context(name), self.trace.append) for name in ("K", "N")]

    @property
    def table(self) -> Table:
        """What `main` has."""
        return self.main.tables()[_KEY]

    def play(self) -> None:
        """Run the seed: writers and compactions in any order, and at last a compaction alone.

        Raises:
            Violation: something that must always hold did not.
        """
        with self.doubles():
            try:
                for _ in range(_STEPS):
                    self.clock.go_on(self.rng.choice((1, 60)))
                    self._go_on()
                self._settle()
            except Violation as error:
                raise Violation("\n".join((str(error), *self.trace[-60:]))) from error
            finally:
                for actor in self.actors:
                    actor.end()

    def commit(self, what: str, table: Table) -> None:
        """Put a version on `main`, and see that it has the right rows, and all of its files."""
        self.main.put(_KEY, table, what)
        rows = read(table.snapshot(table.current))
        if back := rows - self.writers.rows:
            raise Violation(f"compaction: rows are back after {what}: {sorted(back.elements())}")
        if lost := self.writers.rows - rows:
            raise Violation(f"compaction: rows are lost after {what}: {sorted(lost.elements())}")
        if gone := table.files().keys() - self.store.objects.keys():
            raise Violation(f"compaction: {what} shows files that are gone: {sorted(gone)}")

    def write_rows(self, rows: list[Row]) -> File:
        """Write a data file that no commit has yet."""
        file = self.writers.data_file(self.table, rows)
        self.store.put(file.path, file.data)
        return file

    def throw_away(self, file: File) -> None:
        """Delete a file that was written and is committed nowhere.

        Raises:
            Violation: it is.
        """
        self.trace.append(f"thrown away: {file.path}")
        if any(file.path in version.files() for version in self.main.versions.values()):
            raise Violation(f"compaction: a file is thrown away that main shows: {file.path}")
        self.store.delete(file.path)

    def _go_on(self) -> None:
        if self.rng.random() < 0.4:
            self.commit(*self.writers.write(self.table))
        else:
            self.rng.choice(self.actors).go_on()

    def _settle(self) -> None:
        """Nobody writes any more, and nothing goes wrong: one run does all that there is to do."""
        for actor in self.actors:
            actor.end()
            actor.turn.faults = Faults()
        self.clock.go_on(60)
        for table in self.actors[0].once().tables:
            if table.failed or table.conflicts:
                raise Violation(f"compaction: nobody writes, and it doesn't get ahead: {table}")
        data = [file for manifest in _CommitManager._carried(self.table) for file in manifest.live]
        if len([file for file in data if file.content == DATA]) > 4:
            raise Violation("compaction: nobody writes, and many small files stay")

    def _context(self, name: str) -> RegionContext:
        turn = Turn(self.rng, _FAULTS, lambda line: self.trace.append(f"  {name} {line}"))
        catalog = ActorsCatalog(self.catalog, registry().region("eu").replica_branch, turn, [])
        objects = Objects(self.store, mapping(), turn)
        ports = {"catalog": catalog, "primary": catalog, "objects": objects, "mapping": mapping()}
        return injected(registry(), "eu", no_secrets, **ports)

    def _spark(self, *_: object) -> _Spark:
        running = next((actor for actor in self.actors if actor.running), self.actors[0])
        return _Spark(self, running.turn)

    @contextmanager
    def doubles(self) -> Iterator[None]:
        """Put the clock, and what stands in for Spark, where sterna would reach for the real ones."""
        time = self.clock.as_datetime()
        with ExitStack() as stack:
            for patched in (
                *(patch.object(module, "datetime", time) for module in (run, plan)),
                *(patch.object(module, "ThreadPoolExecutor", Serial) for module in (run, plan)),
                patch.object(run, "MainTables", self._spark),
                patch.object(run, "TableRewrite", _Rewriting),
                patch.object(run, "main_catalog", lambda *_: None),
                patch.object(failed_groups, "Objects", _OtherRegions),
            ):
                stack.enter_context(patched)
            yield
