"""One table of `main`, as its manifests tell: read by sterna itself, without Spark."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from sterna.catalog.model import parse_key
from sterna.errors import TableError
from sterna.registry.mapping import Mapping
from sterna.replica.region import RegionContext
from sterna.services.upkeep import UpkeepRule
from sterna.sync.plan.reading import parsed, read_files, read_metadata
from sterna.upkeep.choose import choose, enough_since, is_small
from sterna.upkeep.model import QUIET, Group, LiveFile, TablePlan
from sterna.upkeep.prices import Prices

if TYPE_CHECKING:
    from sterna.iceberg.manifests.amounts import FileAmount
    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.model import Snapshot, TableMetadata

_DELETED: Final = 2
_MANY_MANIFESTS: Final = 20
_MANIFEST_BYTES: Final = 8 << 20  # Iceberg's own target
_MANY_DELETES: Final = 5
_STARVED_MS: Final = 24 * 3_600_000
STARVED_FILES: Final = 1_000
"""What waits so long, or is so many, is called starved. Files may be older than any snapshot that expiry has left."""


def look(
    context: RegionContext, prices: Prices, table: str, uri: str, rule: UpkeepRule, now_ms: int, parts: int = 1
) -> TablePlan:
    """Look at one table.

    Args:
        context: the region that looks.
        prices: what shipping costs.
        table: key name.
        uri: its metadata.json.
        rule: the table's.
        now_ms: the time, in milliseconds since 1970.
        parts: see `choose`.

    Returns:
        What upkeep finds, before anybody asked what a day may cost.

    Raises:
        TableError: a file is gone, broken or unsupported.
        StoreError, CredentialError: a store can't be used.
    """
    metadata = read_metadata(context, uri)
    home = context.mapping.locate(_written_at(metadata)).location.region
    base = TablePlan(table, metadata.current_snapshot_id, snapshots=len(metadata.snapshots), home=home)
    snapshot = next((each for each in metadata.snapshots if each.snapshot_id == base.snapshot), None)
    if snapshot is None:
        return base
    if snapshot.manifest_list is None:
        return replace(base, left=("its manifests stand inline (format v1): a writer's next commit ends that",))
    manifests = _manifests(context, snapshot.manifest_list)
    entries = _entries(context, metadata, manifests)
    files, left = entries.live()
    groups, lost = _writable(metadata, choose(files, rule, now_ms, parts))
    groups = tuple(_placed(context, prices, table, metadata, home, files, group) for group in groups)
    last = max(entries.newest(), default=0)
    quiet = now_ms - last >= rule.quiet * 1000
    merge_manifests = len(manifests) >= _most_manifests(manifests)
    merge_deletes = quiet and metadata.format_version == 2 and entries.mergeable(home)
    beside = f"{metadata.location.rstrip('/')}/metadata"
    return replace(
        base,
        files=len(files),
        small=sum(is_small(file, rule.target) for file in files),
        delete_files=entries.delete_files,
        manifests=len(manifests),
        groups=groups,
        merge_manifests=merge_manifests,
        merge_deletes=merge_deletes,
        # Rewritten, both are about as large as they were.
        manifests_price=_price(prices, table, beside, sum(item.length for item in manifests) * merge_manifests),
        deletes_price=_price(prices, table, _written_at(metadata), entries.delete_bytes * merge_deletes),
        left=(*left, *lost, *quiet_lines(groups, files, rule.target, now_ms)),
        starved=_starved_regions(groups, files, rule.target, now_ms),
    )


def _manifests(context: RegionContext, uri: str) -> tuple[ManifestFile, ...]:
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    ((_, data),) = read_files(context, {uri: -1})
    return parsed(context, uri, data, read_manifest_list)


def _entries(context: RegionContext, metadata: TableMetadata, manifests: Sequence[ManifestFile]) -> _Entries:
    entries = _Entries(_times(metadata.snapshots), context.mapping)
    by_path = {item.path: item for item in manifests}
    for uri, data in read_files(context, {item.path: item.length for item in manifests}):
        entries.add(by_path[uri], _read(context, uri, data))
    return entries


def _read(context: RegionContext, uri: str, data: bytes) -> tuple[FileAmount, ...]:
    from sterna.iceberg.manifests.amounts import read_amounts

    return parsed(context, uri, data, read_amounts)


def _price(prices: Prices, table: str, place: str, size: int) -> float:
    """Return what shipping costs of files that are written anew at a place."""
    return prices.price(place, prices.shipped(table, place, size))


def _written_at(metadata: TableMetadata) -> str:
    """Return below which URI the table's writers put data files."""
    return (metadata.properties.get("write.data.path") or metadata.location).rstrip("/")


