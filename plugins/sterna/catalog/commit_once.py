"""Committing once: after a lost answer the commit is looked up in the branch's log, never repeated blindly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.any_branch import commit_to_any
from sterna.catalog.model import Operation, Unchanged
from sterna.catalog.writer import CatalogWriter
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import UsageError

# Nessie accepts a commit without changes only when it names some key as unchanged; it needn't exist.
NO_CHANGES: Sequence[Operation] = (Unchanged(("sterna",)),)


def commit_once(
    catalog: CatalogWriter,
    branch: str,
    expected_hash: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    identified_by: Collection[str],
) -> str:
    """Commit to a replica branch, compared-and-swapped on its head; safe to repeat with the same properties.

    Args:
        branch: the branch, never `main`: see `sterna.catalog.main_branch`.
        expected_hash: its head as the caller knows it.
        operations: what changes; `NO_CHANGES` for a commit of properties alone.
        message: for people.
        properties: stay with the commit.
        identified_by: the names of those properties which together are this commit's and no other's.

    Returns:
        The hash of the commit: made now, or found where an earlier call made it.

    Raises:
        CatalogConflict: another commit came first; nothing of this one was or will be committed.
        CatalogStateUnknown: the answer was lost and the branch hasn't moved: the commit may yet arrive.
        UsageError: the branch is `main`.
    """
    if branch == SOURCE_BRANCH:
        raise UsageError(f"{SOURCE_BRANCH} is not committed to from here")
    return commit_to_any(catalog, branch, expected_hash, operations, message, properties, identified_by=identified_by)
