"""Manifests: their entries, and their localized copy.

What changes in an entry is decided in `entry`. Entries are read and written by `spans`, or by `records` for schemas
that `spans` does not know. Source of the fields: Iceberg specification, "Manifests" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.program import NotWalkable
from sterna.iceberg.files import Written
from sterna.iceberg.manifests import spans
from sterna.iceberg.manifests.entry import Columns, NamesOthers, Scan, UriMapping
from sterna.iceberg.manifests.header import open_iceberg
from sterna.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import pyarrow


def read_entries(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> pyarrow.Table:
    """Read what a plan needs of a manifest's entries.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        limits: of the region.

    Returns:
        A table with the columns status (0 existing, 1 added, 2 deleted), content (0 data, 1 position deletes, 2
        equality deletes; both int64), file_path, file_format (upper case; both string) and file_size (int64, bytes):
        one row an entry, in order. Deletion vectors are position deletes in PUFFIN; several may share a file.

    Raises:
        Unsupported: format v4 or newer, position deletes in an unknown format, encryption, an unknown content or codec.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, or contradicts itself.
    """
    container = open_iceberg(data, uri, "manifest", limits)
    found = []
    for columns in _columns(container):
        columns.check(uri)
        found.append(columns)
    return _table(found)


@dataclass(frozen=True)
class ScannedManifest:
    """What one walk over a manifest gives: what `read_entries` and `localize_manifest` say of it.

    Args:
        entries: as `read_entries` has them, and in a column `target` where this region reads the file of each.
        localized: the localized copy, or None when nothing changes and so the manifest keeps its URI.
    """

    entries: pyarrow.Table
    localized: bytes | None


def scan_manifest(
    data: bytes,
    uri: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    content: Callable[[str], str],
    deleted: Callable[[str], str] | None = None,
) -> ScannedManifest | None:
    """Read a manifest's entries and make its localized copy, inflating and walking it once.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        limits: of the region.
        content: maps the URI of a content file.
        deleted: maps the URI of one in a DELETED entry, which nobody opens; None: as `content`.

    Returns:
        Both, or None where the mapping alone doesn't tell what the manifest becomes: it has position deletes, or
        entries that refer to other files.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_entries`.
    """
    import pyarrow as pa

    container = open_iceberg(data, uri, "manifest", limits)
    try:
        found = _scan(container, content, deleted or content)
    except NamesOthers:
        return None
    targets = pa.chunked_array([pa.array(targets, pa.string()) for _, targets in found.groups], pa.string())
    return ScannedManifest(
        _table([columns for columns, _ in found.groups]).append_column("target", targets), found.localized
    )


def localize_manifest(
    data: bytes,
    uri: str,
    *,
    content: Callable[[str], str],
    deletes: Mapping[str, Written],
    mapped: Callable[[str], str],
    deleted: Callable[[str], str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes | None:
    """Return a manifest's localized copy.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        content: maps the URI of a content file.
        deletes: source URI of each live position delete file, or Puffin with deletion vectors, to its localized copy.
        mapped: maps the URI of such a file in a DELETED entry: it may be gone and is never opened.
        deleted: maps the URI of any other content file in a DELETED entry; None: as `content`.
        limits: of the region.

    Returns:
        The new file, or None when nothing changes and so the manifest keeps its URI.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_entries`; also when `deletes` lacks a live position
            delete file.
    """
    container = open_iceberg(data, uri, "manifest", limits)
    mapping = UriMapping(content, deletes, mapped, deleted or content)
    try:
        return spans.localize(container, mapping)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        return records.localize(container, mapping)


def _scan(container: Container, content: Callable[[str], str], deleted: Callable[[str], str]) -> Scan:
    try:
        return spans.scan(container, content, deleted)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        return records.scan(container, content, deleted)


def _table(found: Sequence[Columns]) -> pyarrow.Table:
    import pyarrow as pa

    texts, numbers = pa.string(), pa.int64()
    kinds = {"status": numbers, "content": numbers, "file_path": texts, "file_format": texts, "file_size": numbers}
    schema = pa.schema(list(kinds.items()))
    batches = [pa.record_batch([getattr(columns, name) for name in kinds], schema=schema) for columns in found]
    return pa.Table.from_batches(batches, schema=schema)


def _columns(container: Container) -> Iterator[Columns]:
    try:
        yield from spans.columns(container)
    except NotWalkable:
        from sterna.iceberg.manifests import records

        yield from records.columns(container)