def _most_manifests(manifests: Sequence[ManifestFile]) -> int:
    return max(_MANY_MANIFESTS, 2 * math.ceil(sum(item.length for item in manifests) / _MANIFEST_BYTES))


def _times(snapshots: Iterable[Snapshot]) -> dict[int, int]:
    """Return when each snapshot was written; 0 where it only replaces files, which is no write."""
    return {each.snapshot_id: 0 if each.operation == "replace" else each.timestamp_ms for each in snapshots}


@dataclass
class _Deletes:
    """Files of deletes that may be for any file of a partition: their times, and the rows that they delete."""

    found: list[tuple[int, int]] = field(default_factory=list)

    def since(self, at: int) -> int:
        """Return how many rows those delete that were written at a time or later."""
        self.found.sort()
        rows = [0, *accumulate(rows for _, rows in self.found)]
        return rows[-1] - rows[bisect_left(self.found, (at, 0))]


@dataclass
class _Entries:
    """The live files of a snapshot, taken together from its manifests.

    Args:
        times: by snapshot, when it was written.
        mapping: of the region that looks.
    """

    times: dict[int, int]
    mapping: Mapping
    delete_files: int = 0
    delete_bytes: int = 0
    _data: list[tuple[int, FileAmount, int, int]] = field(default_factory=list)
    _last: dict[tuple[int, str], int] = field(default_factory=dict)
    _for_file: dict[str, int] = field(default_factory=dict)
    _for_partition: dict[tuple[int, str], _Deletes] = field(default_factory=dict)
    _places: list[str] = field(default_factory=list)
    _vectors: set[str] = field(default_factory=set)

    def add(self, manifest: ManifestFile, entries: Iterable[FileAmount]) -> None:
        """Take up a manifest's entries."""
        # A snapshot that has expired is older than those that are left.
        oldest = min((at for at in self.times.values() if at), default=0)
        spec = manifest.partition_spec_id
        for entry in entries:
            by = entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id
            at = self.times.get(by, oldest) if by is not None else oldest
            place = (spec, entry.partition)
            self._last[place] = max(at, self._last.get(place, 0))
            if entry.status == _DELETED:
                continue
            if entry.content == 0:
                self._data.append((spec, entry, at, by or 0))
            else:
                self._add_delete(place, entry, at)

    def _add_delete(self, place: tuple[int, str], entry: FileAmount, at: int) -> None:
        self.delete_files += 1
        self.delete_bytes += entry.size
        self._places.append(entry.path)
        if entry.referenced:
            self._for_file[entry.referenced] = self._for_file.get(entry.referenced, 0) + entry.records
        else:
            self._for_partition.setdefault(place, _Deletes()).found.append((at, entry.records))

    def newest(self) -> Iterable[int]:
        """Return when each partition was written."""
        return self._last.values()

    def mergeable(self, home: str) -> bool:
        """Tell whether files of deletes are worth a rewrite, and lie where that writes."""
        if len(self._places) < _MANY_DELETES:
            return False
        return all(self.mapping.locate(path).location.region == home for path in self._places)

    def live(self) -> tuple[list[LiveFile], tuple[str, ...]]:
        """Return the data files, and what is left alone of them."""
        rows: dict[tuple[int, str], int] = {}
        for spec, entry, _, _ in self._data:
            rows[spec, entry.partition] = rows.get((spec, entry.partition), 0) + entry.records
        # Deletes without a partition are for all files, where others have one.
        everywhere = max((at for (_, name), at in self._last.items() if not name), default=0)
        found, lost = [], 0
        for spec, entry, at, _ in self._data:
            place = (spec, entry.partition)
            try:
                location = self.mapping.locate(entry.path).location
            except TableError:
                lost += 1
                continue
            deletes = self._for_partition.get(place)
            share = deletes.since(at) / max(1, rows[place]) if deletes else 0.0
            share += self._for_file.get(entry.path, 0) / max(1, entry.records)
            found.append(
                LiveFile(
                    path=entry.path,
                    size=entry.size,
                    rows=entry.records,
                    columns=entry.columns,
                    spec_id=spec,
                    partition=entry.partition,
                    region=location.region,
                    location=location.id,
                    deleted=share,
                    at=max(self._last[place], everywhere),
                    written=at,
                )
            )
        return found, (f"{lost} files lie in no location of the registry",) if lost else ()


