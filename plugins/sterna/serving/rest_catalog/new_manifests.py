"""The manifests that a client wrote for its snapshot: what they name, and whether the list is true of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sterna.config.limits import Limits
from sterna.errors import BadUpdate, ForeignFile
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests import list_rows
from sterna.iceberg.manifests.entry_records import CONTENT_SIZE, FIRST_ROW_ID, EntryRecord, ManifestRecords
from sterna.iceberg.manifests.list_rows import ListRow
from sterna.iceberg.manifests.manifest import read_entries
from sterna.serving.rest_catalog.client_files import ClientFiles, client_fault
from sterna.serving.rest_catalog.parent_files import FileKey
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims

EXISTING, ADDED = ids.ADDED_OR_EXISTING
_COUNT_FIELDS: Final = {
    ADDED: (list_rows.ADDED_FILES, list_rows.ADDED_ROWS),
    EXISTING: (list_rows.EXISTING_FILES, list_rows.EXISTING_ROWS),
    ids.DELETED: (list_rows.DELETED_FILES, list_rows.DELETED_ROWS),
}
_ADDED_BYTES: Final = 600
_CARRIED_BYTES: Final = 4_000  # the entry on `main` and the one that is served, with their statistics
_CONTENT_NAMES: Final = {b"data": 0, b"deletes": 1}


@dataclass
class NamedFiles:
    """What the new manifests of a commit name.

    Args:
        added: the size of each new file, by its URI.
        added_keys: the same files, and which parts of them.
        added_deletes: those that have position deletes or deletion vectors.
        added_data: those that have rows.
        vectors: the deletion vectors of each new Puffin: by offset, how many bytes one has, and its data file.
        readded: those that are added once more, as a cherry-pick does: the source snapshot's.
        carried: files of the parent snapshot that an entry keeps or deletes.
        referenced: data files that entries of new delete files name.
    """

    added: dict[str, int] = field(default_factory=dict)
    added_keys: set[FileKey] = field(default_factory=set)
    added_deletes: dict[str, None] = field(default_factory=dict)
    added_data: set[str] = field(default_factory=set)
    vectors: dict[str, dict[int, tuple[int | None, str]]] = field(default_factory=dict)
    readded: set[FileKey] = field(default_factory=set)
    carried: set[FileKey] = field(default_factory=set)
    referenced: set[str] = field(default_factory=set)


def open_manifest(client: ClientFiles, row: ListRow, limits: Limits) -> ManifestRecords:
    """Open a manifest that a client wrote.

    Raises:
        ForeignFile: it doesn't lie in the table's places of this region.
        BadUpdate: it isn't there, is broken, or isn't what its row says.
        StoreUnreachable, StoreDenied: it can't be read.
    """
    uri = row.manifest.path
    client.require_place(uri)
    data = client.read(uri)
    if len(data) != row.manifest.length:
        raise BadUpdate(f"the manifest has {len(data)} bytes, the list says {row.manifest.length}", file=uri)
    with client_fault(uri):
        records = ManifestRecords(data, uri, limits)
    header = records.container.metadata
    if header.get("format-version", b"1") == b"1":
        raise BadUpdate("a new manifest of format v1, which has no sequence numbers", file=uri)
    content = _CONTENT_NAMES.get(header.get("content", b""), row.manifest.content)
    spec_id = header.get("partition-spec-id", str(row.manifest.partition_spec_id).encode())
    if content != row.manifest.content or spec_id != str(row.manifest.partition_spec_id).encode():
        raise BadUpdate("the manifest is of another content or partition spec than the list says", file=uri)
    return records


def estimate_memory(rows: Iterable[ListRow]) -> int:
    """Return about how many bytes it takes to hold new manifests against the parent's, by what their list says."""

    def count(row: ListRow, *field_ids: int) -> int:
        return sum(max(0, row.values.get(field_id) or 0) for field_id in field_ids)

    return sum(
        row.manifest.length
        + _ADDED_BYTES * count(row, list_rows.ADDED_FILES)
        + _CARRIED_BYTES * count(row, list_rows.EXISTING_FILES, list_rows.DELETED_FILES)
        for row in rows
    )


