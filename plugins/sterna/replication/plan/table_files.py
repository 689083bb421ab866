"""What one table's new version needs here: its path-bearing files to localize, and its content files to copy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import SourceGone, TableError, printable
from sterna.iceberg.files import LocalizedFile
from sterna.libraries import pa
from sterna.replication.plan.manifests import content_rows, require_outside_replicas
from sterna.replication.plan.metadata_reader import read_lists
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
    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.table import Snapshot, TableMetadata


_log = logging.getLogger(__name__)


class ReplicaFileMissing(Exception):
    """A file of the replica itself is gone, so that what it would prove has to be checked."""


class ContentLister(Protocol):
    """Lists what manifests of a table name (`sterna.replication.plan.manifests.list_shard`)."""

    def __call__(
        self, context: RegionContext, table: str, uri: str, target: str, manifests: dict[str, int]
    ) -> pa.Table:
        """Return rows of content files that are foreign, and of position deletes."""


def list_table_files(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    metadata: TableMetadata,
    replica_metadata: TableMetadata | None,
    *,
    list_content: ContentLister,
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
        list_content: lists what the new manifests name.

    Returns:
        Rows as in `sterna.replication.replica.file_list`: content files that are foreign, path-bearing files that are
        new, and, with batch `PROVEN`, the lists and manifests whose localized copies the new version takes over.

    Raises:
        TableError: a file that is needed is gone, broken or unsupported.
        ReplicaFileMissing: the replica's own files that would prove something are gone.
    """
    referrers: dict[str, str] = {}
    try:
        metadata_version = target_metadata_version(context.mapping, target)
        for snapshot in metadata.snapshots:
            below = [*snapshot.manifests, *filter(None, [snapshot.manifest_list])]
            referrers |= dict.fromkeys(below, format_referrer("the metadata.json", uri))
        reached = _reached_lists(context, metadata, replica_metadata, metadata_version)
        path_bearing, manifests = _list_metadata(
            context, table, metadata, replica_metadata, reached, metadata_version, referrers
        )
        content = list_content(context, table, uri, target, manifests)
        local: dict[str, int] = {}  # statistics that are there
        statistics = content_rows(context, table, _new_statistics(context, table, metadata, replica_metadata), local)
        named = listing.concat_files([listing.rows(table, METADATA, [(uri, target, -1)]), *path_bearing, statistics])
        require_outside_replicas(context, uri, named, local)
        return listing.distinct(listing.concat_files([named, content]))
    except TableError as error:
        raise add_referrer(error, referrers) from error


def _list_metadata(
    context: RegionContext,
    table: str,
    metadata: TableMetadata,
    replica_metadata: TableMetadata | None,
    reached: dict[int, str],
    metadata_version: MetadataVersion,
    referrers: dict[str, str],
) -> tuple[list[pa.Table], dict[str, int]]:
    """Return rows of a table's manifest lists and manifests, and the new manifests with their lengths by the list.

    Args:
        reached: by snapshot id, the lists that the replica's head has.
        referrers: takes what names each manifest.
    """
    new_snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in reached]
    proven: dict[str, LocalizedFile] = {}
    if replica_metadata:
        proven = _reusable_manifests(context, metadata, new_snapshots, reached, replica_metadata, metadata_version)
    named_lists = (snapshot.manifest_list for snapshot in new_snapshots)
    lists = list(dict.fromkeys(uri for uri in named_lists if uri is not None))
    inline = list(dict.fromkeys(path for snapshot in new_snapshots for path in snapshot.manifests))
    listed = {manifest.path: manifest for manifest in read_lists(context, lists, referrers)}
    origins = {path: context.mapping.origin_uri(path) for path in (*listed, *inline)} if proven else {}
    reused = {path: proven[origin] for path, origin in origins.items() if origin in proven}
    manifests = [manifest for path, manifest in listed.items() if path not in reused]
    lengths = {path: -1 for path in inline if path not in reused} | {
        manifest.path: manifest.length for manifest in manifests
    }
    rows = [
        *_proven_rows(table, metadata, reached, reused),
        *_new_rows(context, table, lists, inline, manifests, metadata_version),
    ]
    return rows, lengths


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
    replica_snapshots = replica_metadata.snapshots if replica_metadata else ()
    replica_lists = {
        snapshot.snapshot_id: snapshot.manifest_list for snapshot in replica_snapshots if snapshot.manifest_list
    }
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
            for manifest in read_lists(context, sorted(nearest))
            if _is_usable(context.mapping, manifest.path, metadata_version)
        }
    except SourceGone as error:
        raise ReplicaFileMissing(error.file) from error


def _new_statistics(
    context: RegionContext, table: str, metadata: TableMetadata, replica_metadata: TableMetadata | None
) -> pa.Table:
    """Return path and size of the statistics files that the replica's head doesn't have, and that are there."""
    existing = {(file.path, file.length) for file in replica_metadata.statistics} if replica_metadata else set()
    present = available_statistics(context.objects, metadata.statistics)
    for file in metadata.statistics:
        if file not in present:
            _log.warning("table %s: statistics are left out, their file is missing: %s", table, printable(file.path))
    new = [
        file
        for file in metadata.statistics
        if file in present and (context.mapping.content_uri(file.path), file.length) not in existing
    ]
    schema = pa.schema([("file_path", pa.string()), ("file_size", pa.int64())])
    return pa.table([[file.path for file in new], [file.length for file in new]], schema=schema)
