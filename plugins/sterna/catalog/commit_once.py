"""Committing once: an answer that was lost is looked for in the branch's log, and never committed blindly again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.model import Commit, Operation, Unchanged
from sterna.catalog.writer import CatalogWriter
from sterna.errors import CatalogConflict, CatalogStateUnknown, UsageError
from sterna.registry.model import SOURCE_BRANCH

# Nessie accepts a commit without changes only when it names some key as unchanged; it needn't exist.
NOTHING: Sequence[Operation] = (Unchanged(("sterna",)),)


def commit_once(
    catalog: CatalogWriter,
    branch: str,
    expected: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    named_by: Collection[str],
) -> str:
    """Commit to a replica branch, compared-and-swapped on its head; safe to repeat with the same properties.

    Args:
        catalog: takes commits.
        branch: the branch, never `main`: see `sterna.catalog.main_branch`.
        expected: its head as the caller knows it.
        operations: what changes; `NOTHING` where only the properties tell something.
        message: for people.
        properties: stay with the commit.
        named_by: the names of those properties which together are this commit's and no other's.

    Returns:
        The hash of the commit: made now, or found where an earlier call made it.

    Raises:
        CatalogConflict: somebody else was first; nothing of this was committed, nor ever will be.
        CatalogStateUnknown: the answer was lost and the branch hasn't moved: the commit may yet arrive.
        UsageError: the branch is `main`.
    """
    if branch == SOURCE_BRANCH:
        raise UsageError(f"{SOURCE_BRANCH} is not committed to from here")
    return committed(catalog, branch, expected, operations, message, properties, named_by=named_by)


def committed(
    catalog: CatalogWriter,
    branch: str,
    expected: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    named_by: Collection[str],
) -> str:
    """Do what `commit_once` says, to any branch."""
    try:
        return catalog.commit(branch, expected, operations, message, properties)
    except (CatalogConflict, CatalogStateUnknown) as error:
        since = list(catalog.history(branch, operations=False, until=expected))
        mine = next((commit for commit in since if _is_named(commit, properties, named_by)), None)
        if mine is not None:
            return mine.hash
        if since and isinstance(error, CatalogStateUnknown):
            # Its head is another one for ever: what was sent can't be taken any more.
            raise CatalogConflict(f"{branch} moved on while a commit's answer was lost: {error.message}") from error
        raise


def _is_named(commit: Commit, properties: Mapping[str, str], names: Collection[str]) -> bool:
    return all(commit.properties.get(name) == properties.get(name) for name in names)
