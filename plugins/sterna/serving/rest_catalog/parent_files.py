"""What a table's snapshot on `main` names, beside what this region serves of it: the dictionary of taking back.

It is built forwards. `main`'s list and manifests are read beside the localized copies that the region serves, row by
row, and each pair is held against the mapping. The inverse function would be wrong: after a promotion with tables two
names on `main` may have one place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import (
    BrokenMetadata,
    ForeignFile,
    ObjectMissing,
    SizeDiffers,
    StaleBase,
    TableError,
    Unsupported,
)
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests import list_rows
from sterna.iceberg.manifests.entry_records import FIRST_ROW_ID, EntryRecord, ManifestRecords
from sterna.iceberg.manifests.list_rows import ListRow, ManifestListRows
from sterna.iceberg.manifests.manifest import read_entries
from sterna.serving.rest_catalog.home_files import read_home_file, read_home_files
from sterna.storage.objects import Objects

FileKey = tuple[str, int | None]
"""A file of an entry: its URI, and where its part of the file begins; deletion vectors share one file."""

_LIST_PLACE = frozenset({list_rows.PATH, list_rows.LENGTH})


@dataclass(frozen=True)
class ParentManifest:
    """A manifest of the parent snapshot.

    Args:
        main: its row on `main`.
        served: the same row as this region serves it.
    """

    main: ListRow
    served: ListRow


@dataclass(frozen=True)
class ParentEntry:
    """A live entry of the parent snapshot, with what it inherits.

    Args:
        main: as `main` has it.
        served: as this region serves it.
        snapshot_id, sequence_number, file_sequence_number, first_row_id: its own, or inherited from its manifest.
    """

    main: EntryRecord
    served: EntryRecord
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None


class ParentFiles:
    """The files of a table's snapshot, by the names that this region serves them by.

    Args:
        objects: reads `main`'s files, wherever they are, and this region's copies.
        version: of the localized files that are served.
        main, served: the snapshot's list on `main`, and its localized copy; None where there is no parent.
        replaced: what was written for an earlier snapshot of the same commit, and which of the client's files it
            replaces.
        is_promoted: whether two files of the table may be served by one name, as after a promotion with tables.

    Raises:
        BrokenMetadata: the one isn't the localized copy of the other.
    """

    def __init__(
        self,
        objects: Objects,
        version: MetadataVersion,
        main: ManifestListRows | None = None,
        served: ManifestListRows | None = None,
        replaced: Mapping[str, str] | None = None,
        is_promoted: bool = False,
    ) -> None:
        self._objects = objects
        self._mapping: RegionMapping = objects.mapping
        self._version = version
        self._replaced = replaced or {}
        self.main_list = main
        self.manifests: dict[str, ParentManifest] = {}
        self.ambiguous: set[str] = set()
        self._is_promoted = is_promoted
        if main is not None and served is not None:
            self._pair_rows(main, served)

    def _pair_rows(self, main: ManifestListRows, served: ManifestListRows) -> None:
        if len(main.rows) != len(served.rows):
            raise served.container.broken(f"{len(served.rows)} manifests, `main`'s list has {len(main.rows)}")
        for main_row, served_row in zip(main.rows, served.rows, strict=True):
            path = served_row.manifest.path
            if _without(main_row.values, _LIST_PLACE) != _without(served_row.values, _LIST_PLACE):
                raise served.container.broken(f"the manifest {path} differs from the one on `main`")
            self._require_copy(main_row.manifest.path, path, served.container.uri)
            if path in self.manifests:
                self.ambiguous.add(path)
            self.manifests[path] = ParentManifest(main_row, served_row)

    def live_entries(self, manifests: Iterable[ParentManifest]) -> Iterator[tuple[ParentManifest, ParentEntry]]:
        """Yield the live entries of manifests, each as `main` has it and as it is served.

        Several manifests are read at once: those of `main` may be far away.

        Raises:
            SizeDiffers: a manifest isn't as long as its list says.
            BrokenMetadata: one is broken, or the one that is served isn't the localized copy of `main`'s.
            ObjectMissing, StoreUnreachable, StoreDenied: one can't be read.
        """
        ordered = list(manifests)
        rows = [row for manifest in ordered for row in (manifest.main, manifest.served)]
        contents = self._read_rows(rows)
        for manifest in ordered:
            main = next(contents)[1]
            is_copy = manifest.served.manifest.path != manifest.main.manifest.path
            served = next(contents)[1] if is_copy else main
            for entry in self._pair_entries(manifest, main, served):
                yield manifest, entry

    def _pair_entries(self, manifest: ParentManifest, main_data: bytes, served_data: bytes) -> Iterator[ParentEntry]:
        served_uri = manifest.served.manifest.path
        main_entries = self._records(main_data, manifest.main.manifest.path).entries()
        served_entries = self._records(served_data, served_uri).entries()
        next_row_id: int | None = manifest.main.values.get(list_rows.FIRST_ROW_ID)
        try:
            for main, served in zip(main_entries, served_entries, strict=True):
                if main.status == ids.DELETED:
                    continue
                self._require_same_file(main, served, served_uri)
                first_row_id = next_row_id
                if next_row_id is not None and main.content == ids.DATA:
                    own: int | None = main.file.get(FIRST_ROW_ID)
                    first_row_id = next_row_id if own is None else own
                    next_row_id += main.record_count if own is None else 0
                yield _with_inherited(main, served, manifest.main, first_row_id)
        except ValueError:
            raise BrokenMetadata("another number of entries than the manifest on `main`", file=served_uri) from None

    def data_files(self, wanted: set[str]) -> dict[str, str]:
        """Return the name on `main` of each wanted data file, by the URI that it is served by.

        The copies here are searched; manifests on `main` are opened only where these name one of the files.

        Args:
            wanted: URIs that this region serves.

        Returns:
            Those that are live in the snapshot, and those that it deleted: a delete may still name one of these, and
            does no harm.

        Raises:
            ForeignFile: two files of `main` are served by one URI.
            SizeDiffers, BrokenMetadata, ObjectMissing, StoreUnreachable, StoreDenied: as `live_entries`.
        """
        names: dict[str, str] = {}
        deleted: dict[str, str] = {}
        for path, data in self._read_rows(self._rows_naming(wanted)):
            entries = read_entries(data, path, self._mapping.region.limits)
            columns = (entries.column(name).to_pylist() for name in ("status", "file_path"))
            for status, main in zip(*columns, strict=True):
                served = self._mapping.content_uri_or_original(main)
                if served not in wanted:
                    continue
                if (deleted if status == ids.DELETED else names).setdefault(served, main) != main:
                    raise ForeignFile("two files on `main` are served by this name", file=served)
        return deleted | names

    def _rows_naming(self, wanted: set[str]) -> list[ListRow]:
        """Return the rows on `main` of the manifests that name one of the wanted data files, by what is served of them.

        The search ends before the first of these is read: a reader that holds part of the memory budget must not wait
        for more of it.
        """
        by_path = {path: row for path, row in self.manifests.items() if row.main.manifest.content == ids.DATA}
        rows: list[ListRow] = []
        live: set[str] = set()
        for path, data in self._read_rows([manifest.served for manifest in by_path.values()]):
            entries = read_entries(data, path, self._mapping.region.limits)
            columns = (entries.column(name).to_pylist() for name in ("status", "file_path"))
            named = [(status, uri) for status, uri in zip(*columns, strict=True) if uri in wanted]
            if named:
                rows.append(by_path[path].main)
            live.update(uri for status, uri in named if status != ids.DELETED)
            if len(live) == len(wanted) and not self._is_promoted:
                break
        return rows

    def _parse(self, data: bytes, uri: str) -> object:
        return read_entries(data, uri, self._mapping.region.limits)

    def _records(self, data: bytes, uri: str) -> ManifestRecords:
        return ManifestRecords(data, uri, self._mapping.region.limits)

    def _read_rows(self, rows: Iterable[ListRow]) -> Iterator[tuple[str, bytes]]:
        """Yield the URI and the content of each manifest, each once, in order."""
        lengths = {row.manifest.path: row.manifest.length for row in rows}
        for path, data in read_home_files(self._objects, lengths, self._parse):
            yield path, _require_length(data, path, lengths[path])

    def _require_same_file(self, main: EntryRecord, served: EntryRecord, served_uri: str) -> None:
        if main.content == ids.POSITION_DELETES:
            self._require_copy(main.path, served.path, served_uri)
            is_copy = True
        else:
            is_copy = served.path == self._mapping.content_uri(main.path) and served.size == main.size
        referenced = main.referenced_data_file and self._mapping.content_uri(main.referenced_data_file)
        if (
            not is_copy
            or referenced != served.referenced_data_file
            or (main.status, main.content, main.offset) != (served.status, served.content, served.offset)
        ):
            raise BrokenMetadata(f"the entry of {served.path} isn't the one on `main`", file=served_uri)

    def _require_copy(self, main: str, served: str, referrer: str) -> None:
        """Require that a path-bearing file that is served is the localized copy of one on `main`."""
        if main in self._replaced:
            if served == self._replaced[main]:
                return
            raise BrokenMetadata(f"{served} isn't the file that {main} was written for", file=referrer)
        mapping = self._mapping
        places: tuple[Callable[[], str], ...] = (
            lambda: main if mapping.is_local(main) else "",
            lambda: mapping.localized_uri(main, self._version),
            lambda: mapping.origin_uri(main) if mapping.is_local(mapping.origin_uri(main)) else "",
        )
        if not any(served == _place(place) for place in places):
            raise BrokenMetadata(f"{served} has no place that a localized copy of {main} may have", file=referrer)


def open_parent(
    objects: Objects, metadata: Mapping[str, Any], snapshot_id: int | None, version: MetadataVersion
) -> ParentFiles:
    """Open the files of a snapshot.

    Args:
        metadata: the table's on `main`.
        snapshot_id: the snapshot; None for none, so that nothing can be carried over.
        version: of the localized files that are served.

    Raises:
        StaleBase: `main` has no such snapshot, or this region doesn't serve it.
        Unsupported: the snapshot has no manifest list, as early ones of format v1.
        BrokenMetadata: the lists are broken, or the one isn't the localized copy of the other.
        ObjectMissing, StoreUnreachable, StoreDenied: `main`'s list can't be read.
    """
    if snapshot_id is None:
        return ParentFiles(objects, version)
    uri = _list_uri(metadata, snapshot_id)
    served = _served_list(objects, uri, _place(lambda: objects.mapping.localized_uri(uri, version)))
    is_promoted = _is_promoted(objects.mapping, metadata)

    def open_pair(data: bytes) -> ParentFiles:
        return _pair_lists(objects, version, (uri, data), served or (uri, data), {}, is_promoted)

    return read_home_file(objects, uri, open_pair)


def open_replaced(
    objects: Objects,
    metadata: Mapping[str, Any],
    main_list: str,
    client_list: str,
    replaced: Mapping[str, str],
    version: MetadataVersion,
) -> ParentFiles:
    """Open the files of a snapshot that the same commit adds before the one that they are the parent's of.

    Args:
        metadata: the table's on `main`.
        main_list: what was written for it.
        client_list: the client's own, which that replaces.
        replaced: what was written for it, and which of the client's files that replaces.
        version: of the localized files that are served.

    Raises:
        BrokenMetadata: the client's files aren't any more what they were when they were taken back.
        ObjectMissing, StoreUnreachable, StoreDenied: a list can't be read.
    """
    main, served = (main_list, objects.read(main_list)), (client_list, objects.read(client_list))
    return _pair_lists(objects, version, main, served, replaced, _is_promoted(objects.mapping, metadata))


def _pair_lists(
    objects: Objects,
    version: MetadataVersion,
    main: tuple[str, bytes],
    served: tuple[str, bytes],
    replaced: Mapping[str, str],
    is_promoted: bool,
) -> ParentFiles:
    limits = objects.mapping.region.limits
    lists = [ManifestListRows(data, uri, limits) for uri, data in (main, served)]
    return ParentFiles(objects, version, lists[0], lists[1], replaced, is_promoted)


def _is_promoted(mapping: RegionMapping, metadata: Mapping[str, Any]) -> bool:
    """Return whether `main` names something of a table below a replica root: two names may have one place here then."""
    uris = [metadata.get("location"), *(one.get("manifest-list") for one in metadata.get("snapshots") or [])]
    return any(mapping.below_replica_root(uri) for uri in uris if isinstance(uri, str))


def _list_uri(metadata: Mapping[str, Any], snapshot_id: int) -> str:
    snapshots = metadata.get("snapshots") or []
    snapshot = next((snapshot for snapshot in snapshots if snapshot.get("snapshot-id") == snapshot_id), None)
    if snapshot is None:
        raise StaleBase(f"`main` has no snapshot {snapshot_id}, which the commit's snapshot has as its parent")
    uri = snapshot.get("manifest-list")
    if not isinstance(uri, str):
        raise Unsupported(f"the snapshot {snapshot_id} has no manifest list, as in format v1", file=str(uri or ""))
    return uri


def _served_list(objects: Objects, main: str, localized: str) -> tuple[str, bytes] | None:
    """Return a list as this region serves it: its localized copy; None: the one on `main`, all of whose files are
    local.

    Args:
        main: the list on `main`.
        localized: the place of its localized copy; "" where it has none.
    """
    if localized:
        with suppress(ObjectMissing):
            return localized, objects.read(localized)
    if objects.mapping.is_local(main):
        return None
    raise StaleBase("this region doesn't serve the snapshot that the commit's snapshot has as its parent", file=main)


def _require_length(data: bytes, uri: str, length: int) -> bytes:
    """Return a manifest's content, which has the length that its list says."""
    if len(data) != length:
        raise SizeDiffers(f"the manifest has {len(data)} bytes, its list says {length}", file=uri)
    return data


def _place(place: Callable[[], str]) -> str:
    try:
        return place()
    except TableError:
        return ""


def _with_inherited(main: EntryRecord, served: EntryRecord, row: ListRow, first_row_id: int | None) -> ParentEntry:
    inherited = row.sequence_number if main.status == ids.ADDED_OR_EXISTING[1] or row.sequence_number == 0 else None
    return ParentEntry(
        main,
        served,
        row.manifest.added_snapshot_id if main.snapshot_id is None else main.snapshot_id,
        inherited if main.sequence_number is None else main.sequence_number,
        inherited if main.file_sequence_number is None else main.file_sequence_number,
        first_row_id,
    )


def _without(values: Mapping[int, Any], field_ids: frozenset[int]) -> dict[int, Any]:
    return {field_id: value for field_id, value in values.items() if field_id not in field_ids and value is not None}
