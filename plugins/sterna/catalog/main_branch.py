"""Commits to `main`, which belongs to its writers: the import rules list the modules that may import this."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sterna.catalog.any_branch import commit_to_any
from sterna.catalog.model import Content, Key, Operation
from sterna.catalog.writer import CatalogWriter
from sterna.config.registry.model import SOURCE_BRANCH


def commit_to_main(
    catalog: CatalogWriter,
    expected_hash: str,
    operations: Sequence[Operation],
    message: str,
    properties: Mapping[str, str],
    *,
    identified_by: Collection[str],
    existing: Mapping[Key, Content | None] | None = None,
) -> str:
    """Commit to `main`, compared-and-swapped on its head; arguments, result and errors as `commit_to_any` has them."""
    return commit_to_any(
        catalog,
        SOURCE_BRANCH,
        expected_hash,
        operations,
        message,
        properties,
        identified_by=identified_by,
        existing=existing,
    )
