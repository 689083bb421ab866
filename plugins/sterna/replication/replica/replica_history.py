"""The newest commits of a replica branch, in memory: each is read once, and older ones as far as they are needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from sterna.catalog.model import Commit
from sterna.replication.replica.region import RegionContext

T = TypeVar("T")


class ReplicaHistory(Generic[T]):
    """What is kept of a replica branch's newest commits; may be used by any number of threads.

    Args:
        context: the region; the branch is read in its own catalog.
        project: returns what is kept of a commit.
        operations: whether commits come with their operations.
        max_commits: commits, of which none more are kept.
    """

    def __init__(
        self, context: RegionContext, project: Callable[[Commit], T], *, operations: bool, max_commits: int
    ) -> None:
        self._context = context
        self._project = project
        self._operations = operations
        self._max_commits = max_commits
        self._kept: list[tuple[str, T]] = []  # with their commits' hashes, newest first
        self._newest = self._next = ""
        self._lock = threading.Lock()

    def read(self, head_hash: str, is_last: Callable[[T], bool] = lambda kept: False) -> list[T]:
        """Return the commits up to a head, newest first, as far back as there are, or as are kept.

        Args:
            head_hash: the head's.
            is_last: returns whether none before this one is needed.

        Raises:
            CatalogError: the catalog doesn't answer, or the commit isn't there.
        """
        with self._lock:
            # Another thread may have seen a newer head by now.
            start = next((index for index, (commit_hash, _) in enumerate(self._kept) if commit_hash == head_hash), None)
            if start is None:
                self._read_newer(head_hash)
                start = 0
            for index in range(start, len(self._kept)):
                if is_last(self._kept[index][1]):
                    return [kept for _, kept in self._kept[start : index + 1]]
            self._read_older(is_last)
            return [kept for _, kept in self._kept[start:]]

    def _read_newer(self, head_hash: str) -> None:
        """Read what was committed since the last time; begin again where the branch doesn't lead back to that."""
        newer: list[tuple[str, T]] = []
        parent = head_hash
        if self._newest:
            for commit in self._history(head_hash, until=self._newest):
                newer.append((commit.hash, self._project(commit)))
                parent = commit.parent
                if len(newer) >= self._max_commits:
                    break
        if self._newest and parent == self._newest:
            self._kept = [*newer, *self._kept][: self._max_commits]
        else:
            self._kept, self._next = newer, parent
        self._newest = head_hash

    def _read_older(self, is_last: Callable[[T], bool]) -> None:
        """Read on where the last one ended, as far as is needed."""
        if self._next == self._context.catalog.no_ancestor() or len(self._kept) >= self._max_commits:
            return
        for commit in self._history(self._next):
            kept = self._project(commit)
            self._kept.append((commit.hash, kept))
            self._next = commit.parent
            if len(self._kept) >= self._max_commits or is_last(kept):
                return

    def _history(self, commit_hash: str, until: str | None = None) -> Iterator[Commit]:
        branch = f"{self._context.region.replica_branch}@{commit_hash}"
        return self._context.catalog.history(branch, operations=self._operations, until=until)
