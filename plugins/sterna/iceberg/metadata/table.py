"""A table's metadata.json: what it points to, and its localized copy.

Source of the fields: Iceberg specification, "Table Metadata Fields", "Snapshots", "Statistics" and "Encryption" (v1 to
v3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document, replaced
from sterna.iceberg.metadata.edits import property_edits, summary_edits
from sterna.iceberg.metadata.history import all_snapshots, log_start
from sterna.iceberg.metadata.model import Snapshot, StatisticsFile, TableMetadata
from sterna.iceberg.metadata.parts import STATISTICS, TableParts, inline_manifests, table_parts
from sterna.limits import DEFAULT_LIMITS, Limits

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
        limits: of the region.

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
    return table_parts(document).metadata


def localize_table_metadata(
    data: bytes,
    uri: str,
    *,
    content: Callable[[str], str],
    root: Callable[[str], str],
    known: Callable[[str], str | None],
    lists: Mapping[str, str],
    manifests: Mapping[str, str] = MappingProxyType({}),
    keep: Callable[[TableMetadata], frozenset[int]] = all_snapshots,
    present: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]] = lambda items: items,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the replica's copy of a metadata.json: its paths changed, all other characters as they were.

    Changed on purpose beside the paths: `metadata-log` is emptied, and `gc.enabled` is "false", so that no maintenance
    through the replica branch deletes files of `main`. Snapshots that don't stay are taken out, with their statistics
    and what they end of the snapshot log (`history.pruned`).

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        content: maps the URI of a statistics file.
        root: maps a URI to its place below the replica root, be it local or not.
        known: maps a whole value that is a URI with a registered prefix; None for every other value.
        lists: source URI of each manifest list of a snapshot that stays, to its replica URI.
        manifests: the same for inline manifests.
        keep: tells from the file's content the ids of the snapshots that stay; those of the refs and the current one
            must.
        present: returns those of some statistics files that are there; readers can do without, so that the entries of
            others are left out.
        limits: of the region.

    Returns:
        The localized file.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_table_metadata`; also when `lists` or `manifests` lacks one.
    """
    parts = table_parts(read_document(data, uri, limits))
    metadata = parts.metadata
    kept = keep(metadata)
    gone = all_snapshots(metadata) - kept
    location = parts.members["location"]
    edits = [Edit(location.start, location.end, quote(root(location.value)))]
    edits += _properties(parts, root, known)
    edits += _snapshots(parts, gone, known, lists, manifests)
    edits += _statistics(parts, kept, present, content)
    edits += _logs(parts, gone)
    return parts.document.write(edits)


def _properties(parts: TableParts, root: Callable[[str], str], known: Callable[[str], str | None]) -> list[Edit]:
    # A maintenance job run through the replica branch must not delete files that are main's own.
    properties = parts.members.get("properties")
    if properties is None:
        return [Edit(parts.whole.start + 1, parts.whole.start + 1, '"properties":{"gc.enabled":"false"},')]
    if not properties.value:
        return [Edit(properties.start, properties.end, '{"gc.enabled":"false"}')]
    members = parts.document.members(properties)
    edits: list[Edit] = []
    if "gc.enabled" not in members:
        edits.append(Edit(properties.start + 1, properties.start + 1, '"gc.enabled":"false",'))
    for key, token in members.items():
        edits += (
            replaced(token, "false") if key == "gc.enabled" else property_edits(parts.document, key, token, root, known)
        )
    return edits


def _snapshots(
    parts: TableParts,
    gone: frozenset[int],
    known: Callable[[str], str | None],
    lists: Mapping[str, str],
    manifests: Mapping[str, str],
) -> list[Edit]:
    edits = _removed(parts, "snapshots", gone)
    for element in parts.arrays["snapshots"]:
        snapshot = element.members
        if snapshot["snapshot-id"].value in gone:
            continue
        for token in inline_manifests(parts.document, snapshot):
            edits += _localized(parts, token, manifests, "manifest")
        if "manifest-list" in snapshot and snapshot["manifest-list"].value is not None:
            edits += _localized(parts, snapshot["manifest-list"], lists, "manifest list")
        edits += summary_edits(parts.document, snapshot.get("summary"), known)
    return edits


def _localized(parts: TableParts, token: Token, done: Mapping[str, str], what: str) -> list[Edit]:
    if token.value not in done:
        raise parts.document.broken(f"the {what} {token.value} was not localized")
    return replaced(token, done[token.value])


def _statistics(
    parts: TableParts,
    kept: frozenset[int],
    present: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]],
    content: Callable[[str], str],
) -> list[Edit]:
    edits: list[Edit] = []
    items = iter(parts.metadata.statistics)  # as they stand in one array after the other
    stay = present([item for item in parts.metadata.statistics if item.snapshot_id in kept])
    for name in STATISTICS:
        left_out: set[int] = set()
        for index, (element, item) in enumerate(zip(parts.arrays[name], items, strict=False)):
            if item in stay:
                edits += replaced(element.members["statistics-path"], content(item.path))
            else:
                left_out.add(index)
        edits += parts.document.removed([element.token for element in parts.arrays[name]], left_out)
    return edits


def _logs(parts: TableParts, gone: frozenset[int]) -> list[Edit]:
    edits: list[Edit] = []
    log = parts.members.get("metadata-log")
    if log is not None and log.value:
        edits.append(Edit(log.start, log.end, "[]"))
    start = log_start(parts.metadata.snapshot_log, all_snapshots(parts.metadata) - gone) if gone else 0
    if start:
        entries = parts.document.elements(parts.members["snapshot-log"])
        edits += parts.document.removed(entries, range(start))
    return edits


def _removed(parts: TableParts, name: str, gone: frozenset[int]) -> list[Edit]:
    """Return the edits that take the entries of snapshots that are gone out of an array."""
    elements = parts.arrays[name]
    indexes = {index for index, element in enumerate(elements) if element.members["snapshot-id"].value in gone}
    return parts.document.removed([element.token for element in elements], indexes)
