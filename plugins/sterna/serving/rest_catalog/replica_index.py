"""What a region's replica branch holds at its head, in memory; a new head is read by its difference to the last."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, Key
from sterna.catalog.reader import CatalogReader
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.held import Held
from sterna.serving.rest_catalog.recent_changes import RecentChanges


@dataclass(frozen=True)
class BranchContents:
    """All that a branch holds at one commit.

    Args:
        hash: the commit.
        contents: by key.
        held: by key name, what stayed behind the commit of `main` that the branch is at; empty at its head, where that
            is what is served.
    """

    hash: str
    contents: Mapping[Key, Content]
    held: Mapping[str, Held] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[Key]:
        """The keys of tables, sorted."""
        return self._keys_of(ICEBERG_TABLE)

    @cached_property
    def views(self) -> list[Key]:
        """The keys of views, sorted."""
        return self._keys_of(ICEBERG_VIEW)

    @cached_property
    def namespaces(self) -> list[Key]:
        """The keys of namespaces, sorted: those that the branch has, and those that its tables and views are in."""
        implied = {key[:depth] for key in (*self.tables, *self.views) for depth in range(1, len(key))}
        return sorted({*self._keys_of(NAMESPACE), *implied})

    def has_namespace(self, key: Key) -> bool:
        """Return whether there is a namespace, as `namespaces` lists them."""
        return key in self._namespace_set

    @cached_property
    def _namespace_set(self) -> frozenset[Key]:
        return frozenset(self.namespaces)

    @cached_property
    def members(self) -> Mapping[Key, list[Key]]:
        """By namespace, the tables and views in it and in namespaces below it."""
        members: dict[Key, list[Key]] = defaultdict(list)
        for key in (*self.tables, *self.views):
            for depth in range(1, len(key)):
                members[key[:depth]].append(key)
        return dict(members)

    def content(self, key: Key, kind: str) -> Content | None:
        """Return what is under a key; None where that is nothing, or of another kind."""
        content = self.contents.get(key)
        return content if content is not None and content.kind == kind else None

    def _keys_of(self, kind: str) -> list[Key]:
        return sorted(key for key, content in self.contents.items() if content.kind == kind)


class ReplicaIndex:
    """The contents of a branch; for any number of threads.

    Args:
        catalog: where the branch is read.
        branch: its name.
    """

    def __init__(self, catalog: CatalogReader, branch: str) -> None:
        self.recent = RecentChanges()
        """What this process has changed, and the branch doesn't show yet."""
        self._catalog = catalog
        self._branch = branch
        self._lock = threading.Lock()
        self._current: BranchContents | None = None

    def read(self) -> BranchContents:
        """Return what clients see now: what the branch holds, and what this process has changed since.

        Raises:
            CatalogError: the catalog doesn't answer.
        """
        return self.recent.with_branch(self._read_with_changes)

    def _read_with_changes(self) -> BranchContents:
        branch = self._read_branch()
        if self.recent.is_empty:
            return branch
        return BranchContents(branch.hash, self.recent.entries(branch.contents))

    def _read_branch(self) -> BranchContents:
        """Return what the branch holds now: nothing where it isn't there yet.

        Raises:
            CatalogError: the catalog doesn't answer.
        """
        try:
            head = self._catalog.reference(self._branch).hash
        except ReferenceNotFound:
            head = self._catalog.no_ancestor()
        current = self._current
        if current is not None and current.hash == head:
            return current
        with self._lock:
            if self._current is None or self._current.hash != head:
                self._current = self._read_contents(head)
            return self._current

    def _read_contents(self, head: str) -> BranchContents:
        root = self._catalog.no_ancestor()
        if head == root:
            return BranchContents(head, {})
        if self._current is not None and self._current.hash != root:
            try:
                return self._apply_changes(self._current, head)
            except ReferenceNotFound:  # the branch was created again
                pass
        return BranchContents(head, dict(self._catalog.entries(self._branch, head)))

    def _apply_changes(self, older: BranchContents, head: str) -> BranchContents:
        contents = dict(older.contents)
        for entry in self._catalog.diff(self._branch, older.hash, head):
            if entry.new is None:
                contents.pop(entry.key, None)
            else:
                contents[entry.key] = entry.new
        return BranchContents(head, contents)


def children(keys: Collection[Key], parent: Key) -> list[Key]:
    """Return the keys directly in a namespace, in their order.

    Args:
        keys: all of them.
        parent: the namespace; (): the top.
    """
    return [key for key in keys if len(key) == len(parent) + 1 and key[:-1] == parent]
