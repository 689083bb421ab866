"""Iceberg tables as small as they come.

Real metadata.json, manifest lists, manifests and position deletes over markers for data files.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

import fastavro

from sterna.iceberg.avro.binary import encode_long

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

Row = tuple[int, str, int, object]
"""What a reader gets of one live file.

Content, URI on `main`, sequence number, and its marker or the rows that it deletes.
"""


@dataclass(frozen=True)
class File:
    """One entry of a manifest, as the table format has it; `deletes` holds the rows of position deletes."""

    path: str
    data: bytes
    content: int
    snapshot: int
    sequence: int
    deletes: tuple[tuple[str, int], ...] = ()

    @property
    def row(self) -> Row:
        return (self.content, self.path, self.sequence, self.deletes if self.content == POSITION_DELETES else self.data)


@dataclass(frozen=True)
class Manifest:
    """A manifest: the snapshot that wrote it, and its entries with their status."""

    path: str
    data: bytes
    content: int
    snapshot: int
    sequence: int
    entries: tuple[tuple[int, File], ...]

    @property
    def live(self) -> list[File]:
        return [file for status, file in self.entries if status != DELETED]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with its manifest list."""

    id: int
    parent: int | None
    sequence: int
    time_ms: int
    path: str
    data: bytes
    manifests: tuple[Manifest, ...]
    operation: str = "overwrite"

    @property
    def live(self) -> list[File]:
        return [file for manifest in self.manifests for file in manifest.live]


