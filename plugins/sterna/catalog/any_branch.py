"""The one place that sends a commit; `commit_once` and `main_branch` alone may import it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.model import Commit, Operation
from sterna.catalog.writer import CatalogWriter
from sterna.errors import CatalogConflict, CatalogStateUnknown, UsageError


def commit_to_any(
    catalog: CatalogWriter,
    branch: str,
    expected: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    named_by: Collection[str],
) -> str:
    """Do what `commit_once` says, to any branch.

    Raises:
        UsageError: a name that should tell this commit from others is in none of its properties.
    """
    if not any(properties.get(name) for name in named_by):
        raise UsageError("a commit is to be told from others, and none of its properties does")
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
