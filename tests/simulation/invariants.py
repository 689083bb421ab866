"""What must always hold, looked at after each step.

Closure, equality, order, a source that is only read, nothing overwritten, no second commit of a run.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sterna.catalog.model import NAMESPACE, Commit, Content, Key, key_name, parse_key
from sterna.replication.replica.head import PLANNED_HASH, Head, parse_head
from sterna.replication.replica.held import Held
from tests.simulation.cleaning import KEEP
from tests.simulation.main import Main
from tests.simulation.reader import EU, Reached, prove, read_table
from tests.simulation.store import Store, Violation
from tests.simulation.tables import Table
from tests.support.doubles.catalog import InMemoryCatalog


class Invariants:
    """Watches a replica branch and its files.

    Args:
        catalog: the catalog, without faults.
        store: the stores, without faults.
        main: what stood on `main` at each commit.
        branch: the replica branch.
        root: the replica root.
        origin: takes a URI of the replica back to the one on `main`.
        since: what the branch was up to this head is not looked at; "": everything is.
        home: how all URIs of the region begin.
    """

    def __init__(
        self,
        catalog: InMemoryCatalog,
        store: Store,
        main: Main,
        branch: str,
        root: str,
        origin: Callable[[str], str],
        since: str = "",
        home: str = EU,
    ) -> None:
        self._catalog = catalog
        self._home = home
        self._store = store
        self._main = main
        self._branch = branch
        self._root = root
        self._origin = origin
        self._hash = since or catalog.no_ancestor()
        self._deleted = 0
        self.commits = 0
        self._older: list[tuple[datetime, dict[str, int | None]]] = []
        self._in_place: list[tuple[datetime, set[str]]] = []
        self._runs: set[str] = set()
        self._read: dict[str, Reached] = {}
        self._shown: dict[str, Reached] = {}
        self._list: dict[str, int | None] = {}
        self.watermark = -1
        self._positions: dict[Key, int] = {}
        self._seeded = -1
        self._free: set[tuple[int, Key]] = set()

    @property
    def positions(self) -> dict[Key, int]:
        """Of each key, the number of the commit whose version the replica shows; -1 for none."""
        return self._positions

    @property
    def reached(self) -> set[str]:
        """Every file that the replica's head reaches, and its list of what is held."""
        return {uri for table in self._shown.values() for uri in table.files} | self._list.keys()

    @property
    def kept(self) -> set[str]:
        """Every file that a head reaches which readers may still use: also those that lie in place."""
        return self.reached.union(*(files for until, files in self._in_place if until > self._store.now() - KEEP))

    def published_version(self, uri: str) -> Reached | None:
        """What a table reaches by its metadata.json, None where no head showed it."""
        return self._read.get(uri)

    def check(self) -> None:
        """Look at what the last step may have broken.

        Raises:
            Violation: something doesn't hold.
        """
        for commit in reversed(list(self._new_commits())):
            self._older.append((commit.commit_time, self._below_root()))
            self._in_place.append((commit.commit_time, self.reached))
            self._check_commit(commit)
            self._hash = commit.hash
            self.commits += 1
        if self._deleted != self._store.deleted:
            self._deleted = self._store.deleted
            for table in self._shown.values():
                prove(self._store, table.files, self._home)
            prove(self._store, self._list, self._home)
            for until, files in self._older:
                if until > self._store.now() - KEEP:
                    prove(self._store, files, self._home)

    def _below_root(self) -> dict[str, int | None]:
        """What the head that is replaced now reaches and a clean-up leaves there for a while.

        `main` may remove the rest.
        """
        return {
            uri: size
            for table in self._shown.values()
            for uri, size in table.files.items()
            if self._store.is_below_root(uri)
        } | self._list

    def _new_commits(self) -> list[Commit]:
        if self._branch not in {reference.name for reference in self._catalog.references()}:
            return []
        commits = list(self._catalog.history(self._branch, operations=False, until=self._hash))
        if commits and commits[-1].parent != self._hash:
            raise Violation(f"order: {self._branch} lost its head {self._hash}")
        return commits

    def _check_commit(self, commit: Commit) -> None:
        head = self._with_held(parse_head(commit))
        # A clean-up commits when it begins to delete and when it is done.
        if head.run_id in self._runs and not head.run_id.startswith("collect-"):
            raise Violation(f"a second commit of run {head.run_id}")
        self._runs.add(head.run_id)
        self._main.tell(
            f"replica: W = {self._position(head.watermark)}, held {[f'{item.key}: {item.kind}' for item in head.held]}"
        )
        watermark = self._position(head.watermark)
        if watermark < self.watermark:
            raise Violation(f"order: the watermark goes back from {self.watermark} to {watermark}")
        if self.watermark < 0:
            self._seeded = self._position(commit.properties[PLANNED_HASH])
        self.watermark = watermark
        contents = dict(self._catalog.entries(self._branch, commit.hash))
        self._check_tables(contents)
        if head.watermark:
            self._check_equality(contents, head)
        else:
            self._check_seed(contents, self._seeded)

    def _with_held(self, head: Head) -> Head:
        """Read the list that a commit names; it stands there before the commit, and says what its name says."""
        listed, self._list = head.held_list, {}
        if not listed.digest:
            return head
        uri = f"{self._root}/_sterna/held/{listed.digest}.json.gz"
        if uri not in self._store.objects:
            raise Violation(f"closure: the list of what is held is not there: {uri}")
        data = self._store.objects[uri].data
        text = gzip.decompress(data)
        if hashlib.sha256(text).hexdigest() != listed.digest:
            raise Violation(f"the list of what is held says something else than its name: {uri}")
        self._list = {uri: len(data)}
        return replace(head, held_list=replace(listed, entries=tuple(Held(**item) for item in json.loads(text))))

    def _check_tables(self, contents: dict[Key, Content]) -> None:
        """Closure: read every table of the new head, those that were read before by looking at their files alone."""
        self._shown = {}
        for content in contents.values():
            uri = content.metadata_location
            if uri is None:
                continue
            if uri in self._read:
                prove(self._store, self._read[uri].files, self._home)
            else:
                self._read[uri] = read_table(self._store, uri, self._origin, self._home)
            self._shown[uri] = self._read[uri]

    def _check_equality(self, contents: dict[Key, Content], head: Head) -> None:
        """Each key shows what `main` has at the watermark; a held one what `main` had at its last good commit."""
        held = {parse_key(item.key): item for item in head.held}
        wanted = self._main.at(head.watermark)
        positions = dict.fromkeys(wanted.keys() | contents.keys() | held.keys(), self.watermark)
        for key in positions:
            if key in held and not held[key].good:
                positions[key] = self._check_unplaced(key, contents.get(key))
                continue
            at = held[key].good if key in held else head.watermark
            positions[key] = self._position(at)
            self._check_key(key, contents.get(key), self._main.at(at).get(key))
        self._check_order(positions)

    def _check_unplaced(self, key: Key, content: Content | None) -> int:
        """A held key with no last good commit shows nothing.

        Or what a group of the first seed brought, whatever the commit.
        """
        return -1 if content is None else self._find(key, content, len(self._main.heads) - 1)

    def _check_seed(self, contents: dict[Key, Content], planned: int) -> None:
        """While a branch is seeded each table shows what some commit up to the planned one had."""
        for key, content in contents.items():
            self._find(key, content, planned)

    def _find(self, key: Key, content: Content, newest: int) -> int:
        for position in reversed(range(newest + 1)):
            source = self._main.at(self._main.heads[position]).get(key)
            if source is not None and self._same(content, source):
                return position
        raise Violation(f"equality: {key_name(key)} shows what never was on main up to {newest}")

    def _check_key(self, key: Key, content: Content | None, source: Content | None) -> None:
        if (content is None) != (source is None):
            raise Violation(f"equality: {key_name(key)} is {content} here and {source} on main")
        if content is not None and source is not None and not self._same(content, source):
            raise Violation(
                f"equality: {key_name(key)} is {content.metadata_location}, and main has {source.metadata_location}"
            )

    def _same(self, content: Content, source: Content) -> bool:
        if content.kind == NAMESPACE or source.metadata_location is None:
            return content.kind == source.kind
        table: Table = self._main.versions[source.metadata_location]
        here = self._read[content.metadata_location or ""]
        return (here.uuid, here.current, here.tags, here.rows) == (table.uuid, table.current, table.tags, table.rows())

    def _check_order(self, positions: dict[Key, int]) -> None:
        """No key goes back, and what one commit of `main` changed together is seen together."""
        for key, position in positions.items():
            if position < self._positions.get(key, -1):
                raise Violation(f"order: {key_name(key)} goes back from {self._positions[key]} to {position}")
        self._positions = positions
        # While a branch is seeded its tables appear in groups, and those that can't be taken up are left behind.
        for number in range(self._seeded + 1, self.watermark + 1):
            keys = [key for key in self._main.changed[number] if (number, key) not in self._free]
            sides = [self._sides(key, positions.get(key, self.watermark), number) for key in keys]
            # A key that came back to what it was shows nothing of that commit: what becomes of it from then on is
            # another change.
            self._free.update((number, key) for key, side in zip(keys, sides, strict=True) if len(side) > 1)
            if any(side == {"before"} for side in sides) and any(side == {"after"} for side in sides):
                raise Violation(
                    f"order: main@{number} changed {self._main.changed[number]} at once, and they are shown {sides}"
                )

    def _sides(self, key: Key, shown: int, number: int) -> set[str]:
        """Tell whether what is shown of a key may be from before a commit, from after it, or both."""
        there = self._location(key, shown)
        before = any(self._location(key, position) == there for position in range(number))
        after = any(self._location(key, position) == there for position in range(number, self.watermark + 1))
        return {*(["before"] if before else []), *(["after"] if after else [])}

    def _location(self, key: Key, position: int) -> str | None:
        """Return what `main` had under a key at a commit."""
        content = self._main.at(self._main.heads[position]).get(key) if position >= 0 else None
        return content.metadata_location if content else None

    def _position(self, hash: str) -> int:
        return self._main.heads.index(hash) if hash else -1
