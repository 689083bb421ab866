"""What the tests of a catalog commit."""

from __future__ import annotations

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Key, Operation, Put, namespace_content
from sterna.catalog.writer import CatalogWriter

NS: Key = ("ns",)
TABLE: Key = ("ns", "t")
UNKNOWN_HASH = "ab" * 32


def table(location: str = "s3://lake/t/metadata/1.json", content_id: str | None = None) -> Content:
    payload = {
        "type": ICEBERG_TABLE,
        "metadataLocation": location,
        "snapshotId": 1,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    return Content.of(payload).with_id(content_id)


def view(location: str = "s3://lake/v/metadata/1.json") -> Content:
    return Content.of({"type": ICEBERG_VIEW, "metadataLocation": location, "versionId": 1, "schemaId": 0})


def commit(catalog: CatalogWriter, branch: str, *operations: Operation, **properties: str) -> str:
    """Commit to the branch's current head."""
    return catalog.commit(branch, catalog.reference(branch).hash, operations, "a test", properties)


def commit_table(catalog: CatalogWriter, branch: str) -> tuple[str, str]:
    """Commit a namespace and a table; return the commit's hash and the table's content id."""
    head = commit(catalog, branch, Put(NS, namespace_content(NS)), Put(TABLE, table()))
    content_id = catalog.contents(branch, head, [TABLE])[TABLE].id
    assert content_id
    return head, content_id
