"""The files of one table of `main`, read from its manifests without Spark."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from sterna.config.mapping import Mapping
from sterna.config.near_places import NEAR_FOLDER, folder_uuid, near_places
from sterna.config.sections.maintenance import MaintenanceRule
from sterna.errors import TableError
from sterna.maintenance.tables.bin_packing import eligible_since, is_small, plan_groups
from sterna.maintenance.tables.egress_cost import Prices
from sterna.maintenance.tables.model import TOO_RECENT, Group, LiveFile, TablePlan
from sterna.replication.plan.metadata_reader import parse_avro, read_files, read_lists, read_metadata
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.iceberg.manifests.amounts import FileStats
    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.model import TableMetadata

_STATUS_DELETED: Final = 2
# Folders of `write.object-storage.enabled` since Iceberg 1.7, and before it below the default data path.
_HASHES: Final = re.compile(r"(?:/[01]{4})+(?:/[01]{8})?$|(?<=/data)/[0-9a-f]{8}(?=/|$).*")
_MIN_MANIFESTS_TO_MERGE: Final = 20
_TARGET_MANIFEST_BYTES: Final = 8 << 20  # Iceberg's own target
_MIN_DELETE_FILES_TO_MERGE: Final = 5
_STARVED_MS: Final = 24 * 3_600_000
STARVED_FILES: Final = 1_000
"""A group that waits for `_STARVED_MS`, or has so many files, is starved."""


def inspect_table(
    context: RegionContext, prices: Prices, table: str, uri: str, rule: MaintenanceRule, now_ms: int, parts: int = 1
) -> TablePlan:
    """Plan one table from its metadata and manifests, without a budget.

    Args:
        context: the region that plans.
        prices: of copies to other regions.
        table: key name.
        uri: its metadata.json.
        now_ms: the time, in milliseconds since 1970.
        parts: see `plan_groups`.

    Returns:
        What maintenance would rewrite, whatever it costs.

    Raises:
        TableError: a file is missing, broken or unsupported.
        StoreError, CredentialError: a store can't be used.
    """
    metadata = read_metadata(context, uri)
    home = context.mapping.locate(_data_path(metadata)).location.region
    base = TablePlan(table, metadata.current_snapshot_id, snapshots=len(metadata.snapshots), home=home)
    snapshot = next((candidate for candidate in metadata.snapshots if candidate.snapshot_id == base.snapshot), None)
    if snapshot is None:
        return base
    if snapshot.manifest_list is None:
        return replace(base, left=("its manifests stand inline (format v1): a writer's next commit ends that",))
    manifests = tuple(read_lists(context, [snapshot.manifest_list]))
    snapshot_files = _read_snapshot_files(context, metadata, manifests)
    files, notes = snapshot_files.data_files()
    groups, unwritable = _split_writable(metadata, plan_groups(files, rule, now_ms, parts))
    groups = tuple(_with_destination(context, prices, table, metadata, home, files, group) for group in groups)
    settled = now_ms - snapshot_files.last_written >= rule.min_age * 1000
    manifest_bytes = sum(manifest.length for manifest in manifests)
    merge_manifests = len(manifests) >= max(
        _MIN_MANIFESTS_TO_MERGE, 2 * math.ceil(manifest_bytes / _TARGET_MANIFEST_BYTES)
    )
    merge_deletes = settled and metadata.format_version == 2 and snapshot_files.are_deletes_mergeable(home)
    metadata_path = f"{metadata.location.rstrip('/')}/metadata"
    return replace(
        base,
        files=len(files),
        small=sum(is_small(file, rule.target) for file in files),
        delete_files=snapshot_files.delete_files,
        manifests=len(manifests),
        groups=groups,
        merge_manifests=merge_manifests,
        merge_deletes=merge_deletes,
        # Rewritten, both are about as large as they were.
        manifests_price=_shipping_price(prices, table, metadata_path, manifest_bytes * merge_manifests),
        deletes_price=_shipping_price(prices, table, _data_path(metadata), snapshot_files.delete_bytes * merge_deletes),
        left=(*notes, *unwritable, *recent_write_lines(groups, files, rule.target, now_ms)),
        starved=_starved_regions(groups, files, rule.target, now_ms),
    )


def _read_snapshot_files(
    context: RegionContext, metadata: TableMetadata, manifests: Sequence[ManifestFile]
) -> _SnapshotFiles:
    from sterna.iceberg.manifests.amounts import read_file_stats

    # When each snapshot was written; 0 where it only replaces files, which is no write.
    times = {
        snapshot.snapshot_id: 0 if snapshot.operation == "replace" else snapshot.timestamp_ms
        for snapshot in metadata.snapshots
    }
    snapshot_files = _SnapshotFiles(times, context.mapping)
    by_path = {manifest.path: manifest for manifest in manifests}
    for uri, data in read_files(context, {manifest.path: manifest.length for manifest in manifests}):
        snapshot_files.add(by_path[uri], parse_avro(context, uri, data, read_file_stats))
    return snapshot_files


def _shipping_price(prices: Prices, table: str, target_uri: str, size: int) -> float:
    """Return what it costs to copy rewritten files of a location to other regions."""
    return prices.price(target_uri, prices.shipped_bytes(table, target_uri, size))


def _data_path(metadata: TableMetadata) -> str:
    """Return the URI below which the table's writers put data files."""
    return (metadata.properties.get("write.data.path") or metadata.location).rstrip("/")