@dataclass(frozen=True)
class Table:
    """One version of a table, as its metadata.json says it."""

    uuid: str
    location: str
    path: str = ""
    data: bytes = b""
    sequence: int = 0
    current: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    tags: dict[str, int] = field(default_factory=dict)
    log: tuple[int, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    def snapshot(self, id: int | None) -> Snapshot | None:
        return next((snapshot for snapshot in self.snapshots if snapshot.id == id), None)

    def files(self) -> dict[str, bytes]:
        """Everything that this version reaches, by URI."""
        contents = {self.path: self.data}
        for snapshot in self.snapshots:
            contents[snapshot.path] = snapshot.data
            for manifest in snapshot.manifests:
                contents[manifest.path] = manifest.data
                contents |= {file.path: file.data for file in manifest.live}
        return contents

    def rows(self) -> dict[int, frozenset[Row]]:
        """What queries on each snapshot rest on."""
        return {snapshot.id: frozenset(file.row for file in snapshot.live) for snapshot in self.snapshots}


def manifest(path: str, content: int, snapshot: int, sequence: int, entries: list[tuple[int, File]]) -> Manifest:
    """Return a manifest with these entries."""
    records = [
        {
            "status": status,
            "snapshot_id": snapshot if status == DELETED else file.snapshot,
            "sequence_number": file.sequence,
            "file_sequence_number": file.sequence,
            "data_file": {
                "content": file.content,
                "file_path": file.path,
                "file_format": "AVRO" if file.content == POSITION_DELETES else "PARQUET",
                "partition": {},
                "record_count": 1,
                "file_size_in_bytes": len(file.data),
            },
        }
        for status, file in entries
    ]
    kind = "deletes" if content else "data"
    return Manifest(path, _avro(f"manifest {kind}", records), content, snapshot, sequence, tuple(entries))


def manifest_list(manifests: tuple[Manifest, ...]) -> bytes:
    """Return the manifest list of these manifests."""
    records = []
    for item in manifests:
        counts = [sum(1 for status, _ in item.entries if status == wanted) for wanted in (ADDED, EXISTING, DELETED)]
        smallest = min((file.sequence for file in item.live), default=item.sequence)
        values = (item.path, len(item.data), 0, item.content, item.sequence, smallest, item.snapshot, *counts, *counts)
        records.append(dict(zip((name for name, _, _ in _LIST), values, strict=True)))
    return _avro("list", records)


def position_deletes(rows: tuple[tuple[str, int], ...]) -> bytes:
    """Return a position delete file."""
    return _avro("position deletes", [{"file_path": path, "pos": pos} for path, pos in rows])


def metadata(table: Table, time_ms: int) -> bytes:
    """Return a table's metadata.json."""
    refs: dict[str, Any] = {name: {"snapshot-id": id, "type": "tag"} for name, id in table.tags.items()}
    if table.current is not None:
        refs["main"] = {"snapshot-id": table.current, "type": "branch"}
    times = {snapshot.id: snapshot.time_ms for snapshot in table.snapshots}
    logged = [id for id in table.log if id in times]
    snapshots = [
        {
            "snapshot-id": item.id,
            "sequence-number": item.sequence,
            "timestamp-ms": item.time_ms,
            "manifest-list": item.path,
        }
        | ({} if item.parent is None else {"parent-snapshot-id": item.parent})
        | {"summary": {"operation": item.operation}, "schema-id": 0}
        for item in table.snapshots
    ]
    changing = {
        "table-uuid": table.uuid,
        "location": table.location,
        "last-sequence-number": table.sequence,
        "last-updated-ms": time_ms,
        "current-snapshot-id": -1 if table.current is None else table.current,
        "refs": refs,
        "snapshots": snapshots,
        "properties": table.properties,
        "snapshot-log": [
            {"timestamp-ms": time, "snapshot-id": id} for id, time in zip(logged, _rising(times, logged), strict=True)
        ],
    }
    return json.dumps(_FIXED | changing).encode()


def _rising(times: dict[int, int], ids: list[int]) -> Iterator[int]:
    """Yield when each of some snapshots became current: one that became so once more did later than those before."""
    return accumulate((times[id] for id in ids), max)


def _record(name: str, *columns: tuple[str, int, Any]) -> dict[str, Any]:
    fields = [{"name": column, "type": kind, "field-id": number} for column, number, kind in columns]
    return {"type": "record", "name": name, "fields": fields}


_DATA_FILE = _record(
    "r2",
    ("content", 134, "int"),
    ("file_path", 100, "string"),
    ("file_format", 101, "string"),
    ("partition", 102, _record("r102")),
    ("record_count", 103, "long"),
    ("file_size_in_bytes", 104, "long"),
)
_MANIFEST = _record(
    "manifest_entry",
    ("status", 0, "int"),
    ("snapshot_id", 1, ["null", "long"]),
    ("sequence_number", 3, ["null", "long"]),
    ("file_sequence_number", 4, ["null", "long"]),
    ("data_file", 2, _DATA_FILE),
)
_LIST = (
    ("manifest_path", 500, "string"),
    ("manifest_length", 501, "long"),
    ("partition_spec_id", 502, "int"),
    ("content", 517, "int"),
    ("sequence_number", 515, "long"),
    ("min_sequence_number", 516, "long"),
    ("added_snapshot_id", 503, "long"),
    ("added_files_count", 504, "int"),
    ("existing_files_count", 505, "int"),
    ("deleted_files_count", 506, "int"),
    ("added_rows_count", 512, "long"),
    ("existing_rows_count", 513, "long"),
    ("deleted_rows_count", 514, "long"),
)
_SYNC = bytes(range(16))
_SCHEMAS = {
    "list": _record("manifest_file", *_LIST),
    "manifest data": _MANIFEST,
    "manifest deletes": _MANIFEST,
    "position deletes": _record("deletes", ("file_path", 2147483546, "string"), ("pos", 2147483545, "long")),
}
_FIELDS = [{"id": 1, "name": "id", "required": False, "type": "long"}]
_FIXED = {
    "format-version": 2,
    "last-column-id": 1,
    "current-schema-id": 0,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": _FIELDS}],
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "last-partition-id": 999,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "metadata-log": [],
}


@cache
def _schema(kind: str) -> tuple[Any, bytes]:
    """Return a kind of file's schema, and the bytes with which every file of it begins."""
    schema = _SCHEMAS[kind]
    about = (
        {"content": kind.partition(" ")[2], "partition-spec-id": "0", "partition-spec": "[]"}
        if kind.startswith("manifest")
        else {}
    )
    header = io.BytesIO()
    fastavro.writer(header, schema, [], sync_marker=_SYNC, metadata={**about, "format-version": "2", "schema": "{}"})
    return fastavro.parse_schema(schema), header.getvalue()


def _avro(kind: str, records: list[dict[str, Any]]) -> bytes:
    schema, header = _schema(kind)
    payload = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(payload, schema, record)
    data = payload.getvalue()
    return header + encode_long(len(records)) + encode_long(len(data)) + data + _SYNC if records else header
