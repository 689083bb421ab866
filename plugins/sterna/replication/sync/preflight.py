"""Proving, before tables are published, that their localized files exist, with the lengths that their parents list.

A file's content is a function of its URI, but its length may differ between versions of a library. And a file may have
been written by one run, and its parent by another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sterna.errors import NotLocalized, ObjectMissing, SternaError, TableError, printable
from sterna.libraries import pa
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import (
    DELETE_MANIFEST,
    INLINE_MANIFEST,
    MANIFEST,
    MANIFEST_LIST,
    POSITION_DELETE,
    PROVEN,
)
from sterna.replication.replica.model import TableFailure
from sterna.replication.replica.region import RegionContext

_MAX_CONCURRENCY = 8  # files read at once; about as many more wait in memory


@dataclass(frozen=True)
class _LocalizedFiles:
    """The new localized files of one table, below its metadata.json.

    Args:
        roles: by target.
        sources: by target.
        sizes: of the object at each target, None where there is none.
        proven: length by target, of the manifests that the replica's head proves, by its own lists.
    """

    roles: dict[str, str]
    sources: dict[str, str]
    sizes: dict[str, int | None]
    proven: dict[str, int]

    def has_other_length(self, uri: str, length: int) -> bool:
        """Return whether a file is known to have another length."""
        return self.sizes[uri] != length if uri in self.sizes else self.proven.get(uri, length) != length

    def length(self, uri: str) -> int | None:
        """Return a file's length, None where there is none."""
        return self.sizes[uri] if uri in self.sizes else self.proven[uri]


def localization_failures(context: RegionContext, files: pa.Table, tables: Collection[str]) -> tuple[TableFailure, ...]:
    """Return what is wrong with the localized files of tables that are about to be published; the first of each table.

    Files that the replica's head proves, and those of `main` that stay in place, are not checked.

    Args:
        files: the plan's list of files (`sterna.replication.replica.file_list`).
        tables: key names.

    Raises:
        StoreUnreachable, StoreDenied: the region's store can't be used.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    roles = (POSITION_DELETE, DELETE_MANIFEST, MANIFEST, INLINE_MANIFEST, MANIFEST_LIST)
    for row in listing.filter_roles(files, *roles).to_pylist():
        if row["table"] in tables:
            rows[row["table"]].append(row)
    faults = ((table, _first_fault(context, table_rows)) for table, table_rows in rows.items())
    return tuple(_failure(table, error) for table, error in faults if error is not None)


def _failure(table: str, error: TableError) -> TableFailure:
    return TableFailure(table, type(error).__name__, printable(error.message), printable(error.file))


def _first_fault(context: RegionContext, rows: Iterable[dict[str, Any]]) -> TableError | None:
    listed = list(rows)
    targets = {row["target"]: row for row in listed if row["batch"] != PROVEN}
    manifests = (row for row in listed if row["batch"] == PROVEN and row["role"] == MANIFEST and row["size"] >= 0)
    localized = _LocalizedFiles(
        {target: row["role"] for target, row in targets.items()},
        {target: row["source"] for target, row in targets.items()},
        context.objects.sizes(targets),
        {row["target"]: row["size"] for row in manifests},
    )
    return next(_faults(context, localized), None)


def _faults(context: RegionContext, localized: _LocalizedFiles) -> Iterator[TableError]:
    for target, size in localized.sizes.items():
        if size is None and not context.mapping.is_local(localized.sources[target]):
            yield NotLocalized("a localized file is gone", file=target)
    parents = [
        target
        for target, size in localized.sizes.items()
        if size is not None and localized.roles[target] in (DELETE_MANIFEST, MANIFEST_LIST)
    ]
    for uri, data in context.objects.read_many(parents, _MAX_CONCURRENCY):
        try:
            yield from _length_mismatches(uri, _require_bytes(data, uri), localized)
        except TableError as error:
            yield NotLocalized(error.message, file=error.file or uri)


def _require_bytes(data: bytes | SternaError, uri: str) -> bytes:
    if isinstance(data, ObjectMissing):
        raise NotLocalized("a localized file is gone", file=uri)
    if isinstance(data, SternaError):
        raise data
    return data


def _length_mismatches(uri: str, data: bytes, localized: _LocalizedFiles) -> Iterator[TableError]:
    """Yield the files that a list or manifest names, with other lengths than they have."""
    for path, length in _named_files(uri, data, localized.roles[uri]):
        if localized.has_other_length(path, length):
            yield NotLocalized(
                f"a localized file has {localized.length(path)} bytes, {uri} says {length}: `sterna repair "
                "--rewrite-metadata` rewrites both",
                file=path,
            )


def _named_files(uri: str, data: bytes, role: str) -> Iterable[tuple[str, int]]:
    from sterna.iceberg.manifests.manifest import live_position_deletes, read_entries
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    if role == MANIFEST_LIST:
        return [(manifest.path, manifest.length) for manifest in read_manifest_list(data, uri)]
    return live_position_deletes(read_entries(data, uri))
