"""Names that are missing or taken, in the words of Iceberg's Java library: engines, and tests of catalogs, know these.

Source: Iceberg's `CatalogHandlers` and `BaseMetastoreCatalog`; `CatalogTests` compares how the messages begin.
"""

from __future__ import annotations

from typing import Final

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, Key, key_name
from sterna.errors import AlreadyExists, NoSuchNamespace, NoSuchTable, NoSuchView

_WORDS: Final = {ICEBERG_TABLE: "Table", ICEBERG_VIEW: "View", NAMESPACE: "Namespace"}


def missing_namespace(key: Key) -> NoSuchNamespace:
    """Return the error for a namespace that isn't there."""
    return NoSuchNamespace(f"Namespace does not exist: {_dotted(key)}")


def require_namespace(content: Content | None, key: Key) -> Content:
    """Return what `main` has under a name, which has to be a namespace's.

    Raises:
        NoSuchNamespace: it is none.
    """
    if content is None or content.kind != NAMESPACE:
        raise missing_namespace(key)
    return content


def missing_table(key: Key) -> NoSuchTable:
    """Return the error for a table that isn't there."""
    return NoSuchTable(f"Table does not exist: {_dotted(key)}", table=key_name(key))


def missing_view(key: Key) -> NoSuchView:
    """Return the error for a view that isn't there."""
    return NoSuchView(f"View does not exist: {_dotted(key)}", table=key_name(key))


def taken_name(kind: str, key: Key) -> AlreadyExists:
    """Return the error for a name that something has already.

    Args:
        kind: the content type of what has it.
    """
    is_namespace = kind == NAMESPACE
    message = f"{_WORDS.get(kind, kind)} already exists: {_dotted(key)}"
    return AlreadyExists(message, table="" if is_namespace else key_name(key))


def _dotted(key: Key) -> str:
    """Return a name as Java shows it: dots within an element aren't marked."""
    return ".".join(key)
