"""Committing once: an answer that was lost is looked for in the branch's log, and never committed blindly again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.any_branch import commit_to_any
from sterna.catalog.model import Operation, Unchanged
from sterna.catalog.writer import CatalogWriter
from sterna.errors import UsageError
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
    return commit_to_any(catalog, branch, expected, operations, message, properties, named_by=named_by)
