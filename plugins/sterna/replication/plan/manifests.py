"""A table's new manifests, each read, inflated and walked once: the rows of its live entries, and what it becomes here.

The localized copy of a manifest of data files depends on its URI and the mapping alone. So it is written as soon as it
is read, before its data arrives: no head names it, and the localize stage finds it there. One with position deletes
needs their localized copies. It is kept beside the plan, as other foreign metadata is, and localized later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import is_inside
from sterna.config.uri_columns import map_content_uris
from sterna.config.verbatim_copies import verbatim_uri
from sterna.errors import SizeDiffers, SourceGone, SternaError, TableError, Unsupported, redact_uri
from sterna.iceberg.manifests.fields import POSITION_DELETES
from sterna.libraries import pa, pc
from sterna.replication.execution.source_sizes import LISTING_MIN_FILES
from sterna.replication.plan.metadata_reader import parse_avro, read_files
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.error_context import add_referrer, format_referrer, referenced_by
from sterna.replication.replica.file_list import CONTENT, POSITION_DELETE
from sterna.replication.replica.metadata_version import target_metadata_version
from sterna.replication.replica.region import RegionContext
from sterna.storage.read_cache import cache_uri

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_MAX_WRITE_CONCURRENCY = 8
_MAX_PENDING_BYTES = 16 << 20
MAX_PENDING_OBJECTS = 16


def list_shard(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    manifests: dict[str, int],
    *,
    localizes: bool = True,
    proves: bool = True,
) -> pa.Table:
    """List what some manifests of a table name: all of its new ones, or a share of very many.

    Args:
        table: key name.
        uri: its metadata.json on `main`.
        target: the URI of the localized one.
        manifests: with their lengths by the list, -1 where it has none.
        localizes: also localize those that the mapping alone decides, where the region is opened for a run.
        proves: require that files of this region, which stay in place, are there.

    Returns:
        Rows of the live entries: content files that are foreign, and position deletes.

    Raises:
        TableError: a manifest is gone, broken or unsupported, or a local file has another size than its metadata says.
    """
    metadata_version = target_metadata_version(context.mapping, target)
    shard = _Shard(context, table, metadata_version, dict[str, int]())
    rows = listing.concat_files(_read_manifests(shard, manifests, localizes=localizes and bool(context.run)))
    with _referenced_by_manifest(context, manifests):
        require_outside_replicas(context, uri, rows, shard.local)
        if proves:
            require_local_files(context, shard.local)
    return rows


@dataclass(frozen=True)
class _Shard:
    """Manifests of one table while they are read.

    Args:
        table: key name.
        metadata_version: of the localized files.
        local: takes the content files that are local, with their sizes.
    """

    context: RegionContext
    table: str
    metadata_version: MetadataVersion
    local: dict[str, int]

    def read(self, uri: str, data: bytes) -> list[pa.Table]:
        """Return the rows of one manifest."""
        from sterna.iceberg.manifests.manifest import read_entries

        return self._rows(parse_avro(self.context, uri, data, read_entries))

    def read_and_localize(
        self, uri: str, data: bytes, target: str, writer: _ObjectWriter, *, assume_absent: bool
    ) -> list[pa.Table]:
        """Return the rows of one manifest; its localized copy, or itself for the localize stage, goes to `writer`.

        Args:
            assume_absent: a listing has just shown that nothing is at the target.
        """
        from sterna.iceberg.manifests.entry import over_columns
        from sterna.iceberg.manifests.manifest import scan_manifest

        mapping = self.context.mapping
        if copy := verbatim_uri(mapping, uri):
            writer.add(copy, data)
        scan = partial(
            scan_manifest,
            map_content=partial(map_content_uris, mapping),
            map_deleted=over_columns(mapping.content_uri_or_original),
        )
        scanned, is_local = parse_avro(self.context, uri, data, scan), mapping.is_local(uri)
        if scanned is None:
            if not is_local:
                writer.add(cache_uri(self.context.run, uri), data)
            return self.read(uri, data)
        if scanned.localized is not None:
            writer.add(target, scanned.localized, assume_absent=assume_absent)
        elif not is_local:
            writer.add(
                target, data, assume_absent=assume_absent
            )  # nothing inside changes, but the file itself is foreign
        return self._rows(scanned.entries)

    def _rows(self, entries: pa.Table) -> list[pa.Table]:
        from sterna.iceberg.manifests.manifest import live_entries, live_position_deletes

        live, mapping = live_entries(entries), self.context.mapping
        content = live.filter(pc.not_equal(live.column("content"), POSITION_DELETES))
        localized = [
            (path, mapping.localized_uri(path, self.metadata_version), size)
            for path, size in live_position_deletes(entries)
        ]
        return [
            content_rows(self.context, self.table, content, self.local),
            listing.rows(self.table, POSITION_DELETE, localized),
        ]


def _read_manifests(shard: _Shard, lengths: dict[str, int], *, localizes: bool) -> list[pa.Table]:
    """Return the rows of manifests.

    Args:
        lengths: by URI, each manifest's length by its list, -1 where the list has none.
        localizes: also localize those that the mapping alone decides.
    """
    from sterna.iceberg.avro.locate import expect_bytes

    context = shard.context
    rows: list[pa.Table] = []
    expect_bytes(sum(size for size in lengths.values() if size > 0))  # compressed, so that they are more
    if not localizes:
        for path, data in _read_sized(context, lengths, context.objects):
            with referenced_by("the manifest", path):
                rows += shard.read(path, data)
        return rows
    targets = {path: context.mapping.localized_uri(path, shard.metadata_version) for path in lengths}
    existing = _existing_targets(context, targets.values())
    with _ObjectWriter(context) as writer:
        for path, data in _read_sized(context, lengths, context.objects.without_read_cache()):
            with referenced_by("the manifest", path):
                target = targets[path]
                if existing and target in existing:
                    rows += shard.read(path, data)
                else:
                    rows += shard.read_and_localize(path, data, target, writer, assume_absent=existing is not None)
    return rows


def _read_sized(context: RegionContext, lengths: dict[str, int], objects: Objects) -> Iterator[tuple[str, bytes]]:
    for path, data in read_files(context, lengths, objects):
        if lengths[path] not in (-1, len(data)):
            raise SizeDiffers(f"the manifest has {len(data)} bytes, its list says {lengths[path]}", file=path)
        yield path, data


def _existing_targets(context: RegionContext, targets: Iterable[str]) -> set[str] | None:
    """Return those of many localized manifests that an earlier run wrote; None for few, which are checked when they are
    written.
    """
    distinct = set(targets)
    if len(distinct) <= LISTING_MIN_FILES:
        return None
    return {target for target, size in context.objects.sizes(distinct).items() if size is not None}


class _ObjectWriter:
    """Objects that are written beside the reading, a few at once; at the end all of them are there."""

    def __init__(self, context: RegionContext) -> None:
        self._objects = context.objects
        self._pending: list[tuple[str, bytes, bool]] = []

    def __enter__(self) -> _ObjectWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()

    def add(self, uri: str, data: bytes, *, assume_absent: bool = False) -> None:
        self._pending.append((uri, data, assume_absent))
        pending_bytes = sum(len(data) for _, data, _ in self._pending)
        if len(self._pending) >= MAX_PENDING_OBJECTS or pending_bytes >= _MAX_PENDING_BYTES:
            self._flush()

    def _write(self, pending: tuple[str, bytes, bool]) -> int:
        uri, data, assume_absent = pending
        return self._objects.write_new(uri, data, assume_absent=assume_absent)

    def _flush(self) -> None:
        if len(self._pending) == 1:
            self._write(self._pending[0])
        elif self._pending:
            with ThreadPoolExecutor(_MAX_WRITE_CONCURRENCY, thread_name_prefix="sterna-manifests") as pool:
                list(pool.map(self._write, self._pending))
        self._pending.clear()


def content_rows(context: RegionContext, table: str, files: pa.Table, local: dict[str, int]) -> pa.Table:
    """Return rows of the foreign ones among some content files.

    Args:
        table: key name.
        files: columns file_path, file_size and, where it is known, target.
        local: takes the others, which stay where they are, with their sizes.
    """
    has_targets = "target" in files.column_names
    parts = []
    for batch in files.to_batches():
        paths, sizes = batch.column("file_path"), batch.column("file_size")
        if has_targets:
            targets = batch.column("target")
        else:
            targets = pa.array([context.mapping.content_uri(path) for path in paths.to_pylist()], pa.string())
        foreign = pc.not_equal(paths, targets)
        if not pc.all(foreign).as_py():
            in_place = pc.invert(foreign)
            local.update(zip(paths.filter(in_place).to_pylist(), sizes.filter(in_place).to_pylist(), strict=True))
            paths, targets, sizes = (column.filter(foreign) for column in (paths, targets, sizes))
        parts.append(listing.columns(table, CONTENT, paths, targets, sizes, batch=0))
    return listing.concat_files(parts)


@contextmanager
def _referenced_by_manifest(context: RegionContext, manifests: Iterable[str]) -> Iterator[None]:
    """Add to errors of a content file which manifest names it; for that the manifests are read once more.

    Args:
        manifests: those that may name it.
    """
    try:
        yield
    except TableError as error:
        raise add_referrer(error, _find_referrer(context, error.file, manifests)) from error


def _find_referrer(context: RegionContext, file: str, manifests: Iterable[str]) -> dict[str, str]:
    """Return a file with what names it; nothing where that is no longer known."""
    from sterna.iceberg.manifests.manifest import read_entries

    with suppress(SternaError):
        for uri, data in read_files(context, dict.fromkeys(manifests, -1)):
            for path in parse_avro(context, uri, data, read_entries).column("file_path").to_pylist():
                if path == file or redact_uri(path) == file:
                    return {file: format_referrer("the manifest", uri)}
    return {}


def require_outside_replicas(context: RegionContext, metadata: str, files: pa.Table, local: Iterable[str]) -> None:
    """Require that a table names nothing below a replica root, unless its metadata.json is there, too (after a
    promotion with tables).

    That region's `gc` could not know that the file is needed, and here it would have the same URI as its origin, which
    the table may name as well.

    Raises:
        Unsupported: it does.
    """
    roots = [
        f"{region.replica_root}/" for region in context.registry.regions if not is_inside(metadata, region.replica_root)
    ]
    sources = files.column("source")
    for root in roots:
        below = pc.min(sources.filter(pc.starts_with(sources, root))).as_py() or next(
            (path for path in local if path.startswith(root)), None
        )
        if below is not None:
            raise Unsupported(
                "the table names a file below a replica root, and its own metadata is outside: rewrite it", file=below
            )


def require_local_files(context: RegionContext, local: dict[str, int]) -> None:
    """Require that files of this region's writers exist: a head may name nothing that doesn't.

    Raises:
        SourceGone, SizeDiffers: one is gone, or has another size than its metadata says.
    """
    sizes = context.objects.sizes(local) if local else {}
    for path, size in local.items():
        actual = sizes[path]
        if actual is None:
            raise SourceGone(
                "a file of this region is gone", file=path, hint="restore it, or expire the snapshots that need it"
            )
        if actual != size:
            raise SizeDiffers(f"a file of this region has {actual} bytes, its metadata says {size}", file=path)
