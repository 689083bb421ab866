"""A table's metadata.json: what it points to, and its localized copy.

Source of the fields: Iceberg specification, "Table Metadata Fields", "Snapshots", "Statistics" and "Encryption" (v1 to
v3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document, replacement_edits
from sterna.iceberg.metadata.edits import property_edits, summary_edits
from sterna.iceberg.metadata.history import all_snapshots, snapshot_log_start
from sterna.iceberg.metadata.model import Snapshot, StatisticsFile, TableMetadata
from sterna.iceberg.metadata.parts import STATISTICS, TableParts, inline_manifests, parse_table_parts

__all__ = [
    "Snapshot",
    "StatisticsFile",
    "TableMetadata",
    "localize_table_metadata",
    "parse_table_metadata",
    "read_table_metadata",
]


def read_table_metadata(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> TableMetadata:
    """Read a metadata.json of format v1 to v3.

    Args:
        data: the file's bytes, gzip or not.
        uri: the file's URI, for errors.

    Returns:
        The parts that name other files, and what a plan needs beside them.

    Raises:
        Unsupported: a newer format version, or encryption.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, lacks a required field, or contradicts itself.
    """
    return parse_table_metadata(read_document(data, uri, limits))


def parse_table_metadata(document: Document) -> TableMetadata:
    """Read a metadata.json that was decompressed and decoded; see `read_table_metadata`."""
    return parse_table_parts(document).metadata


def localize_table_metadata(
    data: bytes,
    uri: str,
    *,
    map_content: Callable[[str], str],
    map_root: Callable[[str], str],
    map_property: Callable[[str], str | None],
    manifest_lists: Mapping[str, str],
    manifests: Mapping[str, str] = MappingProxyType({}),
    select_snapshots: Callable[[TableMetadata], frozenset[int]] = all_snapshots,
    filter_existing: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]] = lambda items: items,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the replica's copy of a metadata.json: its paths changed, all other characters as they were.

    Changed on purpose beside the paths: `metadata-log` is emptied, and `gc.enabled` is "false", so that no maintenance
    through the replica branch deletes files of `main`. Snapshots that don't stay are taken out, with their statistics
    and what they end of the snapshot log (`history.pruned`).

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        map_content: maps the URI of a statistics file.
        map_root: maps a URI to its place below the replica root, be it local or not.
        map_property: maps a whole value that is a URI with a registered prefix; None for every other value.
        manifest_lists: source URI of each manifest list of a snapshot that stays, to its replica URI.
        manifests: the same for inline manifests.
        select_snapshots: tells from the file's content the ids of the snapshots that stay; those of the refs and the
            current one must.
        filter_existing: returns those of some statistics files that are there; readers can do without, so that the
            entries of others are left out.

    Returns:
        The localized file.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_table_metadata`; also when `manifest_lists` or `manifests`
        lacks one.
    """
    parts = parse_table_parts(read_document(data, uri, limits))
    metadata = parts.metadata
    kept = select_snapshots(metadata)
    removed = all_snapshots(metadata) - kept
    location = parts.members["location"]
    edits = [Edit(location.start, location.end, quote(map_root(location.value)))]
    edits += _property_edits(parts, map_root, map_property)
    edits += _snapshot_edits(parts, removed, map_property, manifest_lists, manifests)
    edits += _statistics_edits(parts, kept, filter_existing, map_content)
    edits += _log_edits(parts, removed)
    return parts.document.write(edits)


def _property_edits(
    parts: TableParts, map_root: Callable[[str], str], map_property: Callable[[str], str | None]
) -> list[Edit]:
    # A maintenance job run through the replica branch must not delete files that are main's own.
    properties = parts.members.get("properties")
    if properties is None:
        return [Edit(parts.root.start + 1, parts.root.start + 1, '"properties":{"gc.enabled":"false"},')]
    if not properties.value:
        return [Edit(properties.start, properties.end, '{"gc.enabled":"false"}')]
    members = parts.document.members(properties)
    edits: list[Edit] = []
    if "gc.enabled" not in members:
        edits.append(Edit(properties.start + 1, properties.start + 1, '"gc.enabled":"false",'))
    for key, token in members.items():
        edits += (
            replacement_edits(token, "false")
            if key == "gc.enabled"
            else property_edits(parts.document, key, token, map_root, map_property)
        )
    return edits


def _snapshot_edits(
    parts: TableParts,
    removed: frozenset[int],
    map_property: Callable[[str], str | None],
    manifest_lists: Mapping[str, str],
    manifests: Mapping[str, str],
) -> list[Edit]:
    edits = _removal_edits(parts, "snapshots", removed)
    for element in parts.arrays["snapshots"]:
        snapshot = element.members
        if snapshot["snapshot-id"].value in removed:
            continue
        for token in inline_manifests(parts.document, snapshot):
            edits += _replica_uri_edits(parts, token, manifests, "manifest")
        if "manifest-list" in snapshot and snapshot["manifest-list"].value is not None:
            edits += _replica_uri_edits(parts, snapshot["manifest-list"], manifest_lists, "manifest list")
        edits += summary_edits(parts.document, snapshot.get("summary"), map_property)
    return edits


def _replica_uri_edits(parts: TableParts, token: Token, replica_uris: Mapping[str, str], file_kind: str) -> list[Edit]:
    if token.value not in replica_uris:
        raise parts.document.broken(f"the {file_kind} {token.value} was not localized")
    return replacement_edits(token, replica_uris[token.value])


def _statistics_edits(
    parts: TableParts,
    kept: frozenset[int],
    filter_existing: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]],
    map_content: Callable[[str], str],
) -> list[Edit]:
    edits: list[Edit] = []
    remaining_files = iter(parts.metadata.statistics)  # in the order of the arrays
    existing = filter_existing(
        [statistics_file for statistics_file in parts.metadata.statistics if statistics_file.snapshot_id in kept]
    )
    for name in STATISTICS:
        removed_indexes: set[int] = set()
        for index, (element, statistics_file) in enumerate(zip(parts.arrays[name], remaining_files, strict=False)):
            if statistics_file in existing:
                edits += replacement_edits(element.members["statistics-path"], map_content(statistics_file.path))
            else:
                removed_indexes.add(index)
        edits += parts.document.removal_edits([element.token for element in parts.arrays[name]], removed_indexes)
    return edits


def _log_edits(parts: TableParts, removed: frozenset[int]) -> list[Edit]:
    edits: list[Edit] = []
    log = parts.members.get("metadata-log")
    if log is not None and log.value:
        edits.append(Edit(log.start, log.end, "[]"))
    start = snapshot_log_start(parts.metadata.snapshot_log, all_snapshots(parts.metadata) - removed) if removed else 0
    if start:
        entries = parts.document.elements(parts.members["snapshot-log"])
        edits += parts.document.removal_edits(entries, range(start))
    return edits


def _removal_edits(parts: TableParts, name: str, removed: frozenset[int]) -> list[Edit]:
    """Return the edits that take the entries of snapshots that are gone out of an array."""
    elements = parts.arrays[name]
    indexes = {index for index, element in enumerate(elements) if element.members["snapshot-id"].value in removed}
    return parts.document.removal_edits([element.token for element in elements], indexes)
