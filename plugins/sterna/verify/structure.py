"""Verifying a replica's structure: every path that its branch reaches is in this region, exists, and has its size.

Shares no code with localizing beyond reading files, so that it can catch localizing's faults: URIs are judged by the
registry's prefixes alone, and position deletes are read row by row.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.edges.catalog import ICEBERG_TABLE, ICEBERG_VIEW, Content, key_name
from sterna.errors import ObjectMissing, TableError, UsageError
from sterna.sync.context import Context
from sterna.sync.head import read_head

if TYPE_CHECKING:
    import pyarrow as pa

_DELETED = 2


@dataclass(frozen=True)
class Finding:
    """One fault of a replica.

    Args:
        table: key name.
        kind: missing, size, foreign, unreadable, disagrees.
        file: URI of the file that is wrong, or that names the wrong thing.
        message: what is wrong with it.
    """

    table: str
    kind: str
    file: str
    message: str


@dataclass(frozen=True)
class Verified:
    """What was looked at and what was found.

    Args:
        tables, files, bytes: looked at; files and bytes without repetition within a table.
        foreign: how many URIs outside the region were met.
        findings: the faults.
    """

    tables: int
    files: int
    bytes: int
    foreign: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Reference:
    """A file that something names, with the size that it must have, or -1."""

    uri: str
    size: int
    named_by: str


def verify_structure(context: Context, tables: Iterable[str] = (), progress: Callable[[str], None] = lambda line: None) -> Verified:
    """Check the structure of a region's replica branch.

    Args:
        context: the region.
        tables: key names; default: all tables and views.
        progress: called with a line per table.

    Returns:
        Counts and findings; no finding means that the replica is closed.

    Raises:
        UsageError: a table isn't on the branch; the message names those that are.
        CatalogError, StoreError: something does not answer.
    """
    head = read_head(context.catalog, context.region.replica_branch)
    contents = (
        {key_name(key): content for key, content in context.catalog.entries(context.region.replica_branch, head.hash)}
        if head.exists
        else {}
    )
    entries = {name: content for name, content in contents.items() if content.kind in (ICEBERG_TABLE, ICEBERG_VIEW)}
    chosen = list(tables) or sorted(entries)
    for name in chosen:
        if name not in entries:
            raise UsageError(f"no table {name!r} on {context.region.replica_branch}: there are {', '.join(sorted(entries)) or 'none'}")
    checks = [_Check(context, name) for name in chosen]
    for check in checks:
        check.run(entries[check.table])
        progress(f"{check.table}: {check.files} files, {len(check.findings)} faults")
    return Verified(
        len(checks),
        sum(check.files for check in checks),
        sum(check.bytes for check in checks),
        sum(check.foreign for check in checks),
        tuple(finding for check in checks for finding in check.findings),
    )


class _Check:
    """The check of one table."""

    def __init__(self, context: Context, table: str) -> None:
        self.context = context
        self.table = table
        self.files = self.bytes = self.foreign = 0
        self.findings: list[Finding] = []

    def run(self, content: Content) -> None:
        from sterna.iceberg.metadata import read_table_metadata
        from sterna.iceberg.view import read_view_metadata

        uri = content.metadata_location or ""
        data = self._read(uri, self.table)
        if data is None:
            return
        try:
            if content.kind == ICEBERG_VIEW:
                view = read_view_metadata(data, uri)
                self._is_local(view.location, uri)
                return
            metadata = read_table_metadata(data, uri)
        except TableError as error:
            self._found("unreadable", uri, str(error))
            return
        self._is_local(metadata.location, uri)
        self._check_files(_Reference(item.path, item.length, uri) for item in metadata.statistics)
        lists = dict.fromkeys(snapshot.manifest_list for snapshot in metadata.snapshots)
        manifests = {item.uri: item for path in lists for item in self._manifests(path, uri)}
        deletes: list[_Reference] = []
        content_files: dict[str, _Reference] = {}
        for item in manifests.values():
            for reference, is_position_delete in self._entries(item):
                content_files.setdefault(reference.uri, reference)
                if is_position_delete:
                    deletes.append(reference)
        self._check_files(content_files.values())
        for reference in {reference.uri: reference for reference in deletes}.values():
            self._rows(reference)

    def _manifests(self, uri: str, named_by: str) -> Iterator[_Reference]:
        from sterna.iceberg.manifest_list import read_manifest_list

        data = self._read(uri, named_by)
        if data is None:
            return
        try:
            for item in read_manifest_list(data, uri):
                yield _Reference(item.path, item.length, uri)
        except TableError as error:
            self._found("unreadable", uri, str(error))

    def _entries(self, manifest: _Reference) -> list[tuple[_Reference, bool]]:
        from sterna.iceberg.manifest import read_entries

        data = self._read(manifest.uri, manifest.named_by)
        if data is None:
            return []
        if len(data) != manifest.size:
            self._found("size", manifest.uri, f"{len(data)} bytes, {manifest.named_by} says {manifest.size}")
        try:
            entries: pa.Table = read_entries(data, manifest.uri)
        except TableError as error:
            self._found("unreadable", manifest.uri, str(error))
            return []
        columns = (entries.column(name).to_pylist() for name in ("status", "content", "file_path", "file_size"))
        return [
            (_Reference(path, size, manifest.uri), content == 1)
            for status, content, path, size in zip(*columns, strict=True)
            if status != _DELETED
        ]

    def _rows(self, reference: _Reference) -> None:
        """Check that no row of a position delete file names a foreign file."""
        import pyarrow.parquet as pq

        if not self._is_local(reference.uri, reference.named_by, count=False):
            return
        try:
            data = self.context.objects.read(reference.uri)
            paths = pq.read_table(io.BytesIO(data), columns=["file_path"]).column("file_path").unique().to_pylist()
        except ObjectMissing:
            return  # found already
        except (OSError, ValueError, KeyError, TableError) as error:
            self._found("unreadable", reference.uri, str(error))
            return
        for path in paths:
            self._is_local(path, reference.uri)

    def _check_files(self, references: Iterable[_Reference]) -> None:
        local = [reference for reference in references if self._is_local(reference.uri, reference.named_by)]
        sizes = self.context.objects.sizes([reference.uri for reference in local])
        for reference in local:
            size = sizes.get(reference.uri)
            self.files += 1
            self.bytes += size or 0
            if size is None:
                self._found("missing", reference.uri, f"named by {reference.named_by}")
            elif size != reference.size:
                self._found("size", reference.uri, f"{size} bytes, {reference.named_by} says {reference.size}")

    def _read(self, uri: str, named_by: str) -> bytes | None:
        if not self._is_local(uri, named_by):
            return None
        try:
            data: bytes = self.context.objects.read(uri)
        except ObjectMissing:
            self._found("missing", uri, f"named by {named_by}")
            return None
        self.files += 1
        self.bytes += len(data)
        return data

    def _is_local(self, uri: str, named_by: str, *, count: bool = True) -> bool:
        try:
            if self.context.mapping.is_local(uri.rstrip("/")):
                return True
        except TableError:
            pass  # in no location at all: worse than foreign, and reported as such
        if count:
            self.foreign += 1
            self._found("foreign", named_by, f"names {uri}, which is not in {self.context.region.name}")
        return False

    def _found(self, kind: str, file: str, message: str) -> None:
        self.findings.append(Finding(self.table, kind, file, message))
