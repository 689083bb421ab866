"""A snapshot that a client wrote against this region's view of a table, taken back to `main`'s own names.

`main` never names a manifest or a list that a client wrote: clients delete their own. The list is built of `main`'s own
rows for the manifests that are carried over, and of the client's new ones, written again with `main`'s names in them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import BadUpdate, ForeignFile, StaleBase, StoreUnreachable
from sterna.iceberg.avro.by_field_id import Values
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests import list_rows
from sterna.iceberg.manifests.entry import Entry, UriMapping, localize_entry
from sterna.iceberg.manifests.entry_records import EntryRecord
from sterna.iceberg.manifests.list_rows import ListRow, ManifestListRows
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.serving.rest_catalog.added_deletes import referenced_files, write_deletes
from sterna.serving.rest_catalog.carried_entries import CarriedEntries
from sterna.serving.rest_catalog.client_files import ClientFiles, client_fault
from sterna.serving.rest_catalog.new_manifests import (
    ADDED,
    NamedFiles,
    estimate_memory,
    inspect_manifest,
    open_manifest,
)
from sterna.serving.rest_catalog.parent_files import ParentFiles, ParentManifest, open_parent, open_replaced
from sterna.serving.rest_catalog.row_ids import require_row_ids
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims, read_claims
from sterna.storage.objects import Objects


@dataclass(frozen=True)
class TakenBack:
    """A snapshot with `main`'s names.

    Args:
        snapshot: the specification's JSON, with the list that was written.
        client_list: the client's list, which that replaces.
        replaced: the URI of all that was written, and which of the client's files it replaces: garbage, unless `main`
            comes to name the list.
    """

    snapshot: dict[str, Any]
    client_list: str
    replaced: Mapping[str, str]


def take_back_snapshot(
    objects: Objects,
    mapping: RegionMapping,
    main_metadata: Mapping[str, Any],
    snapshot: Mapping[str, Any],
    roots: Iterable[str],
    folder: str,
    *,
    version: MetadataVersion | None = None,
    earlier: Sequence[TakenBack] = (),
) -> TakenBack:
    """Take a client's snapshot back to `main`'s names, and write the manifests and the list that `main` is to name.

    Args:
        objects: reads and writes; its mapping is that of this region.
        mapping: of this region.
        main_metadata: the table's on `main`, at which the commit is aimed.
        snapshot: as the client's update `add-snapshot` has it.
        roots: folders below which this region's clients may have written files of the table, as `write_roots` returns
            them.
        folder: URI below which no client may write or delete: all that is written lies there, under fresh names.
        version: of the localized files that the client read, `Mapping.metadata_version` of the metadata.json that is
            served; None: of a table whose localized files were never rewritten.
        earlier: the snapshots that the same commit adds before, taken back: one of them may be the parent.

    Raises:
        ForeignFile: a file is neither the parent snapshot's nor new in the table's places.
        BadUpdate: a file is missing or broken; or the snapshot, its list or a manifest says what isn't so.
        StaleBase: `main` lacks the parent snapshot, or this region doesn't serve it; or the client read localized files
            that were written again since.
        TableError: the parent's own files are broken, or not what this region serves.
        StoreUnreachable, StoreDenied, ObjectMissing: a file can't be read or written.
    """
    claims = read_claims(snapshot, main_metadata)
    client = ClientFiles(objects, roots)
    client.require_place(claims.manifest_list)
    version = version or current_metadata_version(mapping)
    parent = _open_parent(objects, main_metadata, claims, version, earlier)
    open_source = partial(open_parent, objects, main_metadata, claims.source_id, version)
    with client_fault(claims.manifest_list):
        rows = ManifestListRows(client.read(claims.manifest_list), claims.manifest_list, mapping.region.limits)
    _require_current(mapping, version, (row.manifest.path for row in rows.rows))
    writer = _SnapshotWriter(objects, client, parent, open_source, claims, rows, folder.rstrip("/"), version)
    return writer.write(snapshot)


def _require_current(mapping: RegionMapping, version: MetadataVersion, uris: Iterable[str]) -> None:
    """See that a client names no localized file but of the version that is served: it loads the table again then.

    Raises:
        StaleBase: it read the table before its localized files were written again.
    """
    for uri in uris:
        named = mapping.metadata_version(uri)
        if named is not None and named != version:
            raise StaleBase("the table's localized files were written again since the client read it", file=uri)


def _open_parent(
    objects: Objects,
    main_metadata: Mapping[str, Any],
    claims: SnapshotClaims,
    version: MetadataVersion,
    earlier: Sequence[TakenBack],
) -> ParentFiles:
    taken = next((taken for taken in earlier if taken.snapshot["snapshot-id"] == claims.parent_id), None)
    if taken is None:
        return open_parent(objects, main_metadata, claims.parent_id, version)
    replaced = {main: client for before in earlier for main, client in before.replaced.items()}
    with client_fault(taken.client_list):
        main_list = taken.snapshot["manifest-list"]
        return open_replaced(objects, main_metadata, main_list, taken.client_list, replaced, version)


class _SnapshotWriter:
    """Takes one snapshot back.

    Args:
        client: the client's files.
        parent: the parent snapshot's.
        open_source: opens those of the snapshot whose files are added once more.
        claims: what the client says of its snapshot.
        client_list: the client's manifest list.
        folder: takes what is written.
        version: of the localized files that are served.
    """

    def __init__(
        self,
        objects: Objects,
        client: ClientFiles,
        parent: ParentFiles,
        open_source: Callable[[], ParentFiles],
        claims: SnapshotClaims,
        client_list: ManifestListRows,
        folder: str,
        version: MetadataVersion,
    ) -> None:
        self._objects = objects
        self._version = version
        self._limits = objects.mapping.region.limits
        self._client = client
        self._parent = parent
        self._open_source = open_source
        self._claims = claims
        self._list = client_list
        self._folder = folder
        self._replaced: dict[str, str] = {}

    def write(self, snapshot: Mapping[str, Any]) -> TakenBack:
        """Write the files of the snapshot, and return it with its new list."""
        carried = self._match_rows()
        require_row_ids(self._list, carried, self._claims)
        new_rows = [row for row in self._list.rows if row.manifest.path not in carried]
        uri = self._claims.manifest_list
        memory_bytes = estimate_memory(new_rows)
        with client_fault(uri):
            self._limits.check("plan_bytes", memory_bytes, "bytes of memory for a commit's new manifests", uri)
        with self._objects.reserve_commit_memory(memory_bytes):
            manifests = self._write_manifests(new_rows, carried)
        written = self._write_list(carried, manifests)
        return TakenBack({**snapshot, "manifest-list": written}, uri, self._replaced)

    def _write_manifests(
        self, rows: Sequence[ListRow], carried: Mapping[str, ParentManifest]
    ) -> dict[str, LocalizedFile]:
        files = NamedFiles()
        for row in rows:
            inspect_manifest(self._client, row, self._claims, self._limits, files)
        _require_current(self._objects.mapping, self._version, (uri for uri, _ in files.carried))
        self._client.require_present(files.added)
        replaced = [manifest for path, manifest in self._parent.manifests.items() if path not in carried]
        entries = CarriedEntries(self._parent, replaced, files.carried)
        readded = self._readded_entries(files)
        mapping = self._map_files(files)

        def replace(entry: EntryRecord, row: ListRow) -> Values:
            if entry.status != ADDED:
                return entries.take(entry, row.manifest.partition_spec_id, self._claims)
            if readded is not None and (entry.path, entry.offset) in files.readded:
                return readded.take(entry, row.manifest.partition_spec_id, self._claims)
            return _changed_values(entry, mapping, row.manifest.path)

        return {row.manifest.path: self._write_manifest(row, number, replace) for number, row in enumerate(rows)}

    def _readded_entries(self, files: NamedFiles) -> CarriedEntries | None:
        if not files.readded:
            return None
        source = self._open_source()
        added = [
            one for one in source.manifests.values() if one.main.manifest.added_snapshot_id == self._claims.source_id
        ]
        return CarriedEntries(source, added, files.readded)

    def _match_rows(self) -> dict[str, ParentManifest]:
        """Return the manifests of the parent snapshot that the client's list carries over."""
        carried: dict[str, ParentManifest] = {}
        paths: set[str] = set()
        for row in self._list.rows:
            path = row.manifest.path
            if path in paths:
                raise BadUpdate("the list names a manifest twice", file=path)
            paths.add(path)
            manifest = self._parent.manifests.get(path)
            if manifest is None:
                continue
            if path in self._parent.ambiguous:
                raise ForeignFile("two manifests on `main` are served by this name", file=path)
            if differing := _differing_field(row, manifest.served):
                raise BadUpdate(f"the list carries a manifest over with another field {differing}", file=path)
            carried[path] = manifest
        return carried

    def _map_files(self, files: NamedFiles) -> UriMapping:
        """Write the new delete files that name files of `main` again, and return how URIs in manifests are mapped."""
        wanted = referenced_files(self._client, files, self._limits) - files.added_data
        names = self._parent.data_files(wanted) if wanted else {}

        def map_content(uri: str) -> str:
            if uri in files.added:
                return uri
            if uri not in names:
                raise ForeignFile("a delete names a data file that isn't live in the parent snapshot", file=uri)
            return names[uri]

        def put(ending: str, data: bytes, client_file: str) -> LocalizedFile:
            return self._put(f"{uuid.uuid4()}{ending}", data, client_file)

        deletes = write_deletes(self._client, files.added_deletes, map_content, self._limits, put)
        return UriMapping(map_content, deletes, map_content, map_content)

    def _write_manifest(
        self, row: ListRow, number: int, replace: Callable[[EntryRecord, ListRow], Values]
    ) -> LocalizedFile:
        uri = row.manifest.path
        records = open_manifest(self._client, row, self._limits)
        with client_fault(uri):
            data = records.with_files(lambda entry: replace(entry, row))
        return self._put(f"{uuid.uuid4()}-m{number}.avro", records.container.data if data is None else data, uri)

    def _write_list(self, carried: Mapping[str, ParentManifest], manifests: Mapping[str, LocalizedFile]) -> str:
        encoded: list[bytes] = []
        with client_fault(self._claims.manifest_list):
            for row in self._list.rows:
                manifest = carried.get(row.manifest.path)
                if manifest is None or self._parent.main_list is None:
                    written = manifests[row.manifest.path]
                    changes = {list_rows.PATH: written.uri, list_rows.LENGTH: written.length}
                    encoded.append(self._list.encode(row, self._list, changes))
                else:
                    row_id = row.values.get(list_rows.FIRST_ROW_ID)
                    is_new = row_id is not None and manifest.main.values.get(list_rows.FIRST_ROW_ID) is None
                    changes = {list_rows.FIRST_ROW_ID: row_id} if is_new else {}
                    encoded.append(self._list.encode(manifest.main, self._parent.main_list, changes))
            data = self._list.with_rows(encoded)
        return self._put(f"snap-{self._claims.snapshot_id}-{uuid.uuid4()}.avro", data, self._claims.manifest_list).uri

    def _put(self, name: str, data: bytes, client_file: str) -> LocalizedFile:
        uri = f"{self._folder}/{name}"
        self._replaced[uri] = client_file
        if self._objects.write_new(uri, data, assume_absent=True) != len(data):
            raise StoreUnreachable("another object has the fresh name of a file that was to be written", file=uri)
        return LocalizedFile(uri, len(data))


