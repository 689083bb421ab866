"""From a pin to the metadata.json of this region that shows it, by the region's own copy of the catalog alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Key, Put, key_name
from sterna.errors import NoSuchQuery, NotYetHere, ObjectMissing, ReferenceNotFound, SnapshotGone
from sterna.query.job import PinnedTable
from sterna.query.request import CommitPin, SnapshotPin
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import REGION, RUN_ID, Head, newest_commit, read_head
from sterna.replica.region import RegionContext

_FILES_KEPT = 1000  # metadata.json, as the ids in them
_OLDER = 10_000  # commits of the replica branch that are looked through for an older version
_OLDER_FILES = 20  # of which so many metadata.json are read
_NEWER = 1000  # commits of `main` after the watermark


@dataclass(frozen=True)
class _Snapshots:
    current: int | None
    all: frozenset[int]


class Pins:
    """Finds what requests are pinned to; for any number of threads.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._files: OrderedDict[str, _Snapshots] = OrderedDict()
        self._log: list[Commit] = []  # newest first
        self._lock = threading.Lock()
        self._looking_back = threading.Lock()

    def find(self, tables: tuple[Key, ...], pin: SnapshotPin | CommitPin) -> tuple[PinnedTable, ...]:
        """Return the tables as a pin shows them.

        Raises:
            SnapshotGone: this region hasn't got it, and `main` as far as it is known here neither.
            NotYetHere: `main` has it, and this region not yet.
            NoSuchQuery: there is no such table here.
            CatalogError, StoreError: something doesn't answer.
        """
        if isinstance(pin, CommitPin):
            return self._at_commit(tables, pin.hash)
        (key,) = tables
        return (self._at_snapshot(key, pin.snapshot),)

    def current(self, tables: tuple[Key, ...]) -> tuple[str, dict[str, int | None]]:
        """Return the head of the replica branch, and the current snapshot there of each of some tables that it has."""
        head = self.head()
        contents = self.tables_at(head.hash, tables)
        return head.hash, {key_name(key): self._snapshots(content).current for key, content in contents.items()}

    def head(self) -> Head:
        """Return the head of the replica branch.

        Raises:
            NotYetHere: nothing was published yet.
        """
        head = read_head(self._context.catalog, self._context.region.replica_branch)
        if head.commit_time is None:
            raise NotYetHere(f"region {self._context.region.name} has published nothing yet")
        return head

    def tables_at(self, hash: str, keys: tuple[Key, ...]) -> Mapping[Key, Content]:
        """Return which of some tables a commit of the replica branch shows."""
        found = self._context.catalog.contents(self._context.region.replica_branch, hash, keys)
        return {key: content for key, content in found.items() if _readable(content)}

    def _at_commit(self, tables: tuple[Key, ...], hash: str) -> tuple[PinnedTable, ...]:
        branch = self._context.region.replica_branch
        try:
            commit = newest_commit(self._context.catalog, f"{branch}@{hash}")
            known = commit is not None and commit.hash == hash and _is_replicas(commit, self._context.region.name)
            contents = self.tables_at(hash, tables) if known else {}
        except ReferenceNotFound:
            known = False
        if not known:
            raise SnapshotGone(f"this region knows no cursor {hash}, or no longer")
        for key in tables:
            if key not in contents:
                raise NoSuchQuery(f"there is no table {key_name(key)} at {hash[:12]}", table=key_name(key))
        try:
            current = {key: self._snapshots(contents[key]).current for key in tables}
        except ObjectMissing as error:  # a clean-up has passed it
            raise SnapshotGone(f"what {hash[:12]} showed is cleaned up by now", file=error.file) from error
        return tuple(PinnedTable(key, _uri(contents[key]), current[key], own_schema=False) for key in tables)

    def _at_snapshot(self, key: Key, snapshot: int) -> PinnedTable:
        head = self.head()
        content = self.tables_at(head.hash, (key,)).get(key)
        found = content if content and snapshot in self._snapshots(content).all else self.older(head, key, snapshot)
        if found is not None:
            return PinnedTable(key, _uri(found), snapshot, own_schema=True)
        on_main = self._on_main(head, key, snapshot)
        if on_main is True:
            raise NotYetHere(f"main has snapshot {snapshot}, and this region not yet", table=key_name(key))
        if content is None and on_main is None:
            raise NoSuchQuery(f"there is no table {key_name(key)}", table=key_name(key))
        raise SnapshotGone(f"snapshot {snapshot} is not here, or no longer", table=key_name(key))

    def older(self, head: Head, key: Key, snapshot: int) -> Content | None:
        """Return what an older commit of the replica branch held under a key, if it shows a snapshot."""
        puts = [
            operation.content
            for commit in self._commits(head)
            for operation in commit.operations or ()
            if isinstance(operation, Put) and operation.key == key and _readable(operation.content)
        ]
        # What was current is told by the content alone; what stood beside it, by the file.
        for content in (*(each for each in puts if _snapshot(each) == snapshot), *puts[:_OLDER_FILES]):
            try:
                if snapshot in self._snapshots(content).all:
                    return content
            except ObjectMissing:  # cleaned up by now
                continue
        return None

    def _commits(self, head: Head) -> list[Commit]:
        """Return the newest commits of the replica branch; reads those that are new since the last time."""
        with self._looking_back:
            newest = self._log[0].hash if self._log else None
            if newest == head.hash:
                return self._log
            branch = f"{self._context.region.replica_branch}@{head.hash}"
            found = list(islice(self._context.catalog.history(branch, operations=True, until=newest), _OLDER))
            goes_on = bool(found) and found[-1].parent == newest
            self._log = (found + self._log if goes_on else found)[:_OLDER]
            return self._log

    def _on_main(self, head: Head, key: Key, snapshot: int) -> bool | None:
        """Tell whether `main`, as this region's copy shows it, has a snapshot; None: it hasn't got the table."""
        catalog = self._context.catalog
        at = catalog.reference(SOURCE_BRANCH).hash
        content = catalog.contents(SOURCE_BRANCH, at, [key]).get(key) if at != catalog.no_ancestor() else None
        if content is not None and _snapshot(content) == snapshot:
            return True
        commits = catalog.history(f"{SOURCE_BRANCH}@{at}", operations=True, until=head.watermark or None)
        for commit in islice(commits, _NEWER):
            for operation in commit.operations or ():
                if isinstance(operation, Put) and operation.key == key and _snapshot(operation.content) == snapshot:
                    return True
        return None if content is None else False

    def _snapshots(self, content: Content) -> _Snapshots:
        from sterna.iceberg.metadata.table import read_table_metadata

        uri = _uri(content)
        with self._lock:
            if uri in self._files:
                self._files.move_to_end(uri)
                return self._files[uri]
        metadata = read_table_metadata(self._context.objects.read(uri), uri)
        found = _Snapshots(metadata.current_snapshot_id, frozenset(each.snapshot_id for each in metadata.snapshots))
        with self._lock:
            self._files[uri] = found
            if len(self._files) > _FILES_KEPT:
                self._files.popitem(last=False)
        return found


def _is_replicas(commit: Commit, region: str) -> bool:
    return RUN_ID in commit.properties and commit.properties.get(REGION, region) == region


def _readable(content: Content) -> bool:
    return content.kind == ICEBERG_TABLE and bool(content.metadata_location)


def _uri(content: Content) -> str:
    return content.metadata_location or ""


def _snapshot(content: Content) -> int | None:
    given = content.payload.get("snapshotId")
    return given if isinstance(given, int) and given >= 0 else None  # Nessie says -1 for none
