"""The catalog's port for committing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sterna.catalog.model import Content, Key, Operation, Reference
from sterna.catalog.reader import CatalogReader


class CatalogWriter(CatalogReader, Protocol):
    """Read and write access to a catalog; errors as `CatalogReader` has them."""

    def create_branch(self, name: str, at_hash: str | None = None) -> Reference:
        """Create a branch, or return it when it exists at that very hash already.

        Args:
            at_hash: the commit it starts at, None for an empty branch.

        Returns:
            The branch.

        Raises:
            CatalogConflict: the name is taken by another commit, or by a tag.
            CatalogStateUnknown: the answer was lost; calling again is safe.
        """
        ...

    def create_tag(self, name: str, branch: str, at_hash: str) -> Reference:
        """Create a tag, or return it when it exists at that very hash already.

        Args:
            branch: the branch that has the commit.
            at_hash: hash of the commit.

        Raises:
            CatalogConflict: the name is taken by another commit, or by a branch.
            CatalogStateUnknown: the answer was lost; calling again is safe.
        """
        ...

    def move_tag(self, name: str, from_hash: str, branch: str, to_hash: str) -> Reference:
        """Point a tag at another commit, if and only if it is still at the commit that the caller read.

        Args:
            from_hash: the commit that it is at, as the caller read it.
            branch: the branch that has the other commit.
            to_hash: hash of that commit.

        Raises:
            CatalogConflict: it is at another commit by now.
            ReferenceNotFound: there is no such tag, or no such commit.
            CatalogStateUnknown: the answer was lost; read the tag before moving it again.
        """
        ...

    def delete_tag(self, name: str, at_hash: str) -> None:
        """Delete a tag if it is at that very commit; one that is gone already is no failure.

        Raises:
            CatalogConflict: it is at another commit by now.
            CatalogStateUnknown: the answer was lost; calling again is safe.
        """
        ...

    def commit(
        self,
        branch: str,
        expected_hash: str,
        operations: Sequence[Operation],
        message: str,
        properties: Mapping[str, str] | None = None,
        *,
        existing: Mapping[Key, Content | None] | None = None,
    ) -> str:
        """Commit all operations at once, if and only if the branch's head still is `expected_hash`.

        Args:
            branch: the branch to commit to.
            expected_hash: its head as the caller read it.
            operations: at least one.
            message: for people, not empty.
            properties: stay with the commit.
            existing: what all keys of the operations have at `expected_hash`, None where that is nothing, as the caller
                read it: the commit depends on these alone. None: they are read once more, and so is the new commit.

        Returns:
            The hash of the new commit, whose parent is `expected_hash`.

        Raises:
            CatalogConflict: the head is another one; nothing was committed.
            CatalogStateUnknown: the answer was lost, the commit may have happened. Look it up in the history before
                repeating it.
            CatalogRefused: the operations are wrong (see `Put`) or none; a key to delete or a parent namespace is
                missing; a namespace to delete is not empty. Nothing was committed.
            ReferenceNotFound: there is no such branch, or `expected_hash` is not in its history.
            BranchChanged: the commit happened, but on top of another one. No known server version allows that.
        """
        ...