def _differing_field(row: ListRow, served: ListRow) -> int | None:
    """Return a field in which a row differs from the one that is served; row ids may be filled in."""
    for field_id in sorted(row.values.keys() | served.values.keys()):
        value, other = row.values.get(field_id), served.values.get(field_id)
        if value != other and not (field_id == list_rows.FIRST_ROW_ID and other is None):
            return field_id
    return None


def _changed_values(entry: EntryRecord, mapping: UriMapping, uri: str) -> Values:
    """Return what taking back changes in the file of an entry that the client added."""
    bounds = [_path_bound(entry, field_id) for field_id in ids.BOUND_FIELDS]
    old = Entry(
        status=entry.status,
        content=entry.content,
        path=entry.path,
        size=entry.size,
        is_deletion_vector=entry.file_format == ids.PUFFIN,
        referenced_data_file=entry.referenced_data_file or None,
        lower_bound=bounds[0],
        upper_bound=bounds[1],
    )
    new = localize_entry(old, mapping, uri)
    values: Values = {ids.FILE_PATH: new.path, ids.FILE_SIZE: new.size}
    if new.referenced_data_file is not None:
        values[ids.REFERENCED_DATA_FILE] = new.referenced_data_file
    for field_id, bound, changed in zip(ids.BOUND_FIELDS, bounds, (new.lower_bound, new.upper_bound), strict=True):
        if changed != bound:
            values[field_id] = _with_path_bound(entry, field_id, changed)
    if new.drop_layout:
        values |= dict.fromkeys(ids.LAYOUT_FIELDS)
    return values


def _path_bound(entry: EntryRecord, field_id: int) -> bytes | None:
    bounds = entry.file.get(field_id)
    bound: bytes | None = bounds.get(ids.PATH_COLUMN) if isinstance(bounds, dict) else None
    return bound


def _with_path_bound(entry: EntryRecord, field_id: int, bound: bytes | None) -> dict[int, bytes]:
    others = {column: value for column, value in entry.file[field_id].items() if column != ids.PATH_COLUMN}
    return others if bound is None else {**entry.file[field_id], ids.PATH_COLUMN: bound}
