"""What one table's new version needs here: its path-bearing files to localize, and its content files to copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sterna.errors import SourceGone, TableError, printable
from sterna.iceberg.files import Written
from sterna.registry.edition import Edition
from sterna.registry.mapping import Mapping
from sterna.replica import file_list as listing
from sterna.replica.editions import edition_at
from sterna.replica.file_list import (
    DELETE_MANIFEST,
    INLINE_MANIFEST,
    MANIFEST,
    MANIFEST_LIST,
    METADATA,
    PROVEN,
    VIEW_METADATA,
)
from sterna.replica.named_by import namer, naming
from sterna.replica.region import RegionContext
from sterna.replica.wanted import present_statistics
from sterna.sync.plan.in_parts import Dealing, are_many
from sterna.sync.plan.one_pass import DELETED, content_rows, named_by_manifest, none_below, prove_local, read_manifests
from sterna.sync.plan.reading import parsed, read_files

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.table import Snapshot, TableMetadata


_log = logging.getLogger(__name__)


class ReplicaLost(Exception):
    """A file of the replica itself is gone, so that what it would prove has to be looked for."""


class LeftToLargeLane(Exception):
    """A table has so many new files that the large lane is to list them.

    Args:
        manifests: how many of them are new.
        bytes: of these.
    """

    def __init__(self, manifests: int, bytes: int) -> None:
        super().__init__(manifests, bytes)
        self.bytes = bytes
        self.reason = f"the large lane lists its files: {manifests} new manifests, which have so many bytes"


def table_files(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    metadata: TableMetadata,
    here: TableMetadata | None,
    *,
    prove: bool = True,
    dealing: Dealing | None = None,
    shown: bool = False,
    leaves: Callable[[int], bool] = lambda manifests: False,
) -> pa.Table:
    """List what a table needs here, minus what the replica's head proves.

    A manifest that the replica's head reaches proves its live entries; the lists of snapshots that the head's metadata
    has are reached by it. Only lists and manifests that it doesn't reach are read.

    Args:
        context: the region.
        table: key name.
        uri: its metadata.json on `main`.
        target: where the localized one goes.
        metadata: what it says, without the history that the replica doesn't keep.
        here: what the replica's current metadata.json of the same table says, None when there is none.
        prove: see that files of this region that stay in place are there.
        dealing: lists the content files in parts, where there are very many.
        shown: readers have an earlier version of the table.
        leaves: tells, where there are very many content files, whether so many new manifests are left to the large
            lane.

    Returns:
        Rows as in `sterna.replica.file_list`: content files that are foreign, path-bearing files that are new, and,
        with batch `PROVEN`, the lists and manifests whose localized copies the new version takes over.

    Raises:
        TableError: a file that is needed is gone, broken or unsupported, or a local one isn't what its metadata says.
        ReplicaLost: the replica's own files that would prove something are gone.
        LeftToLargeLane: the large lane is to list them.
    """
    names: dict[str, str] = {}
    try:
        return _table_files(
            context, table, uri, target, metadata, here, names, prove=prove, dealing=dealing, shown=shown, leaves=leaves
        )
    except TableError as error:
        raise naming(error, names) from error


def _table_files(
    context: RegionContext,
    table: str,
    uri: str,
    target: str,
    metadata: TableMetadata,
    here: TableMetadata | None,
    names: dict[str, str],
    *,
    prove: bool,
    dealing: Dealing | None,
    shown: bool,
    leaves: Callable[[int], bool],
) -> pa.Table:
    """As `table_files`; what names each list and manifest goes into `names`."""
    edition = edition_at(context.mapping, target)
    for snapshot in metadata.snapshots:
        below = [*snapshot.manifests, *filter(None, [snapshot.manifest_list])]
        names |= dict.fromkeys(below, namer("the metadata.json", uri))
    reached = _reached_lists(context, metadata, here, edition)
    fresh = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in reached]
    proven = _known_manifests(context, metadata, fresh, reached, here, edition) if here else {}
    lists = list(dict.fromkeys(snapshot.manifest_list for snapshot in fresh if snapshot.manifest_list is not None))
    inline = list(dict.fromkeys(path for snapshot in fresh for path in snapshot.manifests))
    named = {item.path: item for item in _read_lists(context, lists, names)}
    origins = {path: context.mapping.source(path) for path in (*named, *inline)} if proven else {}
    known = {path: proven[origin] for path, origin in origins.items() if origin in proven}
    manifests = [item for path, item in named.items() if path not in known]
    lengths = {path: -1 for path in inline if path not in known} | {item.path: item.length for item in manifests}
    dealt = dealing if are_many(lengths.values()) else None
    if dealt is not None and leaves(len(lengths)):
        raise LeftToLargeLane(len(lengths), sum(max(length, 1) for length in lengths.values()))
    local: dict[str, int] = {}
    parts = [
        listing.rows(table, METADATA, [(uri, target, -1)]),
        *_proven(table, metadata, reached, known),
        *_new(context, table, lists, inline, manifests, edition),
        content_rows(context, table, _statistics(context, table, metadata, here), local),
    ]
    if dealt is not None:
        parts.append(dealt.scan(context, table, uri, target, lengths, shown=shown))
    else:
        parts += read_manifests(context, table, lengths, local, edition)
    files = listing.joined(parts)
    with named_by_manifest(context, () if dealt else lengths):
        none_below(context, uri, files, local)
        if prove:
            prove_local(context, local)
    return listing.distinct(files)


def reached_content(context: RegionContext, here: TableMetadata, targets: set[str]) -> set[str]:
    """Return those of some content files that a version of the replica's own has; all of them where its files don't
    tell.

    Args:
        context: the region.
        here: what the replica's metadata.json says.
        targets: URIs below the replica root.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from sterna.iceberg.manifests.manifest import read_entries

    found = targets & {item.path for item in here.statistics}
    wanted = pa.array(sorted(targets), pa.string())
    try:
        lists = {snapshot.manifest_list for snapshot in here.snapshots if snapshot.manifest_list}
        manifests = {path for snapshot in here.snapshots for path in snapshot.manifests}
        manifests |= {item.path for item in _read_lists(context, sorted(lists))}
        for uri, data in read_files(context, dict.fromkeys(sorted(manifests), -1)):
            entries = parsed(context, uri, data, read_entries)
            live = entries.filter(pc.not_equal(entries.column("status"), DELETED)).column("file_path")
            found |= set(live.filter(pc.is_in(live, wanted)).to_pylist())
    except TableError:
        return targets
    return found


