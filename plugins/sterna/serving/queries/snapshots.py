"""From a pin to the metadata.json of this region that shows it, by the region's own copy of the catalog alone."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from sterna.catalog.model import Commit, Content, Key, key_name
from sterna.catalog.tables import content_metadata_uri
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import NoSuchQuery, NotYetHere, ObjectMissing, ReferenceNotFound, SnapshotGone
from sterna.replication.replica.head import (
    MAX_READ_COMMITS,
    OVERWRITING,
    OVERWRITTEN_BY,
    REGION,
    RUN_ID,
    Head,
    load_held_list,
    newest_commit,
    read_head,
)
from sterna.replication.replica.past_replica import PastReplica, require_not_behind
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.replica_history import ReplicaHistory
from sterna.serving.queries.job import PinnedTable
from sterna.serving.queries.request import CommitPin, MomentPin, Question, SnapshotPin

_MAX_CACHED_FILES = 1000  # metadata.json, as the ids in them
_MAX_OLDER_COMMITS = 10_000  # commits of the replica branch that are looked through for an older version
_MAX_OLDER_FILES = 20  # of which so many metadata.json are read
_MAX_NEWER_COMMITS = 1000  # commits of `main` after the one whose version of a table is shown


@dataclass(frozen=True)
class _SnapshotIds:
    current: int | None
    all: frozenset[int]


class SnapshotResolver:
    """Finds what requests are pinned to; for any number of threads."""

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._files: OrderedDict[str, _SnapshotIds] = OrderedDict()
        self._commits = ReplicaHistory(context, lambda commit: commit, operations=True, max_commits=_MAX_OLDER_COMMITS)
        self._past = PastReplica(context)
        self._repairs = ReplicaHistory(context, _repair_of, operations=False, max_commits=MAX_READ_COMMITS)
        self._lock = threading.Lock()

    def fix(self, question: Question) -> Question:
        """Return a question with the commit of the replica branch that its moment of `main` leads to now.

        Raises:
            NoSuchMoment: it is none.
            NoSuchVersion: this region hasn't got it, or no longer.
            NotYetHere: `main` has it, and this region not yet.
            StaysBehind: a table was held or in transit then.
            CatalogError, StoreError: something doesn't answer.
        """
        if not isinstance(question.pin, MomentPin):
            return question
        version = self._past.find(question.pin.moment)
        require_not_behind(self._past.read_head(version), map(key_name, question.tables))
        return replace(question, pin=CommitPin(version.commit, version.watermark))

    def resolve(self, tables: tuple[Key, ...], pin: SnapshotPin | CommitPin | MomentPin) -> tuple[PinnedTable, ...]:
        """Return the tables as a pin shows them.

        Raises:
            SnapshotGone: this region hasn't got it, and `main` as far as it is known here neither.
            NotYetHere: `main` has it, and this region not yet.
            NoSuchQuery: there is no such table here.
            CatalogError, StoreError: something doesn't answer.
        """
        if isinstance(pin, CommitPin):
            return self._resolve_commit(tables, pin.hash)
        assert not isinstance(pin, MomentPin), "it is fixed first"
        (key,) = tables
        return (self._resolve_snapshot(key, pin.snapshot),)

    def read_current(self, tables: tuple[Key, ...]) -> tuple[str, dict[str, int | None]]:
        """Return the head of the replica branch, and the current snapshot there of each of some tables that it has."""
        head = self.require_head()
        contents = self.read_contents(head.hash, tables)
        return head.hash, {key_name(key): self._read_snapshots(content).current for key, content in contents.items()}

    def read_repair(self) -> str:
        """Return the repair that overwrote files of the replica last, among its newest commits; "" where none did.

        While one does, or where it was killed meanwhile, each call returns another text.

        Raises:
            CatalogError: the catalog doesn't answer.
        """
        for _ in range(2):
            try:
                head = self._context.catalog.reference(self._context.region.replica_branch).hash
                repairs = self._repairs.read(head, bool) if head != self._context.catalog.no_ancestor() else []
                repair = repairs[-1] if repairs else ""
                return f"{repair}-{uuid.uuid4().hex}" if repair.endswith(OVERWRITING) else repair
            except ReferenceNotFound:
                continue  # the catalog has lost older commits: what it has is kept by now, and looked at
        return ""

    def require_head(self) -> Head:
        """Return the head of the replica branch.

        Raises:
            NotYetHere: nothing was published yet.
        """
        head = read_head(self._context.catalog, self._context.region.replica_branch)
        if head.commit_time is None:
            raise NotYetHere(f"region {self._context.region.name} has published nothing yet")
        return head

    def read_contents(self, hash: str, keys: tuple[Key, ...]) -> Mapping[Key, Content]:
        """Return which of some tables a commit of the replica branch shows."""
        contents = self._context.catalog.contents(self._context.region.replica_branch, hash, keys)
        return {key: content for key, content in contents.items() if content_metadata_uri(content)}

    def _resolve_commit(self, tables: tuple[Key, ...], hash: str) -> tuple[PinnedTable, ...]:
        branch = self._context.region.replica_branch
        try:
            commit = newest_commit(self._context.catalog, f"{branch}@{hash}")
            exists = (
                commit is not None and commit.hash == hash and _is_replica_commit(commit, self._context.region.name)
            )
            contents = self.read_contents(hash, tables) if exists else {}
        except ReferenceNotFound:
            exists = False
        if not exists:
            raise SnapshotGone(f"this region has no cursor {hash}, or no longer")
        for key in tables:
            if key not in contents:
                raise NoSuchQuery(f"there is no table {key_name(key)} at {hash[:12]}", table=key_name(key))
        try:
            current = {key: self._read_snapshots(contents[key]).current for key in tables}
        except ObjectMissing as error:  # a clean-up has passed it
            raise SnapshotGone(f"what {hash[:12]} showed is cleaned up by now", file=error.file) from error
        return tuple(
            PinnedTable(key, content_metadata_uri(contents[key]), current[key], own_schema=False) for key in tables
        )

    def _resolve_snapshot(self, key: Key, snapshot: int) -> PinnedTable:
        head = self.require_head()
        content = self.read_contents(head.hash, (key,)).get(key)
        matching = (
            content
            if content and snapshot in self._read_snapshots(content).all
            else self.find_older(head, key, snapshot)
        )
        if matching is not None:
            return PinnedTable(key, content_metadata_uri(matching), snapshot, own_schema=True)
        on_main = self._is_on_main(head, key, snapshot)
        if on_main is True:
            raise NotYetHere(f"main has snapshot {snapshot}, and this region not yet", table=key_name(key))
        if content is None and on_main is None:
            raise NoSuchQuery(f"there is no table {key_name(key)}", table=key_name(key))
        raise SnapshotGone(f"snapshot {snapshot} is not here, or no longer", table=key_name(key))

    def find_older(self, head: Head, key: Key, snapshot: int) -> Content | None:
        """Return what an older commit of the replica branch held under a key, if it shows a snapshot."""
        puts = [
            put.content
            for commit in self._commits.read(head.hash)
            for put in commit.puts
            if put.key == key and content_metadata_uri(put.content)
        ]
        # What was current is in the content alone; what was beside it, in the file.
        for content in (*(put for put in puts if put.snapshot_id == snapshot), *puts[:_MAX_OLDER_FILES]):
            try:
                if snapshot in self._read_snapshots(content).all:
                    return content
            except ObjectMissing:  # cleaned up by now
                continue
        return None

    def _is_on_main(self, head: Head, key: Key, snapshot: int) -> bool | None:
        """Return whether `main`, in this region's copy, has a snapshot; None: it has no such table."""
        catalog = self._context.catalog
        main_hash = catalog.reference(SOURCE_BRANCH).hash
        content = (
            catalog.contents(SOURCE_BRANCH, main_hash, [key]).get(key) if main_hash != catalog.no_ancestor() else None
        )
        if content is not None and content.snapshot_id == snapshot:
            return True
        since = self._shown_hash(head, key)
        commits = catalog.history(f"{SOURCE_BRANCH}@{main_hash}", operations=True, until=since or None)
        for commit in islice(commits, _MAX_NEWER_COMMITS):
            if any(put.key == key and put.content.snapshot_id == snapshot for put in commit.puts):
                return True
        return None if content is None else False

    def _shown_hash(self, head: Head, key: Key) -> str:
        """Return the hash of `main` whose version of a table the replica shows: a held one's is older than the
        watermark. "" where it shows none, or that is unknown.
        """
        head = load_held_list(self._context.objects, head)
        held = head.held_by_key.get(key_name(key))
        if held is not None:
            return held.good
        return "" if head.held_list.read_error else head.watermark

    def _read_snapshots(self, content: Content) -> _SnapshotIds:
        from sterna.iceberg.metadata.table import read_table_metadata

        uri = content_metadata_uri(content)
        with self._lock:
            if uri in self._files:
                self._files.move_to_end(uri)
                return self._files[uri]
        metadata = read_table_metadata(self._context.objects.read(uri), uri)
        snapshot_ids = _SnapshotIds(
            metadata.current_snapshot_id, frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots)
        )
        with self._lock:
            self._files[uri] = snapshot_ids
            if len(self._files) > _MAX_CACHED_FILES:
                self._files.popitem(last=False)
        return snapshot_ids


def _is_replica_commit(commit: Commit, region: str) -> bool:
    return RUN_ID in commit.properties and commit.properties.get(REGION, region) == region


def _repair_of(commit: Commit) -> str:
    return commit.properties.get(OVERWRITTEN_BY, "")
