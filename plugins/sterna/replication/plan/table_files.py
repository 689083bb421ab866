"""What one table's new version needs here: its path-bearing files to localize, and its content files to copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import SourceGone, TableError, printable
from sterna.iceberg.files import LocalizedFile
from sterna.replication.plan.manifests import (
    DELETED,
    content_rows,
    read_manifests,
    referenced_by_manifest,
    require_local_files,
    require_outside_replicas,
)
from sterna.replication.plan.metadata_reader import parse_avro, read_files
from sterna.replication.plan.sharded_listing import ShardedListing, needs_sharding
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.desired_state import available_statistics
from sterna.replication.replica.error_context import add_referrer, format_referrer
from sterna.replication.replica.file_list import (
    DELETE_MANIFEST,
    INLINE_MANIFEST,
    MANIFEST,
    MANIFEST_LIST,
    METADATA,
    PROVEN,
    VIEW_METADATA,
)
from sterna.replication.replica.metadata_version import target_metadata_version
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.table import Snapshot, TableMetadata


_log = logging.getLogger(__name__)


class ReplicaFileMissing(Exception):
    """A file of the replica itself is gone, so that what it would prove has to be checked."""


class DeferredToBulk(Exception):
    """A table has so many new files that the large lane is to list them.

    Args:
        manifests: how many of them are new.
        bytes: of these.
    """

    def __init__(self, manifests: int, bytes: int) -> None:
        super().__init__(manifests, bytes)
        self.bytes = bytes
        self.reason = f"the large lane lists its files: {manifests} new manifests, which have so many bytes"


def list_table_files(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    metadata: TableMetadata,
    replica_metadata: TableMetadata | None,
    *,
    prove: bool = True,
    sharded_listing: ShardedListing | None = None,
    is_shown: bool = False,
    defers: Callable[[int], bool] = lambda manifests: False,
) -> pa.Table:
    """List what a table needs here, minus what the replica's head proves.

    A manifest that the replica's head reaches proves its live entries; the lists of snapshots that the head's metadata
    has are reached by it. Only lists and manifests that it doesn't reach are read.

    Args:
        table: key name.
        uri: its metadata.json on `main`.
        target: the URI of the localized one.
        metadata: its content, without the history that the replica doesn't keep.
        replica_metadata: the replica's current metadata of the same table, None when there is none.
        prove: check that files of this region that stay in place are there.
        sharded_listing: lists the content files in parts, where there are very many.
        is_shown: readers have an earlier version of the table.
        defers: returns, where there are very many content files, whether so many new manifests are left to the large
            lane.

    Returns:
        Rows as in `sterna.replication.replica.file_list`: content files that are foreign, path-bearing files that are
        new, and, with batch `PROVEN`, the lists and manifests whose localized copies the new version takes over.

    Raises:
        TableError: a file that is needed is gone, broken or unsupported, or a local one has another size than its
            metadata says.
        ReplicaFileMissing: the replica's own files that would prove something are gone.
        DeferredToBulk: the large lane is to list them.
    """
    referrers: dict[str, str] = {}
    try:
        return _list_table_files(
            context,
            table,
            uri,
            target,
            metadata,
            replica_metadata,
            referrers,
            prove=prove,
            sharded_listing=sharded_listing,
            is_shown=is_shown,
            defers=defers,
        )
    except TableError as error:
        raise add_referrer(error, referrers) from error


def _list_table_files(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    metadata: TableMetadata,
    replica_metadata: TableMetadata | None,
    referrers: dict[str, str],
    *,
    prove: bool,
    sharded_listing: ShardedListing | None,
    is_shown: bool,
    defers: Callable[[int], bool],
) -> pa.Table:
    """As `list_table_files`; adds what names each list and manifest to `referrers`."""
    metadata_version = target_metadata_version(context.mapping, target)
    for snapshot in metadata.snapshots:
        below = [*snapshot.manifests, *filter(None, [snapshot.manifest_list])]
        referrers |= dict.fromkeys(below, format_referrer("the metadata.json", uri))
    reached = _reached_lists(context, metadata, replica_metadata, metadata_version)
    new_snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in reached]
    proven = (
        _reusable_manifests(context, metadata, new_snapshots, reached, replica_metadata, metadata_version)
        if replica_metadata
        else {}
    )
    lists = list(
        dict.fromkeys(snapshot.manifest_list for snapshot in new_snapshots if snapshot.manifest_list is not None)
    )
    inline = list(dict.fromkeys(path for snapshot in new_snapshots for path in snapshot.manifests))
    listed = {manifest.path: manifest for manifest in _read_lists(context, lists, referrers)}
    origins = {path: context.mapping.origin_uri(path) for path in (*listed, *inline)} if proven else {}
    reused = {path: proven[origin] for path, origin in origins.items() if origin in proven}
    manifests = [manifest for path, manifest in listed.items() if path not in reused]
    lengths = {path: -1 for path in inline if path not in reused} | {
        manifest.path: manifest.length for manifest in manifests
    }
    sharded = sharded_listing if needs_sharding(lengths.values()) else None
    if sharded is not None and defers(len(lengths)):
        raise DeferredToBulk(len(lengths), sum(max(length, 1) for length in lengths.values()))
    local: dict[str, int] = {}
    parts = [
        listing.rows(table, METADATA, [(uri, target, -1)]),
        *_proven_rows(table, metadata, reached, reused),
        *_new_rows(context, table, lists, inline, manifests, metadata_version),
        content_rows(context, table, _new_statistics(context, table, metadata, replica_metadata), local),
    ]
    if sharded is not None:
        parts.append(sharded.list_table(context, table, uri, target, lengths, is_shown=is_shown))
    else:
        parts += read_manifests(context, table, lengths, local, metadata_version)
    files = listing.concat_files(parts)
    with referenced_by_manifest(context, () if sharded else lengths):
        require_outside_replicas(context, uri, files, local)
        if prove:
            require_local_files(context, local)
    return listing.distinct(files)


def reached_content(context: RegionContext, replica_metadata: TableMetadata, targets: set[str]) -> set[str]:
    """Return those of some content files that the replica's version reaches; all of them where its files can't be
    read.

    Args:
        replica_metadata: the replica's metadata.
        targets: URIs below the replica root.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from sterna.iceberg.manifests.manifest import read_entries

    reached = targets & {statistics_file.path for statistics_file in replica_metadata.statistics}
    target_array = pa.array(sorted(targets), pa.string())
    try:
        lists = {snapshot.manifest_list for snapshot in replica_metadata.snapshots if snapshot.manifest_list}
        manifests = {path for snapshot in replica_metadata.snapshots for path in snapshot.manifests}
        manifests |= {manifest.path for manifest in _read_lists(context, sorted(lists))}
        for uri, data in read_files(context, dict.fromkeys(sorted(manifests), -1)):
            entries = parse_avro(context, uri, data, read_entries)
            live = entries.filter(pc.not_equal(entries.column("status"), DELETED)).column("file_path")
            reached |= set(live.filter(pc.is_in(live, target_array)).to_pylist())
    except TableError:
        return targets
    return reached


