"""`main` beside addresses: native writers, what addresses commit there, and the rows that each table has to have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from sterna.catalog.model import Commit, Key, Put
from tests.simulation.compacting import Row, Writers, read
from tests.simulation.main import Main
from tests.simulation.rest_tables import TableFiles
from tests.simulation.store import Store, Violation
from tests.simulation.tables import Table
from tests.support.doubles.catalog import InMemoryCatalog

YOUNG_SECONDS = 3_600
"""Snapshots that are younger are never expired: a request that is sent again is known by its snapshot."""
_OVERLAID = ("gc.enabled", "write.data.path", "write.metadata.path")


class TableWriters(Writers):
    """Those who change rows of tables whose UUIDs are real ones, on `main` or by an address.

    Args:
        rng, now_ms, first: as in `Changes`.
    """

    def __init__(self, rng: Random, now_ms: Callable[[], int], first: int = 0) -> None:
        super().__init__(rng, now_ms)
        self._count = first

    def create(self, name: str, home: str = "") -> Table:
        """Return a new table, without snapshots."""
        return self._version(Table(str(UUID(int=self.rng.getrandbits(128))), f"{home}/{name}-{self.number()}"))

    def change_rows(self, table: Table) -> tuple[str, Table]:
        """Change rows, or only how they are stored, as an engine does."""
        kinds = (
            *((self.append_rows, 6), (self.delete_values, 2), (self.upsert, 2), (self.delete_positions, 4)),
            *((self.add_vector, 3), (self.rewrite_file, 3), (self.overwrite_all, 1), (self.rewrite_manifests, 2)),
        )
        (kind,) = self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        return kind.__name__.replace("_", " "), kind(table)

    def change_refs(self, table: Table) -> tuple[str, Table]:
        """Change what a table keeps or shows of its history, as those do who care for `main`."""
        kind = self.rng.choice((self.expire_old, self.tag, self.roll_back))
        changed = kind(table)
        self.rows = read(changed.snapshot(changed.current))
        return kind.__name__.replace("_", " "), changed

    def expire_old(self, table: Table) -> Table:
        """Only what is young, current or tagged stays."""
        oldest = self._now_ms() - YOUNG_SECONDS * 1_000
        kept = {table.current, *table.tags.values()}
        gone = {snapshot.id for snapshot in table.snapshots if snapshot.time_ms < oldest} - kept
        return self.without(table, gone)


@dataclass
class Change:
    """Something that a client wants to be done once, however often it tries.

    Args:
        parts: the tables that it changes, all in one commit.
        committed: the snapshots on `main` that did it.
    """

    parts: int
    committed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Attempt:
    """One snapshot that a client has made for a change.

    Args:
        change: what it is for.
        key: the table's.
        base: the table as it was served.
        table: the table as the client would have it.
        added, removed: rows.
    """

    change: Change
    key: Key
    base: Table
    table: Table
    added: Counter[Row]
    removed: Counter[Row]

    @property
    def snapshot(self) -> int:
        """The snapshot's id."""
        return self.table.snapshots[-1].id


