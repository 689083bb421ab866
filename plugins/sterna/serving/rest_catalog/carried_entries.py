"""Entries that a client carries over from its parent: each is held against `main`'s, and becomes that again."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from sterna.errors import BadUpdate, ForeignFile
from sterna.iceberg.avro.by_field_id import Values
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.entry_records import CONTENT_SIZE, EQUALITY_IDS, FIRST_ROW_ID, PARTITION, EntryRecord
from sterna.serving.rest_catalog.parent_files import FileKey, ParentEntry, ParentFiles, ParentManifest
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims

# What the client says of its own: its manifest's schema has the partition's names, and row ids are inherited no longer.
_OWN_FIELDS: Final = frozenset({PARTITION, FIRST_ROW_ID})
_COMPARED_FIELDS: Final = (ids.REFERENCED_DATA_FILE, ids.CONTENT_OFFSET, CONTENT_SIZE, EQUALITY_IDS)


class CarriedEntries:
    """The entries of a snapshot that a commit's new manifests keep, delete or add again, each as often as it is live.

    Args:
        parent: the parent snapshot.
        manifests: those that the client's list doesn't name any more: all other entries stay where they are.
        keys: the files that entries of the new manifests have.

    Raises:
        SizeDiffers, BrokenMetadata, ObjectMissing, StoreUnreachable, StoreDenied: as `ParentFiles.live_entries`.
    """

    def __init__(self, parent: ParentFiles, manifests: Iterable[ParentManifest], keys: set[FileKey]) -> None:
        self._entries: dict[FileKey, list[tuple[int, ParentEntry]]] = defaultdict(list)
        if not keys:
            return
        for manifest, entry in parent.live_entries(manifests):
            key = (entry.served.path, entry.served.offset)
            if key in keys:
                self._entries[key].append((manifest.main.manifest.partition_spec_id, entry))

    def take(self, entry: EntryRecord, spec_id: int, claims: SnapshotClaims) -> Values:
        """Return what an entry's file is on `main`, and count it off: it can be kept or deleted once.

        Args:
            entry: kept, deleted or added again, as the client has it.
            spec_id: the partition spec of its manifest.
            claims: the snapshot that it is for.

        Raises:
            ForeignFile: no such file is live in those manifests, or two are.
            BadUpdate: the client's entry differs from `main`'s.
        """
        candidates = self._entries.get((entry.path, entry.offset), [])
        if not candidates:
            raise ForeignFile(
                "the file isn't live in those manifests of the parent snapshot that the commit replaces",
                file=entry.path,
            )
        differences = [_difference(entry, spec_id, claims, *candidate) for candidate in candidates]
        if "" not in differences:
            raise BadUpdate(f"the commit carries the file over with another {differences[0]}", file=entry.path)
        matches = [candidate for candidate, difference in zip(candidates, differences, strict=True) if not difference]
        if len({match.main.path for _, match in matches}) > 1:
            raise ForeignFile("two files on `main` are served by this name", file=entry.path)
        candidates.remove(matches[0])
        main = matches[0][1].main.file
        return {field_id: value for field_id, value in main.items() if field_id not in _OWN_FIELDS}


def _difference(
    entry: EntryRecord, spec_id: int, claims: SnapshotClaims, parent_spec_id: int, parent: ParentEntry
) -> str:
    """Return in what an entry differs from the parent's, "" where it agrees."""
    served = parent.served
    is_deleted, is_added = entry.status == ids.DELETED, entry.status == ids.ADDED_OR_EXISTING[1]
    agreements = {
        "sequence number": is_added or entry.sequence_number == parent.sequence_number,
        "file sequence number": is_added or entry.file_sequence_number == parent.file_sequence_number,
        "snapshot": (is_deleted and entry.snapshot_id == claims.snapshot_id)
        or is_added
        or entry.snapshot_id == parent.snapshot_id,
        "content": entry.content == served.content,
        "format": entry.file_format == served.file_format,
        "size": entry.size == served.size,
        "number of rows": entry.record_count == served.record_count,
        "partition": spec_id == parent_spec_id and _partition(entry) == _partition(served),
        "row id": is_deleted
        or is_added
        or entry.file.get(FIRST_ROW_ID) == parent.first_row_id
        or entry.content != ids.DATA,
        "delete": all(
            (entry.file.get(field_id) or None) == (served.file.get(field_id) or None) for field_id in _COMPARED_FIELDS
        ),
    }
    return next((name for name, agrees in agreements.items() if not agrees), "")


def _partition(entry: EntryRecord) -> Values:
    fields = (entry.file.get(PARTITION) or {}).items()
    return {field_id: _comparable(value) for field_id, value in fields if value is not None}


def _comparable(value: Any) -> Any:
    """Return a float's bytes, since NaN differs from itself; anything else as it is."""
    return struct.pack("<d", value) if isinstance(value, float) else value
