"""Fields of a table's catalog entry: its metadata.json, and its snapshot."""

from __future__ import annotations

from sterna.catalog.model import ICEBERG_TABLE, Content, Key
from sterna.catalog.reader import CatalogReader


def content_snapshot_id(content: Content | None) -> int | None:
    """Return the id of the snapshot that a table's entry names; None: it names none, or is no table's."""
    return content.snapshot_id if content is not None and content.kind == ICEBERG_TABLE else None


def content_metadata_uri(content: Content | None) -> str:
    """Return the URI of the metadata.json that a table's entry names; "": it names none, or is no table's."""
    return (content.metadata_location or "") if content is not None and content.kind == ICEBERG_TABLE else ""


def table_metadata_uri(catalog: CatalogReader, branch: str, table: Key, hash: str = "") -> str:
    """Return the URI of a table's current metadata.json on a branch; "": the branch has no such table.

    Args:
        catalog: where the branch is.
        table: the table's key.
        hash: a commit of the branch to read at; "": its head.

    Raises:
        CatalogError: as `CatalogReader.contents`, and `ReferenceNotFound` for a branch that isn't there.
    """
    return content_metadata_uri(catalog.contents(branch, hash or catalog.reference(branch).hash, [table]).get(table))