class ObservedMain(Main):
    """Native writers, and an observer who reads all that addresses commit.

    Args:
        rng, catalog, store, now_ms, tell: as in `Main`.
    """

    def __init__(
        self,
        rng: Random,
        catalog: InMemoryCatalog,
        store: Store,
        now_ms: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(rng, catalog, store, now_ms, tell)
        self.native = TableWriters(rng, now_ms)
        self.rows: dict[str, Counter[Row]] = {}
        self.attempts: dict[int, Attempt] = {}
        self._files = TableFiles(store, _require_name_of_main)
        self.positions: dict[int, int] = {}  # by snapshot of an address's, the number of its commit
        self._snapshots: dict[str, dict[int, str]] = {}
        self._rows_of_lists: dict[str, Counter[Row]] = {}
        self._checked: tuple[str, int] = ("", 0)

    def create_natively(self, key: Key, home: str) -> None:
        """Make a table with a few rows."""
        self.native.rows = Counter()
        table = self.native.append_rows(self.native.create(key[-1], home))
        self._commit_natively(key, table, "create")

    def write_natively(self) -> None:
        """Change a table's rows, or seldom what it keeps or shows of its history."""
        self.observe()
        key, table = self.rng.choice(sorted(self.tables().items(), key=lambda named: named[0]))
        self.native.rows = Counter(self.rows[table.uuid])
        change = self.native.change_rows if self.rng.random() < 0.75 else self.native.change_refs
        what, changed = change(table)
        self._commit_natively(key, changed, what)

    def _commit_natively(self, key: Key, table: Table, what: str) -> None:
        self.rows[table.uuid] = +self.native.rows
        self.put(key, table, f"native: {what}")
        self._see_table(table, is_native=True)

    def expire_natively(self) -> None:
        """Have every table keep what is current, tagged or young."""
        self.observe()
        for key, table in sorted(self.tables().items(), key=lambda named: named[0]):
            self.native.rows = Counter(self.rows[table.uuid])
            self._commit_natively(key, self.native.expire_old(table), "expire all that is old")

    def rename_natively(self) -> None:
        """Give a table another name."""
        self.observe()
        now = self.tables()
        old = self.rng.choice(sorted(now))
        new = (old[0], f"{old[1][:1]}{len(self.heads)}")
        self._commit({new: now[old]}, [old], "native: rename", id=self.at(self.heads[-1])[old].id)

    def observe(self) -> None:
        """Read what addresses have committed since.

        Raises:
            Violation: it isn't what clients wanted, or was committed before.
        """
        for commit in reversed(list(self.catalog.history("main", operations=True, until=self.heads[-1]))):
            self._observe_commit(commit)

    def _observe_commit(self, commit: Commit) -> None:
        puts = [operation for operation in commit.operations or () if isinstance(operation, Put)]
        self.heads.append(commit.hash)
        self.changed.append(tuple(operation.key for operation in commit.operations or ()))
        self.tell(f"main@{len(self.heads) - 1}: {commit.message}")
        for put in puts:
            uri = put.content.metadata_location
            if uri is not None and uri not in self.versions:
                self.versions[uri] = self._read(uri)
                self.rows.setdefault(self.versions[uri].uuid, Counter())
                self._see_table(self.versions[uri], is_native=False)
        self._require_whole_changes()

    def _require_whole_changes(self) -> None:
        newest = [self.attempts[id].change for id, at in self.positions.items() if at == len(self.heads) - 1]
        for change in newest:
            if len(change.committed) > change.parts:
                raise Violation(f"rest: committed twice: {change}")
            if len(change.committed) < change.parts:
                raise Violation(f"rest: torn: {change}")

    def _read(self, uri: str) -> Table:
        stored = self.store.objects.get(uri)
        if stored is None:
            raise Violation(f"rest: missing: {uri}")
        for name in _OVERLAID:
            if name.encode() in stored.data:
                raise Violation(f"rest: main has the overlaid property {name}: {uri}")
        _require_name_of_main(stored.data.decode())
        return self._files.read(json.loads(stored.data), uri)

    def _see_table(self, table: Table, *, is_native: bool) -> None:
        """Hold a new version against the rows that it has to have, and each older snapshot against what it was."""
        there = self._snapshots.setdefault(table.uuid, {})
        for snapshot in table.snapshots:
            rows = self._rows_of_lists.setdefault(snapshot.path, read(snapshot))
            if snapshot.id not in there and not is_native:
                self._see_attempt(table, snapshot.id)
            before = self._rows_of_lists[there.setdefault(snapshot.id, snapshot.path)]
            if rows != before:
                raise Violation(f"rest: snapshot {snapshot.id} of {table.path} has other rows than before")
        self._require_rows(table)

    def _see_attempt(self, table: Table, snapshot: int) -> None:
        attempt = self.attempts.get(snapshot)
        if attempt is None:
            raise Violation(f"rest: nobody made snapshot {snapshot} of {table.path}")
        attempt.change.committed.append(snapshot)
        self.positions[snapshot] = len(self.heads) - 1
        self.rows[table.uuid] = self.rows[table.uuid] - attempt.removed + attempt.added

    def _require_rows(self, table: Table) -> None:
        rows, wanted = read(table.snapshot(table.current)), self.rows[table.uuid]
        if rows != wanted:
            more, lost = sorted((rows - wanted).elements()), sorted((wanted - rows).elements())
            raise Violation(f"rest: rows of {table.path}: too many {more}, lost {lost}")

    def position(self, key: Key, table: Table, since: int) -> int:
        """Return the number of the first commit, from another one on, at which a table was what is served of it.

        Raises:
            Violation: it was that only before, or never.
        """
        self.observe()
        for number in range(since, len(self.heads)):
            there = self.tables(self.heads[number]).get(key)
            if there is not None and _shown(there) == _shown(table):
                return number
        raise Violation(f"rest: {key} is served as main hasn't had it since its commit {since}")

    def check(self) -> None:
        """See that all that `main` names is there, as long as its parents say.

        Raises:
            Violation: it isn't.
        """
        self.observe()
        looked_at = (self.heads[-1], self.store.deleted)
        if looked_at != self._checked:
            for table in self.tables().values():
                self._read(table.path)
            self._checked = looked_at

    def names(self, uri: str) -> bool:
        """Tell whether `main` names a file, in any kept snapshot."""
        self.observe()
        return any(uri in table.files() for table in self.tables().values())


def _shown(table: Table) -> tuple[str, int | None, dict[str, int], list[int]]:
    return table.uuid, table.current, table.tags, [snapshot.id for snapshot in table.snapshots]


def _require_name_of_main(text: str) -> None:
    if "-replica/" in text:
        raise Violation(f"rest: main names a replica's file: {text}")