def inspect_manifest(
    client: ClientFiles, row: ListRow, claims: SnapshotClaims, limits: Limits, files: NamedFiles
) -> None:
    """Hold a new manifest against its row, and add what it names.

    Args:
        claims: the snapshot that it is for.
        files: takes the names.

    Raises:
        ForeignFile: it, or a file that it adds, doesn't lie in the table's places of this region.
        BadUpdate: it isn't there or is broken, isn't what its row says, or adds a file twice.
        StoreUnreachable, StoreDenied: it can't be read.
    """
    uri = row.manifest.path
    records = open_manifest(client, row, limits)
    counts: Counter[int] = Counter()
    sequence_numbers: list[int] = []
    with client_fault(uri):
        read_entries(records.container.data, uri, limits)  # refuses what isn't localized: encrypted files, for one
        for entry in records.entries():
            _inspect_entry(client, row, claims, entry, files)
            files_field, rows_field = _COUNT_FIELDS[entry.status]
            counts[files_field] += 1
            counts[rows_field] += entry.record_count
            if counts[files_field] > (row.values.get(files_field) or 0):
                raise BadUpdate(f"the manifest has more files than the list has in field {files_field}", file=uri)
            if entry.status != ids.DELETED:
                number = entry.sequence_number
                sequence_numbers.append(claims.sequence_number if number is None else number)
    for field_id in (field_id for fields in _COUNT_FIELDS.values() for field_id in fields):
        if row.values.get(field_id) != counts[field_id]:
            stated = row.values.get(field_id)
            raise BadUpdate(f"the list has {stated} in field {field_id}, the manifest {counts[field_id]}", file=uri)
    _require_row_numbers(row, claims, min(sequence_numbers, default=claims.sequence_number))


def _require_row_numbers(row: ListRow, claims: SnapshotClaims, least: int) -> None:
    if row.manifest.added_snapshot_id != claims.snapshot_id or row.sequence_number != claims.sequence_number:
        raise BadUpdate("a new manifest of another snapshot or sequence number", file=row.manifest.path)
    # A lower one is true, too, and only keeps readers from leaving a manifest out.
    if not 0 <= row.values[list_rows.MIN_SEQUENCE_NUMBER] <= least:
        raise BadUpdate(
            f"the list says that no entry has a sequence number below {row.values[list_rows.MIN_SEQUENCE_NUMBER]}, "
            f"the manifest has {least}",
            file=row.manifest.path,
        )


def _inspect_entry(
    client: ClientFiles, row: ListRow, claims: SnapshotClaims, entry: EntryRecord, files: NamedFiles
) -> None:
    if entry.status not in _COUNT_FIELDS or (entry.content != ids.DATA) != bool(row.manifest.content):
        raise BadUpdate(
            f"an entry of status {entry.status} and content {entry.content} for {entry.path}", file=row.manifest.path
        )
    if entry.status != ADDED:
        files.carried.add((entry.path, entry.offset))
        return
    _require_added_numbers(claims, entry)
    key = (entry.path, entry.offset)
    try:
        client.require_place(entry.path)
    except ForeignFile:
        if claims.source_id is None or entry.content != ids.DATA or key in files.readded:
            raise
        files.readded.add(key)
        return
    if key in files.added_keys or files.added.setdefault(entry.path, entry.size) != entry.size:
        raise BadUpdate("the commit adds a file twice", file=entry.path)
    files.added_keys.add(key)
    if entry.content == ids.POSITION_DELETES:
        files.added_deletes[entry.path] = None
        if entry.file_format == ids.PUFFIN and entry.offset is not None:
            vector = (entry.file.get(CONTENT_SIZE), entry.referenced_data_file)
            files.vectors.setdefault(entry.path, {})[entry.offset] = vector
    if entry.content == ids.DATA:
        files.added_data.add(entry.path)
    if entry.referenced_data_file:
        files.referenced.add(entry.referenced_data_file)


def _require_added_numbers(claims: SnapshotClaims, entry: EntryRecord) -> None:
    if entry.snapshot_id not in (None, claims.snapshot_id):
        raise BadUpdate(f"a file that is added by another snapshot, {entry.snapshot_id}", file=entry.path)
    # A rewritten file keeps the number that it was rewritten from, so that later equality deletes still apply.
    if entry.sequence_number is not None and not 0 <= entry.sequence_number <= claims.sequence_number:
        raise BadUpdate(f"a file that is added with the sequence number {entry.sequence_number}", file=entry.path)
    if entry.file_sequence_number not in (None, claims.sequence_number):
        raise BadUpdate(f"a file that is added with the number {entry.file_sequence_number}", file=entry.path)
    if entry.content == ids.DATA and entry.file.get(FIRST_ROW_ID) is not None:
        raise BadUpdate("a file that is added with row ids of its own", file=entry.path)