def _writable(metadata: TableMetadata, groups: Sequence[Group]) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Return the groups that Iceberg can write, and why it can't the others: they cost nothing, and start no Spark."""
    lost = metadata.lost_fields
    files: dict[tuple[str, int], int] = {}
    for group in groups:
        if group.spec_id in lost:
            place = (group.region, group.spec_id)
            files[place] = files.get(place, 0) + group.files
    left = tuple(
        f"{number} files of {region} stay as they are: the columns of their partition fields {', '.join(lost[spec])} "
        "were dropped, and Iceberg writes no such files any more"
        for (region, spec), number in sorted(files.items())
    )
    return tuple(group for group in groups if group.spec_id not in lost), left


def _placed(
    context: RegionContext,
    prices: Prices,
    table: str,
    metadata: TableMetadata,
    home: str,
    files: Sequence[LiveFile],
    group: Group,
) -> Group:
    """Return a group with where its new files go, and what shipping them costs."""
    own = [file for file in files if file.region == group.region]
    into = "" if group.region == home else _folder(context, table, own)
    place = into or _written_at(metadata)
    shipped = prices.shipped(table, place, group.new_bytes)
    return replace(group, into=into, shipped=shipped, price=prices.price(place, shipped))


def _folder(context: RegionContext, table: str, files: Sequence[LiveFile]) -> str:
    """Return the folder in which a region that isn't the table's own has its files."""
    sizes: dict[str, int] = {}
    for file in files:
        sizes[file.location] = sizes.get(file.location, 0) + file.size
    fullest = max(sizes, key=lambda name: (sizes[name], name))
    location = next(each for each in context.registry.locations if each.id == fullest)
    start = len(location.prefix) + 1
    parents = [file.path[start:].split("/")[:-1] for file in files if file.location == fullest]
    common = []
    for names in zip(*parents, strict=False):
        if len(set(names)) > 1 or "=" in names[0]:
            break
        common.append(names[0])
    inside = common or [*(part.replace("/", "_") for part in parse_key(table)), "data"]
    return f"{location.prefix}/{'/'.join(inside)}"


def quiet_lines(groups: Iterable[Group], files: Iterable[LiveFile], target: int, now_ms: int) -> tuple[str, ...]:
    """Say which partitions are written too recently, and which of them have been so for long."""
    waiting = _waiting(groups, files, target)
    return tuple(
        f"{name}: written too recently{_starved(since, sum(group.files for group in some), now_ms)}"
        for name, (since, some) in sorted(waiting.items())
    )


def _starved_regions(groups: Iterable[Group], files: Iterable[LiveFile], target: int, now_ms: int) -> tuple[str, ...]:
    """Return the regions with files of partitions that are called starved."""
    waiting = _waiting(groups, files, target)
    starved = (some for since, some in waiting.values() if _is_starved(since, sum(g.files for g in some), now_ms))
    return tuple(sorted({group.region for some in starved for group in some}))


def _waiting(groups: Iterable[Group], files: Iterable[LiveFile], target: int) -> dict[str, tuple[int, list[Group]]]:
    """Return the groups that were written too recently, by partition, and since when they are enough for a rewrite."""
    by_path = {file.path: file for file in files}
    waiting: dict[str, list[Group]] = {}
    for group in groups:
        if group.when == QUIET:
            waiting.setdefault(group.partition or "the whole table", []).append(group)
    return {
        name: (min(enough_since([by_path[path] for path in group.paths], target) for group in some), some)
        for name, some in waiting.items()
    }


def _is_starved(since: int, files: int, now_ms: int) -> bool:
    return now_ms - since >= _STARVED_MS or files >= STARVED_FILES


def _starved(since: int, files: int, now_ms: int) -> str:
    if not _is_starved(since, files, now_ms):
        return ""
    shown = datetime.fromtimestamp(since / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f", and starved: {files} files wait, enough for a rewrite since {shown} or longer"