def _proven(table: str, metadata: TableMetadata, reached: dict[int, str], known: dict[str, Written]) -> list[pa.Table]:
    """Return rows of the lists and manifests whose localized copies the new version takes over."""
    lists = [
        (item.manifest_list, reached[item.snapshot_id])
        for item in metadata.snapshots
        if item.manifest_list is not None and item.snapshot_id in reached
    ]
    return [
        listing.rows(table, MANIFEST_LIST, [(old, new, -1) for old, new in lists], PROVEN),
        listing.rows(table, MANIFEST, [(path, written.uri, written.length) for path, written in known.items()], PROVEN),
    ]


def _new(
    context: RegionContext,
    table: str,
    lists: Sequence[str],
    inline: Sequence[str],
    manifests: Sequence[ManifestFile],
    edition: Edition,
) -> list[pa.Table]:
    """Return rows of the lists and manifests that are to be localized."""
    localized = partial(context.mapping.localized, edition=edition)
    parts = [
        listing.rows(table, MANIFEST_LIST, [(path, localized(path), -1) for path in lists]),
        listing.rows(table, INLINE_MANIFEST, [(path, localized(path), -1) for path in inline]),
    ]
    for content, role in ((0, MANIFEST), (1, DELETE_MANIFEST)):
        parts.append(
            listing.rows(
                table,
                role,
                [(item.path, localized(item.path), item.length) for item in manifests if item.content == content],
            )
        )
    return parts


