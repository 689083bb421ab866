"""Another version of a table's metadata.json, with other properties; every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.config.near_places import METADATA_PATH
from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document, replacement_edits

_VERSION = re.compile(r"(?:.*/)?v?([0-9]{1,9})[-.]")


def with_properties(
    data: bytes, uri: str, properties: Mapping[str, str], now_ms: int, limits: Limits = DEFAULT_LIMITS
) -> bytes:
    """Return a metadata.json with some properties set, as one that was written at a time.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        properties: those that are set; others stay.
        now_ms: the time, in milliseconds since 1970; the file says no earlier one than it did.

    Raises:
        BrokenMetadata: it is no metadata.json of a table.
        OverLimit: larger than the limits allow.
    """
    document = read_document(data, uri, limits)
    root = document.root().without_value()
    members = document.members(root)
    updated, written = document.integer(members, "last-updated-ms"), members["last-updated-ms"]
    edits = [Edit(written.start, written.end, str(max(now_ms, updated)))]
    return document.write(edits + _property_edits(document, root, members.get("properties"), properties))


def new_metadata_uri(data: bytes, uri: str, uuid: UUID, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return where a writer puts the next metadata.json of a table: `<folder>/<number>-<uuid>.metadata.json`.

    Args:
        data: the newest metadata.json.
        uri: its URI.
        uuid: makes the name unique.

    Raises:
        BrokenMetadata: it is no metadata.json of a table.
        OverLimit: larger than the limits allow.
    """
    document = read_document(data, uri, limits)
    members = document.members(document.root().without_value())
    properties = document.string_map(members.get("properties"))
    folder = properties.get(METADATA_PATH) or f"{document.string(members, 'location').rstrip('/')}/metadata"
    match = _VERSION.match(uri.rpartition("/")[2])
    number = int(match[1]) + 1 if match else 0
    return f"{folder.rstrip('/')}/{number:05d}-{uuid}{'.gz' if document.gzipped else ''}.metadata.json"


def _property_edits(document: Document, root: Token, token: Token | None, properties: Mapping[str, str]) -> list[Edit]:
    text = ",".join(f"{quote(name)}:{quote(value)}" for name, value in properties.items())
    if token is None:
        return [Edit(root.start + 1, root.start + 1, f'"properties":{{{text}}},')]
    if not token.value:
        return [Edit(token.start, token.end, f"{{{text}}}")]
    members = document.members(token)
    edits: list[Edit] = []
    for name, value in properties.items():
        if name in members:
            edits += replacement_edits(members[name], value)
        else:
            edits.append(Edit(token.start + 1, token.start + 1, f"{quote(name)}:{quote(value)},"))
    return edits