def _proven_rows(
    table: str, metadata: TableMetadata, reached: dict[int, str], reused: dict[str, LocalizedFile]
) -> list[pa.Table]:
    """Return rows of the lists and manifests whose localized copies the new version takes over."""
    lists = [
        (snapshot.manifest_list, reached[snapshot.snapshot_id])
        for snapshot in metadata.snapshots
        if snapshot.manifest_list is not None and snapshot.snapshot_id in reached
    ]
    return [
        listing.rows(table, MANIFEST_LIST, [(old, new, -1) for old, new in lists], PROVEN),
        listing.rows(
            table, MANIFEST, [(path, written.uri, written.length) for path, written in reused.items()], PROVEN
        ),
    ]


def _new_rows(
    context: RegionContext,
    table: str,
    lists: Sequence[str],
    inline: Sequence[str],
    manifests: Sequence[ManifestFile],
    metadata_version: MetadataVersion,
) -> list[pa.Table]:
    """Return rows of the lists and manifests that are to be localized."""
    localized = partial(context.mapping.localized_uri, version=metadata_version)
    parts = [
        listing.rows(table, MANIFEST_LIST, [(path, localized(path), -1) for path in lists]),
        listing.rows(table, INLINE_MANIFEST, [(path, localized(path), -1) for path in inline]),
    ]
    for content, role in ((0, MANIFEST), (1, DELETE_MANIFEST)):
        parts.append(
            listing.rows(
                table,
                role,
                [
                    (manifest.path, localized(manifest.path), manifest.length)
                    for manifest in manifests
                    if manifest.content == content
                ],
            )
        )
    return parts


def list_view_files(table: str, uri: str, target: str) -> pa.Table:
    """List what a view needs here: its metadata.json alone."""
    return listing.rows(table, VIEW_METADATA, [(uri, target, -1)])


