"""What table and view metadata have in common when they are localized.

Properties and summaries, where any value may be a URI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sterna.errors import UnregisteredUri, UnsafeUri
from sterna.iceberg.json_text import Document, Edit, Token, replacement_edits

LOCATION_PROPERTIES: Final = frozenset(
    {"write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"}
)
"""Properties with locations for a writer's files: below the replica root on a replica, if registered."""


def property_edits(
    document: Document,
    key: str,
    token: Token,
    map_root: Callable[[str], str],
    map_property: Callable[[str], str | None],
) -> list[Edit]:
    """Return the edit of one property: a location maps below the replica root, another value when it is a known URI.

    A location that the registry doesn't have stays: it is for writers, and replicas have none.

    Raises:
        BrokenMetadata: a location is no string.
    """
    if key in LOCATION_PROPERTIES:
        if not isinstance(token.value, str):
            raise document.broken(f"property {key!r} is not a string")
        try:
            return replacement_edits(token, map_root(token.value))
        except (UnregisteredUri, UnsafeUri):
            return []
    return property_value_edits(token, map_property)


def summary_edits(document: Document, summary: Token | None, map_property: Callable[[str], str | None]) -> list[Edit]:
    """Return the edits of a summary that may be absent: values that are known URIs are mapped."""
    if summary is None or summary.value is None:
        return []
    if not any(isinstance(value, str) and ":" in value for value in document.values(summary).values()):
        return []  # no URI: in a long history nearly all are so
    return [edit for token in document.members(summary).values() for edit in property_value_edits(token, map_property)]


def property_value_edits(token: Token, map_property: Callable[[str], str | None]) -> list[Edit]:
    """Return the edit of a value that may be anything: it is mapped when it is a known URI."""
    new = map_property(token.value) if isinstance(token.value, str) else None
    return [] if new is None else replacement_edits(token, new)
