"""The one place that sends a commit; `commit_once` and `main_branch` alone may import it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.model import Commit, Content, Key, Operation
from sterna.catalog.writer import CatalogWriter
from sterna.errors import CatalogConflict, CatalogStateUnknown, UsageError


def commit_to_any(
    catalog: CatalogWriter,
    branch: str,
    expected_hash: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    identified_by: Collection[str],
    existing: Mapping[Key, Content | None] | None = None,
) -> str:
    """Commit as `commit_once` does, to any branch; `existing` as `CatalogWriter.commit` has it.

    Raises:
        UsageError: a name that should identify this commit is none of its properties.
        CatalogConflict: another commit came first, or the branch moved on while the answer was lost.
        CatalogStateUnknown: the answer was lost, and the branch hasn't moved.
    """
    if not any(properties.get(name) for name in identified_by):
        raise UsageError("none of the properties that identify the commit is set")
    try:
        return catalog.commit(branch, expected_hash, operations, message, properties, existing=existing)
    except (CatalogConflict, CatalogStateUnknown) as error:
        since = list(catalog.history(branch, operations=False, until=expected_hash))
        own_commit = next((commit for commit in since if _has_properties(commit, properties, identified_by)), None)
        if own_commit is not None:
            return own_commit.hash
        if since and isinstance(error, CatalogStateUnknown):
            # Its head is another one for ever: what was sent can't be taken any more.
            raise CatalogConflict(f"{branch} moved on while a commit's answer was lost: {error.message}") from error
        raise


def _has_properties(commit: Commit, properties: Mapping[str, str], names: Collection[str]) -> bool:
    return all(commit.properties.get(name) == properties.get(name) for name in names)
