"""A table's metadata.json: what it points to, and its localized copy.

Source of the fields: Iceberg specification, "Table Metadata Fields", "Snapshots", "Statistics" and "Encryption" (v1 and v2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.files import NEWEST_FORMAT
from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document

LOCATION_PROPERTIES: Final = frozenset({"write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"})
"""Properties that tell a writer where to put files: on a replica they always lie below the replica root."""

_STATISTICS: Final = ("statistics", "partition-statistics")


@dataclass(frozen=True)
class Snapshot:
    """One retained version of a table.

    Args:
        snapshot_id: its id.
        parent_id: the id of the snapshot it was made from, if the file says so.
        timestamp_ms: when it was made, in milliseconds since 1970.
        manifest_list: the URI of its manifest list.
        schema_id: the id of the schema it was written with, if the file says so.
    """

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    manifest_list: str
    schema_id: int | None


@dataclass(frozen=True)
class StatisticsFile:
    """A table or partition statistics file: a content file that metadata.json names itself.

    Args:
        path: its URI.
        length: its size in bytes.
    """

    path: str
    length: int


@dataclass(frozen=True)
class TableMetadata:
    """What sterna needs to know of one metadata.json.

    Args:
        format_version: 1 or 2.
        uuid: the table's UUID; v1 tables may have none.
        location: the table's base location.
        current_snapshot_id: the current snapshot, or None for an empty table.
        last_updated_ms: when the file was written, in milliseconds since 1970.
        snapshots: the retained snapshots, in the file's order.
        statistics: table and partition statistics files.
        properties: the table's properties.
    """

    format_version: int
    uuid: str | None
    location: str
    current_snapshot_id: int | None
    last_updated_ms: int
    snapshots: tuple[Snapshot, ...]
    statistics: tuple[StatisticsFile, ...]
    properties: dict[str, str]


def read_table_metadata(data: bytes, uri: str) -> TableMetadata:
    """Read a metadata.json of format v1 or v2.

    Args:
        data: the file's bytes, gzip or not.
        uri: the file's URI, for errors.

    Returns:
        The parts that name other files, and what a plan needs beside them.

    Raises:
        Unsupported: a newer format version, inline manifests or encryption.
        BrokenMetadata: the file does not parse, lacks a required field, or is over a limit.
    """
    document = read_document(data, uri)
    return _parse(document, document.members(document.root()))


def _parse(document: Document, root: Mapping[str, Token]) -> TableMetadata:
    version = _format_version(document, root)
    properties = string_map(document, root.get("properties"))
    _refuse_encryption(document, root, properties)
    current = _optional_int(document, root, "current-snapshot-id")
    uuid = root.get("table-uuid")
    return TableMetadata(
        format_version=version,
        uuid=None if uuid is None or uuid.value is None else required_string(document, root, "table-uuid"),
        location=required_string(document, root, "location"),
        current_snapshot_id=None if current == -1 else current,
        last_updated_ms=_required_int(document, root, "last-updated-ms"),
        snapshots=tuple(_snapshot(document, members) for members in _objects(document, root.get("snapshots"))),
        statistics=tuple(
            StatisticsFile(required_string(document, members, "statistics-path"), _required_int(document, members, "file-size-in-bytes"))
            for name in _STATISTICS
            for members in _objects(document, root.get(name))
        ),
        properties=properties,
    )


def localize_table_metadata(
    data: bytes,
    uri: str,
    *,
    content: Callable[[str], str],
    root: Callable[[str], str],
    known: Callable[[str], str | None],
    lists: Mapping[str, str],
) -> bytes:
    """Return the replica's copy of a metadata.json: its paths changed, all other characters as they were.

    Changed on purpose beside the paths: `metadata-log` is emptied and `gc.enabled` is "false" (DESIGN.md section 4).

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        content: maps the URI of a statistics file.
        root: maps a URI to its place below the replica root, be it local or not.
        known: maps a whole value that is a URI with a registered prefix; None for every other value.
        lists: source URI of each manifest list to its replica URI.

    Returns:
        The localized file.

    Raises:
        Unsupported, BrokenMetadata: as `read_table_metadata`; also when `lists` lacks a manifest list.
    """
    document = read_document(data, uri)
    whole = document.root()
    members = document.members(whole)
    _parse(document, members)
    edits = [Edit(members["location"].start, members["location"].end, quote(root(members["location"].value)))]
    edits += _property_edits(document, whole, members.get("properties"), root, known)
    edits += _snapshot_edits(document, members.get("snapshots"), known, lists)
    for name in _STATISTICS:
        for entry in _objects(document, members.get(name)):
            edits += replaced(entry["statistics-path"], content(entry["statistics-path"].value))
    log = members.get("metadata-log")
    if log is not None and log.value:
        edits.append(Edit(log.start, log.end, "[]"))
    return document.write(edits)


def replaced(token: Token, value: str) -> list[Edit]:
    """Return the edit that gives a string another value; none when it has that value already."""
    return [] if token.value == value else [Edit(token.start, token.end, quote(value))]


def map_property(document: Document, key: str, token: Token, root: Callable[[str], str], known: Callable[[str], str | None]) -> list[Edit]:
    """Return the edit of one property: a location always maps below the replica root, another value when it is a known URI."""
    if key in LOCATION_PROPERTIES:
        if not isinstance(token.value, str):
            raise document.broken(f"property {key!r} is not a string")
        return replaced(token, root(token.value))
    new = known(token.value) if isinstance(token.value, str) else None
    return [] if new is None else replaced(token, new)


def required_string(document: Document, members: Mapping[str, Token], key: str) -> str:
    """Return the string that must stand under a key.

    Raises:
        BrokenMetadata: the key is missing or holds something else.
    """
    value = members[key].value if key in members else None
    if not isinstance(value, str):
        raise document.broken(f"{key!r} is missing or not a string")
    return value


def string_map(document: Document, token: Token | None) -> dict[str, str]:
    """Return the string values of an object that may be absent.

    Raises:
        BrokenMetadata: not an object, or a key stands twice.
    """
    if token is None or token.value is None:
        return {}
    return {key: member.value for key, member in document.members(token).items() if isinstance(member.value, str)}


def _property_edits(
    document: Document, whole: Token, properties: Token | None, root: Callable[[str], str], known: Callable[[str], str | None]
) -> list[Edit]:
    # A maintenance job run through the replica branch must not delete files that are main's own.
    if properties is None:
        return [Edit(whole.start + 1, whole.start + 1, '"properties":{"gc.enabled":"false"},')]
    if not properties.value:
        return [Edit(properties.start, properties.end, '{"gc.enabled":"false"}')]
    members = document.members(properties)
    edits: list[Edit] = []
    if "gc.enabled" not in members:
        edits.append(Edit(properties.start + 1, properties.start + 1, '"gc.enabled":"false",'))
    for key, token in members.items():
        edits += replaced(token, "false") if key == "gc.enabled" else map_property(document, key, token, root, known)
    return edits


def _snapshot_edits(
    document: Document, snapshots: Token | None, known: Callable[[str], str | None], lists: Mapping[str, str]
) -> list[Edit]:
    edits: list[Edit] = []
    for snapshot in _objects(document, snapshots):
        path = snapshot["manifest-list"]
        if path.value not in lists:
            raise document.broken(f"the manifest list {path.value} was not localized")
        edits += replaced(path, lists[path.value])
        edits += summary_edits(document, snapshot.get("summary"), known)
    return edits


def summary_edits(document: Document, summary: Token | None, known: Callable[[str], str | None]) -> list[Edit]:
    """Return the edits of a summary: values that are known URIs are mapped."""
    edits: list[Edit] = []
    if summary is None or summary.value is None:
        return edits
    for token in document.members(summary).values():
        new = known(token.value) if isinstance(token.value, str) else None
        edits += [] if new is None else replaced(token, new)
    return edits


def _format_version(document: Document, root: Mapping[str, Token]) -> int:
    version = _required_int(document, root, "format-version")
    if version > NEWEST_FORMAT:
        raise Unsupported(f"table format version {version}", file=document.uri)
    if version < 1:
        raise BrokenMetadata(f"table format version {version}", file=document.uri)
    return version


def _refuse_encryption(document: Document, root: Mapping[str, Token], properties: Mapping[str, str]) -> None:
    keys = root.get("encryption-keys")
    if (keys is not None and keys.value) or "encryption.key-id" in properties:
        raise Unsupported("table encryption", file=document.uri)
    for name in _STATISTICS:
        for entry in _objects(document, root.get(name)):
            if "key-metadata" in entry and entry["key-metadata"].value is not None:
                raise Unsupported("encrypted statistics", file=document.uri)


def _snapshot(document: Document, members: Mapping[str, Token]) -> Snapshot:
    if "key-id" in members and members["key-id"].value is not None:
        raise Unsupported("encrypted snapshot", file=document.uri)
    if "manifests" in members:
        raise Unsupported("snapshot with inline manifests (format v1 without manifest lists)", file=document.uri)
    string_map(document, members.get("summary"))
    return Snapshot(
        snapshot_id=_required_int(document, members, "snapshot-id"),
        parent_id=_optional_int(document, members, "parent-snapshot-id"),
        timestamp_ms=_required_int(document, members, "timestamp-ms"),
        manifest_list=required_string(document, members, "manifest-list"),
        schema_id=_optional_int(document, members, "schema-id"),
    )


def _objects(document: Document, token: Token | None) -> list[dict[str, Token]]:
    """Return the members of each object of an array that may be absent."""
    if token is None or token.value is None:
        return []
    return object_members(document, token)


def object_members(document: Document, token: Token) -> list[dict[str, Token]]:
    """Return the members of each object of an array.

    Raises:
        BrokenMetadata: not an array of objects.
    """
    if not isinstance(token.value, list):
        raise document.broken("not an array where one must be")
    return [document.members(element) for element in document.elements(token)]


def _required_int(document: Document, members: Mapping[str, Token], key: str) -> int:
    value = _optional_int(document, members, key)
    if value is None:
        raise document.broken(f"{key!r} is missing")
    return value


def _optional_int(document: Document, members: Mapping[str, Token], key: str) -> int | None:
    value: Any = members[key].value if key in members else None
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise document.broken(f"{key!r} is not an integer")
    return value