def _reached_lists(
    context: RegionContext,
    metadata: TableMetadata,
    replica_metadata: TableMetadata | None,
    metadata_version: MetadataVersion,
) -> dict[int, str]:
    """Return, by snapshot id, the replica's manifest list of every snapshot that its head has already."""
    replica_lists = (
        {
            snapshot.snapshot_id: snapshot.manifest_list
            for snapshot in replica_metadata.snapshots
            if snapshot.manifest_list
        }
        if replica_metadata
        else {}
    )
    return {
        snapshot.snapshot_id: replica_lists[snapshot.snapshot_id]
        for snapshot in metadata.snapshots
        if snapshot.manifest_list is not None
        and snapshot.snapshot_id in replica_lists
        and _is_same_list(context, replica_lists[snapshot.snapshot_id], snapshot.manifest_list, metadata_version)
    }


def _is_same_list(context: RegionContext, replica_uri: str, source_uri: str, metadata_version: MetadataVersion) -> bool:
    """Return whether a list of the replica is the localized copy of one on `main`, or has the same origin."""
    mapping = context.mapping
    return replica_uri == source_uri or (
        _is_usable(mapping, replica_uri, metadata_version)
        and mapping.origin_uri(replica_uri) == mapping.origin_uri(source_uri)
    )


def _is_usable(mapping: Mapping, replica_uri: str, metadata_version: MetadataVersion) -> bool:
    """Return whether a list or manifest of the replica is of the present metadata version."""
    actual = mapping.metadata_version(replica_uri)
    return actual is None or actual.folder == metadata_version.folder


def _reusable_manifests(
    context: RegionContext,
    metadata: TableMetadata,
    new_snapshots: Sequence[Snapshot],
    reached: dict[int, str],
    replica_metadata: TableMetadata,
    metadata_version: MetadataVersion,
) -> dict[str, LocalizedFile]:
    """Return the manifests, by their origins, that the replica's own lists nearest to the new snapshots name, and
    its newest one.
    """
    if not new_snapshots:
        return {}
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    nearest: set[str] = set()
    for snapshot in new_snapshots:
        ancestor = snapshot.parent_id
        while ancestor is not None and ancestor not in reached:
            ancestor = parents.pop(ancestor, None)  # each ancestor is passed once: the way on from it has been found
        if ancestor is not None:
            nearest.add(reached[ancestor])
    # Also where no snapshot has stayed: what is committed through Nessie's Iceberg REST has no history.
    nearest |= {
        current.manifest_list
        for current in replica_metadata.snapshots
        if current.snapshot_id == replica_metadata.current_snapshot_id and current.manifest_list
    }
    try:
        return {
            context.mapping.origin_uri(manifest.path): LocalizedFile(manifest.path, manifest.length)
            for manifest in _read_lists(context, sorted(nearest))
            if _is_usable(context.mapping, manifest.path, metadata_version)
        }
    except SourceGone as error:
        raise ReplicaFileMissing(error.file) from error


def _read_lists(
    context: RegionContext, uris: Sequence[str], referrers: dict[str, str] | None = None
) -> Iterable[ManifestFile]:
    """Yield the entries of manifest lists; adds the list of each to `referrers`."""
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    for uri, data in read_files(context, dict.fromkeys(uris, -1)):
        manifests = parse_avro(context, uri, data, read_manifest_list)
        if referrers is not None:
            referrer = format_referrer("the manifest list", uri)
            for manifest in manifests:
                referrers.setdefault(manifest.path, referrer)
        yield from manifests


def _new_statistics(
    context: RegionContext, table: str, metadata: TableMetadata, replica_metadata: TableMetadata | None
) -> pa.Table:
    """Return path and size of the statistics files that the replica's head doesn't have, and that are there."""
    import pyarrow as pa

    existing = (
        {(statistics_file.path, statistics_file.length) for statistics_file in replica_metadata.statistics}
        if replica_metadata
        else set()
    )
    present = available_statistics(context.objects, metadata.statistics)
    for statistics_file in metadata.statistics:
        if statistics_file not in present:
            _log.warning(
                "table %s: statistics are left out, their file is missing: %s", table, printable(statistics_file.path)
            )
    new = [
        statistics_file
        for statistics_file in metadata.statistics
        if statistics_file in present
        and (context.mapping.content_uri(statistics_file.path), statistics_file.length) not in existing
    ]
    paths, sizes = (
        pa.array([statistics_file.path for statistics_file in new], pa.string()),
        pa.array([statistics_file.length for statistics_file in new], pa.int64()),
    )
    return pa.table({"file_path": paths, "file_size": sizes})