def view_files(table: str, uri: str, target: str) -> pa.Table:
    """List what a view needs here: its metadata.json alone."""
    return listing.rows(table, VIEW_METADATA, [(uri, target, -1)])


def _reached_lists(
    context: RegionContext, metadata: TableMetadata, here: TableMetadata | None, edition: Edition
) -> dict[int, str]:
    """Return, by snapshot id, the replica's manifest list of every snapshot that its head has already."""
    mine = (
        {snapshot.snapshot_id: snapshot.manifest_list for snapshot in here.snapshots if snapshot.manifest_list}
        if here
        else {}
    )
    return {
        snapshot.snapshot_id: mine[snapshot.snapshot_id]
        for snapshot in metadata.snapshots
        if snapshot.manifest_list is not None
        and snapshot.snapshot_id in mine
        and _same(context, mine[snapshot.snapshot_id], snapshot.manifest_list, edition)
    }


def _same(context: RegionContext, mine: str, theirs: str, edition: Edition) -> bool:
    """Tell whether a list of the replica is what another one on `main` has become here, or was born as the same."""
    mapping = context.mapping
    return mine == theirs or (_usable(mapping, mine, edition) and mapping.source(mine) == mapping.source(theirs))


def _usable(mapping: Mapping, mine: str, edition: Edition) -> bool:
    """Tell whether a list or manifest of the replica is no other edition's."""
    found = mapping.edition(mine)
    return found is None or found.folder == edition.folder


def _known_manifests(
    context: RegionContext,
    metadata: TableMetadata,
    fresh: Sequence[Snapshot],
    reached: dict[int, str],
    here: TableMetadata,
    edition: Edition,
) -> dict[str, Written]:
    """Return the manifests, by their origins, that the replica's own lists nearest to the new snapshots name, and
    its newest one.
    """
    if not fresh:
        return {}
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    nearest: set[str] = set()
    for snapshot in fresh:
        ancestor = snapshot.parent_id
        while ancestor is not None and ancestor not in reached:
            ancestor = parents.pop(ancestor, None)  # each ancestor is passed once: the way on from it has been found
        if ancestor is not None:
            nearest.add(reached[ancestor])
    # Also where no snapshot has stayed: what is committed through Nessie's Iceberg REST has no history.
    nearest |= {
        item.manifest_list
        for item in here.snapshots
        if item.snapshot_id == here.current_snapshot_id and item.manifest_list
    }
    try:
        return {
            context.mapping.source(item.path): Written(item.path, item.length)
            for item in _read_lists(context, sorted(nearest))
            if _usable(context.mapping, item.path, edition)
        }
    except SourceGone as error:
        raise ReplicaLost(error.file) from error


def _read_lists(
    context: RegionContext, uris: Sequence[str], names: dict[str, str] | None = None
) -> Iterable[ManifestFile]:
    """Yield what manifest lists name; which of them names each goes into `names`."""
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    for uri, data in read_files(context, dict.fromkeys(uris, -1)):
        items = parsed(context, uri, data, read_manifest_list)
        if names is not None:
            by = namer("the manifest list", uri)
            for item in items:
                names.setdefault(item.path, by)
        yield from items


def _statistics(context: RegionContext, table: str, metadata: TableMetadata, here: TableMetadata | None) -> pa.Table:
    """Return path and size of the statistics files that the replica's head doesn't have, and that are there."""
    import pyarrow as pa

    had = {(item.path, item.length) for item in here.statistics} if here else set()
    present = present_statistics(context.objects, metadata.statistics)
    for item in metadata.statistics:
        if item not in present:
            _log.warning("table %s: statistics are left out, their file is missing: %s", table, printable(item.path))
    new = [
        item
        for item in metadata.statistics
        if item in present and (context.mapping.content(item.path), item.length) not in had
    ]
    paths, sizes = (
        pa.array([item.path for item in new], pa.string()),
        pa.array([item.length for item in new], pa.int64()),
    )
    return pa.table({"file_path": paths, "file_size": sizes})
