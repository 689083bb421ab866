"""A view's metadata.json: its localized copy.

Source of the fields: Iceberg view specification, version 1. The SQL text names catalogs and tables, not files: it
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sterna.errors import Unsupported
from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document
from sterna.iceberg.metadata.edits import property_edits, summary_edits
from sterna.limits import DEFAULT_LIMITS, Limits

_NEWEST_FORMAT: Final = 1


@dataclass(frozen=True)
class ViewMetadata:
    """What sterna needs to know of a view's metadata.json.

    Args:
        format_version: 1.
        uuid: the view's UUID.
        location: the view's base location.
        properties: the view's properties.
    """

    format_version: int
    uuid: str
    location: str
    properties: dict[str, str]


def read_view_metadata(data: bytes, uri: str) -> ViewMetadata:
    """Read a view's metadata.json of format version 1.

    Args:
        data: the file's bytes, gzip or not.
        uri: the file's URI, for errors.

    Returns:
        The parts that name files, and the view's identity.

    Raises:
        Unsupported: a newer format version.
        BrokenMetadata: the file does not parse, or lacks a required field.
        OverLimit: the file is larger than the limits allow, or holds more.
    """
    document = read_document(data, uri)
    return _parse(document, document.members(document.root()))


def _parse(document: Document, members: Mapping[str, Token]) -> ViewMetadata:
    version = members["format-version"].value if "format-version" in members else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise document.broken("'format-version' is missing or not a version")
    if version > _NEWEST_FORMAT:
        raise Unsupported(f"view format version {version}", file=document.uri)
    return ViewMetadata(
        format_version=version,
        uuid=document.string(members, "view-uuid"),
        location=document.string(members, "location"),
        properties=document.string_map(members.get("properties")),
    )


def localize_view_metadata(
    data: bytes,
    uri: str,
    *,
    root: Callable[[str], str],
    known: Callable[[str], str | None],
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the replica's copy of a view's metadata.json: its paths changed, all other characters as they were.

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        root: maps a URI to its place below the replica root, be it local or not.
        known: maps a whole value that is a URI with a registered prefix; None for every other value.
        limits: of the region.

    Returns:
        The localized file.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_view_metadata`.
    """
    document = read_document(data, uri, limits)
    members = document.members(document.root())
    _parse(document, members)
    location = members["location"]
    edits = [Edit(location.start, location.end, quote(root(location.value)))]
    properties = members.get("properties")
    if properties is not None and properties.value:
        for key, token in document.members(properties).items():
            edits += property_edits(document, key, token, root, known)
    versions = members.get("versions")
    for version in document.objects(versions) if versions is not None else []:
        edits += summary_edits(document, version.members.get("summary"), known)
    return document.write(edits)