@dataclass
class _PartitionDeletes:
    """Files of deletes that may be for any file of a partition: their times, and the rows that they delete."""

    deletes: list[tuple[int, int]] = field(default_factory=list)

    def rows_deleted_since(self, at: int) -> int:
        """Return how many rows those delete that were written at a time or later."""
        self.deletes.sort()
        rows = [0, *accumulate(rows for _, rows in self.deletes)]
        return rows[-1] - rows[bisect_left(self.deletes, (at, 0))]


@dataclass
class _SnapshotFiles:
    """The live files of a snapshot, collected from its manifests.

    Args:
        times: by snapshot, when it was written.
        mapping: of the region that plans.
    """

    times: dict[int, int]
    mapping: Mapping
    delete_files: int = 0
    delete_bytes: int = 0
    _data_entries: list[tuple[int, FileStats, int, int]] = field(default_factory=list)
    _last_written: dict[tuple[int, str], int] = field(default_factory=dict)
    _deleted_rows_by_file: dict[str, int] = field(default_factory=dict)
    _deletes_by_partition: dict[tuple[int, str], _PartitionDeletes] = field(default_factory=dict)
    _delete_paths: list[str] = field(default_factory=list)

    def add(self, manifest: ManifestFile, entries: Iterable[FileStats]) -> None:
        """Add a manifest's entries."""
        # A snapshot that has expired is older than the remaining ones.
        oldest = min((at for at in self.times.values() if at), default=0)
        spec = manifest.partition_spec_id
        for entry in entries:
            snapshot_id = entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id
            at = self.times.get(snapshot_id, oldest) if snapshot_id is not None else oldest
            partition = (spec, entry.partition)
            self._last_written[partition] = max(at, self._last_written.get(partition, 0))
            if entry.status == _STATUS_DELETED:
                continue
            if entry.content == 0:
                self._data_entries.append((spec, entry, at, snapshot_id or 0))
            else:
                self._add_delete(partition, entry, at)

    def _add_delete(self, partition: tuple[int, str], entry: FileStats, at: int) -> None:
        self.delete_files += 1
        self.delete_bytes += entry.size
        self._delete_paths.append(entry.path)
        if entry.referenced_data_file:
            self._deleted_rows_by_file[entry.referenced_data_file] = (
                self._deleted_rows_by_file.get(entry.referenced_data_file, 0) + entry.record_count
            )
        else:
            self._deletes_by_partition.setdefault(partition, _PartitionDeletes()).deletes.append(
                (at, entry.record_count)
            )

    @property
    def last_written(self) -> int:
        """When the last partition was written."""
        return max(self._last_written.values(), default=0)

    def are_deletes_mergeable(self, home: str) -> bool:
        """Return whether delete files are worth a rewrite, and all are stored in the table's home region."""
        if len(self._delete_paths) < _MIN_DELETE_FILES_TO_MERGE:
            return False
        return all(self.mapping.locate(path).location.region == home for path in self._delete_paths)

    def data_files(self) -> tuple[list[LiveFile], tuple[str, ...]]:
        """Return the data files, and notes on those that are skipped."""
        rows: dict[tuple[int, str], int] = {}
        for spec, entry, _, _ in self._data_entries:
            rows[spec, entry.partition] = rows.get((spec, entry.partition), 0) + entry.record_count
        # Deletes without a partition are for all files, where others have one.
        unpartitioned_at = max((at for (_, name), at in self._last_written.items() if not name), default=0)
        files, unlocated = [], 0
        for spec, entry, at, _ in self._data_entries:
            partition = (spec, entry.partition)
            try:
                location = self.mapping.locate(entry.path).location
            except TableError:
                unlocated += 1
                continue
            deletes = self._deletes_by_partition.get(partition)
            deleted_share = deletes.rows_deleted_since(at) / max(1, rows[partition]) if deletes else 0.0
            deleted_share += self._deleted_rows_by_file.get(entry.path, 0) / max(1, entry.record_count)
            files.append(
                LiveFile(
                    path=entry.path,
                    size=entry.size,
                    rows=entry.record_count,
                    column_bytes=entry.column_bytes,
                    spec_id=spec,
                    partition=entry.partition,
                    region=location.region,
                    location=location.id,
                    deleted_ratio=deleted_share,
                    last_changed_ms=max(self._last_written[partition], unpartitioned_at),
                    written_ms=at,
                )
            )
        return files, (f"{unlocated} files are in no location of the registry",) if unlocated else ()


