"""Manifests: their entries, and their localized copy.

What changes in an entry is decided in `entry`. Entries are read and written by `spans`, or by `records` for schemas
that `spans` does not support. Source of the fields: Iceberg specification, "Manifests" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.program import NotWalkable
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests import spans
from sterna.iceberg.manifests.entry import EntryColumns, MapUris, ReferencesOtherFiles, Scan, UriMapping
from sterna.iceberg.manifests.fields import DELETED, POSITION_DELETES
from sterna.iceberg.manifests.header import open_manifest_container
from sterna.libraries import pa, pc


def read_entries(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> pa.Table:
    """Read what a plan needs of a manifest's entries.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.

    Returns:
        A table with the columns status (0 existing, 1 added, 2 deleted), content (0 data, 1 position deletes, 2
        equality deletes; both int64), file_path, file_format (upper case; both string) and file_size (int64, bytes):
        one row an entry, in order. Deletion vectors are position deletes in PUFFIN; several may share a file.

    Raises:
        Unsupported: format v4 or newer, position deletes in an unknown format, encryption, an unknown content or codec.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, or contradicts itself.
    """
    container = open_manifest_container(data, uri, "manifest", limits)
    groups = []
    for columns in _columns(container):
        columns.validate(uri)
        groups.append(columns)
    return _entries_table(groups)


def live_entries(entries: pa.Table) -> pa.Table:
    """Return those of a manifest's entries whose files are part of the snapshot, as `read_entries` has them."""
    return entries.filter(pc.not_equal(entries.column("status"), DELETED))


def live_position_deletes(entries: pa.Table) -> list[tuple[str, int]]:
    """Return path and bytes of the position deletes, deletion vectors included, among a manifest's live entries."""
    live = live_entries(entries)
    deletes = live.filter(pc.equal(live.column("content"), POSITION_DELETES))
    return list(zip(*(deletes.column(name).to_pylist() for name in ("file_path", "file_size")), strict=True))


@dataclass(frozen=True)
class ScannedManifest:
    """The outcome of one walk over a manifest: what `read_entries` and `localize_manifest` return.

    Args:
        entries: as `read_entries` has them, and in a column `target` where this region reads the file of each.
        localized: the localized copy, or None when nothing changes and so the manifest keeps its URI.
    """

    entries: pa.Table
    localized: bytes | None


def scan_manifest(
    data: bytes,
    uri: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    map_content: MapUris,
    map_deleted: MapUris | None = None,
) -> ScannedManifest | None:
    """Read a manifest's entries and make its localized copy, inflating and walking it once.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        map_content: maps the URIs of content files.
        map_deleted: maps those in DELETED entries, which aren't opened; None: as `map_content`.

    Returns:
        Both, or None where the mapping alone doesn't determine the manifest: it has position deletes, or
        entries that refer to other files.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_entries`.
    """
    container = open_manifest_container(data, uri, "manifest", limits)
    try:
        scan = _scan(container, map_content, map_deleted or map_content)
    except ReferencesOtherFiles:
        return None
    targets = pa.chunked_array([targets for _, targets in scan.groups], pa.string())
    return ScannedManifest(
        _entries_table([columns for columns, _ in scan.groups]).append_column("target", targets), scan.localized
    )


def localize_manifest(
    data: bytes,
    uri: str,
    *,
    map_content: Callable[[str], str],
    deletes: Mapping[str, LocalizedFile],
    map_deleted_deletes: Callable[[str], str],
    map_deleted: Callable[[str], str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes | None:
    """Return a manifest's localized copy.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a content file.
        deletes: source URI of each live position delete file, or Puffin with deletion vectors, to its localized copy.
        map_deleted_deletes: maps the URI of such a file in a DELETED entry: it may be gone and is never opened.
        map_deleted: maps the URI of any other content file in a DELETED entry; None: as `map_content`.

    Returns:
        The new file, or None when nothing changes and so the manifest keeps its URI.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_entries`; also when `deletes` lacks a live position
            delete file.
    """
    container = open_manifest_container(data, uri, "manifest", limits)
    mapping = UriMapping(map_content, deletes, map_deleted_deletes, map_deleted or map_content)
    try:
        return spans.localize(container, mapping)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        return records.localize(container, mapping)


def _scan(container: Container, map_content: MapUris, map_deleted: MapUris) -> Scan:
    try:
        return spans.scan(container, map_content, map_deleted)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        return records.scan(container, map_content, map_deleted)


def _entries_table(groups: Sequence[EntryColumns]) -> pa.Table:
    texts, numbers = pa.string(), pa.int64()
    kinds = {"status": numbers, "content": numbers, "file_path": texts, "file_format": texts, "file_size": numbers}
    schema = pa.schema(list(kinds.items()))
    batches = [pa.record_batch([getattr(columns, name) for name in kinds], schema=schema) for columns in groups]
    return pa.Table.from_batches(batches, schema=schema)


def _columns(container: Container) -> Iterator[EntryColumns]:
    try:
        yield from spans.read_columns(container)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        yield from records.read_columns(container)
