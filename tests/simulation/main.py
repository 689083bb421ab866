"""The branch `main`.

What its writers commit there, what its maintenance removes, and what stood there at each commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random

from sterna.catalog.model import ICEBERG_TABLE, NAMESPACE, Content, Delete, Key, Operation, Put, namespace_content
from tests.simulation.changes import Changes
from tests.simulation.store import Store
from tests.simulation.tables import Table
from tests.support.doubles.catalog import InMemoryCatalog

FOLLOWED = "f"
"""The namespace of a flow's two tables, which nobody else changes."""
_NAMES = tuple((space, name) for space in ("n", "m") for name in ("a", "b", "c"))


class Main:
    """The writers of `main` and its maintenance.

    Args:
        rng: decides everything.
        catalog: the catalog, without faults.
        store: the stores, without faults.
        now_ms: the clock.
        tell: called with a line for the trace.
    """

    def __init__(
        self,
        rng: Random,
        catalog: InMemoryCatalog,
        store: Store,
        now_ms: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self.rng = rng
        self.catalog = catalog
        self.store = store
        self.tell = tell
        self.changes = Changes(rng, now_ms)
        self.versions: dict[str, Table] = {}
        self.heads = [catalog.no_ancestor()]
        self.changed: list[tuple[Key, ...]] = [()]
        self.lost: dict[str, bytes] = {}
        self._at: dict[str, dict[Key, Content]] = {}
        self.condemned: list[tuple[str, int]] = []

    def at(self, hash: str) -> dict[Key, Content]:
        """What stood on `main` at a commit."""
        if hash not in self._at:
            self._at[hash] = dict(self.catalog.entries("main", hash))
        return self._at[hash]

    def tables(self, hash: str | None = None) -> dict[Key, Table]:
        """The tables on `main` at a commit, by default its head."""
        contents = self.at(hash or self.heads[-1]).items()
        return {key: self.versions[content.metadata_location] for key, content in contents if content.metadata_location}

    def writable_tables(self) -> dict[Key, Table]:
        """The tables on `main` that any writer may change."""
        return {key: table for key, table in self.tables().items() if key[0] != FOLLOWED}

    # What writers do.

    def write(self) -> None:
        """Change one table, or several in one commit."""
        now = self.writable_tables()
        count = self.rng.choices((1, 2), (4, 1))[0]
        keys = (
            self.rng.sample(_NAMES, count)
            if self.rng.random() < 0.3 or not now
            else self.rng.sample(sorted(now), min(count, len(now)))
        )
        tables = {key: self.changes.change(now[key]) if key in now else self._new(key) for key in keys}
        self._commit(tables, [], "write")

    def write_at_home(self, *, large: bool = False, home: str = "") -> Key:
        """Make a table, under a name that was never used, whose files all lie where it does; return its key."""
        key = ("h", f"t{len(self.heads)}")
        with self._at_home(large=large):
            table = self.changes.append(self.changes.create(key[-1], home))
        self._commit({key: table}, [], "write at home")
        return key

    def put_away(self, key: Key) -> Table:
        """Drop a table, and return it."""
        table = self.tables()[key]
        self._commit({}, [key], "put away")
        return table

    def bring_back(self, key: Key, table: Table) -> None:
        """Put a table back that was put away, with many more bytes."""
        with self._at_home(large=True):
            grown = self.changes.append(table)
        self._commit({key: grown}, [], "bring back")

    @contextmanager
    def _at_home(self, *, large: bool) -> Iterator[None]:
        before = self.changes.scattered, self.changes.large
        self.changes.scattered, self.changes.large = False, float(large)
        yield
        self.changes.scattered, self.changes.large = before

    def change_at(self, home: str) -> None:
        """Append to a table all files of which lie in one place, and expire what was; make it the first time."""
        key = ("h", "here")
        with self._at_home(large=False):
            table = self.tables().get(key) or self.changes.create(key[-1], home.rstrip("/"))
            appended = self.changes.append(table)
        gone = {item.id for item in appended.snapshots} - {appended.current}
        self._commit({key: self.changes.without(appended, gone)}, [], "write there")

    def drop(self) -> None:
        """Drop a table; sometimes make another one under its name in the same commit."""
        now = self.writable_tables()
        if now:
            key = self.rng.choice(sorted(now))
            again = self.rng.random() < 0.3
            self._commit({key: self._new(key)} if again else {}, [key], "drop")

    def rename(self) -> None:
        """Give a table another name; sometimes change it in the same commit."""
        now = self.writable_tables()
        free = sorted(set(_NAMES) - now.keys())
        if not now or not free:
            return
        old, new = self.rng.choice(sorted(now)), self.rng.choice(free)
        table = self.changes.change(now[old]) if self.rng.random() < 0.3 else now[old]
        self._commit({new: table}, [old], "rename", id=self.at(self.heads[-1])[old].id)

    def drop_namespace(self) -> None:
        """Drop a namespace in which nothing lives."""
        now = self.at(self.heads[-1])
        empty = [
            key
            for key, content in now.items()
            if content.kind == NAMESPACE and not any(other[:1] == key != other for other in now)
        ]
        if empty:
            self._commit({}, [self.rng.choice(empty)], "drop namespace")

    def expire(self, key: Key, metadata: str, gone: Collection[int]) -> bool:
        """Take snapshots out of a table's metadata, as Iceberg does, if it is what somebody looked at."""
        table = self.tables().get(key)
        if table is None or table.path != metadata:
            return False
        self._commit({key: self.changes.without(table, gone)}, [], "upkeep expires")
        return True

    def put(self, key: Key, table: Table, what: str) -> None:
        """Commit a table's next version."""
        self._commit({key: table}, [], what)

    def commit_if(self, key: Key, before: Table, after: Table) -> bool:
        """Commit a table's next version if the table still is what it was made from."""
        if self.tables().get(key) != before:
            return False
        self._commit({key: after}, [], "write slowly")
        return True

    # What goes wrong, and what mends it.

    def lose(self) -> None:
        """A file that somebody's table needs is gone by mistake."""
        files = sorted(uri for uri in self._reachable() - self.lost.keys() if uri.startswith("s3://us-"))
        if files:
            uri = self.rng.choice(files)
            self.tell(f"lost: {uri}")
            self.lost[uri] = self.store.objects[uri].data
            self.store.delete(uri)

    def restore(self) -> None:
        """The operator brings back everything that was lost."""
        for uri, data in self.lost.items():
            self.tell(f"restored: {uri}")
            self.store.put(uri, data)
        self.lost.clear()

    def purge(self, may: Callable[[str, int], bool]) -> None:
        """Delete some of the files that an expiry or a drop left without a use on `main`, as far as they may go yet."""
        ready = [item for item in self.condemned if may(*item)]
        for item in self.rng.sample(ready, self.rng.randint(0, len(ready))):
            self.tell(f"purged: {item[0]}")
            self.condemned.remove(item)
            self.store.delete(item[0])
            self.lost.pop(item[0], None)

    def _new(self, key: Key) -> Table:
        return self.changes.append(self.changes.create(key[-1]))

    def _commit(self, tables: dict[Key, Table], gone: list[Key], what: str, id: str | None = None) -> None:
        """Write some tables' files and commit them, with the namespaces that they need."""
        before = self.at(self.heads[-1])
        needed = self._reachable()
        operations: list[Operation] = [Delete(key) for key in gone]
        operations += [
            Put(space, namespace_content(space)) for space in sorted({key[:1] for key in tables} - before.keys())
        ]
        for key, table in tables.items():
            self._write_files(table)
            content_id = before[key].id if key in before and key not in gone else id
            operations.append(Put(key, content_of(table, content_id)))
        self.heads.append(self.catalog.commit_as("writer", "main", operations, what))
        self.changed.append(tuple(dict.fromkeys([*gone, *tables])))
        position = len(self.heads) - 1
        shown = [
            *(f"{'.'.join(key)} = {table.path}" for key, table in tables.items()),
            *(f"{'.'.join(key)} goes" for key in gone),
        ]
        self.tell(f"main@{position}: {what}: {', '.join(shown)}")
        self.condemned += [(uri, position) for uri in sorted(needed - self._reachable())]

    def _write_files(self, table: Table) -> None:
        if table.path in self.versions:
            return
        self.versions[table.path] = table
        for uri, data in table.files().items():
            if uri not in self.store.objects and uri not in self.lost:
                self.store.put(uri, data)

    def _reachable(self) -> set[str]:
        return {uri for table in self.tables().values() for uri in table.files()}


def content_of(table: Table, id: str | None) -> Content:
    """Return what a catalog says of a table's version."""
    snapshot = -1 if table.current is None else table.current
    payload = {
        "type": ICEBERG_TABLE,
        "metadataLocation": table.path,
        "snapshotId": snapshot,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    return Content.of(payload).with_id(id)