def _split_writable(metadata: TableMetadata, groups: Sequence[Group]) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Return the groups that Iceberg can write, and notes on the others, for which no Spark is started."""
    dropped_columns = metadata.dropped_source_fields
    files: dict[tuple[str, int], int] = {}
    for group in groups:
        if group.spec_id in dropped_columns:
            region_spec = (group.region, group.spec_id)
            files[region_spec] = files.get(region_spec, 0) + group.files
    notes = tuple(
        f"{number} files of {region} stay as they are: the columns of their partition fields "
        f"{', '.join(dropped_columns[spec])} were dropped, and Iceberg writes no such files any more"
        for (region, spec), number in sorted(files.items())
    )
    return tuple(group for group in groups if group.spec_id not in dropped_columns), notes


def _with_destination(
    context: RegionContext,
    prices: Prices,
    table: str,
    metadata: TableMetadata,
    home: str,
    files: Sequence[LiveFile],
    group: Group,
) -> Group:
    """Return a group with the destination of its new files, and the price of copying them."""
    region_files = [file for file in files if file.region == group.region]
    into = "" if group.region == home else _regional_folder(context, metadata, region_files)
    target_uri = into or _data_path(metadata)
    shipped = prices.shipped_bytes(table, target_uri, group.new_bytes)
    return replace(group, into=into, shipped=shipped, price=prices.price(target_uri, shipped))


def _regional_folder(context: RegionContext, metadata: TableMetadata, files: Sequence[LiveFile]) -> str:
    """Return the folder of a table's files in a region that isn't its home; its own in `near` where they have several.

    A common parent of several folders may be that of all tables, where a compacted file would be nobody's.
    """
    sizes: dict[str, int] = {}
    for file in files:
        sizes[file.location] = sizes.get(file.location, 0) + file.size
    largest = max(sizes, key=lambda name: (sizes[name], name))
    prefix = next(candidate for candidate in context.registry.locations if candidate.id == largest).prefix
    folders = sorted({_layout_root(file.path, len(prefix)) for file in files if file.location == largest})
    if len(folders) == 1 and folders != [prefix]:
        return folders[0]
    near_roots = [root for folder in folders if (root := _near_root(folder, len(prefix)))]
    fields = {"table-uuid": metadata.uuid, "location": metadata.location}
    table_uuid = folder_uuid(context.mapping, fields, "table-uuid")
    return near_places(near_roots[0] if near_roots else prefix, table_uuid).data_path


def _layout_root(path: str, start: int) -> str:
    """Return a data file's folder without those of its partition and of Iceberg's object store layout.

    Args:
        start: length of its location's prefix, which is none of these.
    """
    folders = path[start:].split("/")[:-1]
    depth = next((index for index, name in enumerate(folders) if "=" in name), len(folders))
    return path[:start] + _HASHES.sub("", "/".join(folders[:depth]))


def _near_root(folder: str, start: int) -> str:
    """Return what a folder in `near` is below, "" where it is in none; `start` as in `_layout_root`."""
    root, near, _ = folder[start:].partition(f"/{NEAR_FOLDER}/")
    return folder[:start] + root if near else ""


def recent_write_lines(groups: Iterable[Group], files: Iterable[LiveFile], target: int, now_ms: int) -> tuple[str, ...]:
    """Return a line on each partition that was written too recently, with a note where that starves it."""
    waiting = _waiting_groups(groups, files, target)
    return tuple(
        f"{name}: written too recently{_starved_note(since, sum(group.files for group in partition_groups), now_ms)}"
        for name, (since, partition_groups) in sorted(waiting.items())
    )


def _starved_regions(groups: Iterable[Group], files: Iterable[LiveFile], target: int, now_ms: int) -> tuple[str, ...]:
    """Return the regions with files of starved partitions."""
    waiting = _waiting_groups(groups, files, target)
    starved = (
        partition_groups
        for since, partition_groups in waiting.values()
        if _is_starved(since, sum(g.files for g in partition_groups), now_ms)
    )
    return tuple(sorted({group.region for partition_groups in starved for group in partition_groups}))


def _waiting_groups(
    groups: Iterable[Group], files: Iterable[LiveFile], target: int
) -> dict[str, tuple[int, list[Group]]]:
    """Return the groups that were written too recently, by partition, and since when they are enough for a rewrite."""
    by_path = {file.path: file for file in files}
    waiting: dict[str, list[Group]] = {}
    for group in groups:
        if group.when == TOO_RECENT:
            waiting.setdefault(group.partition or "the whole table", []).append(group)
    return {
        name: (
            min(eligible_since([by_path[path] for path in group.paths], target) for group in partition_groups),
            partition_groups,
        )
        for name, partition_groups in waiting.items()
    }


def _is_starved(since: int, files: int, now_ms: int) -> bool:
    return now_ms - since >= _STARVED_MS or files >= STARVED_FILES


def _starved_note(since: int, files: int, now_ms: int) -> str:
    if not _is_starved(since, files, now_ms):
        return ""
    since_text = datetime.fromtimestamp(since / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f", and starved: {files} files wait, enough for a rewrite since {since_text} or longer"
