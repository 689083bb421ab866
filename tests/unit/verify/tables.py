"""A table written twice by hand, as `main` has it and as its replica must be.

Nothing of sterna's localizing takes part.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from sterna.catalog.model import Put, namespace_content
from sterna.replication.replica import head
from tests.support.replica_paths import localized_path
from tests.support.small_world import World, table

BRANCH = "main_replica_eu"
DIGEST = "0123456789abcdef"
PATH_COLUMN = 2147483546
ROWS = 10  # of each data file


def _optional(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _required(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _map(name: str, key: int, value: int) -> dict[str, Any]:
    fields = [_required("key", key, "int"), _required("value", value, "bytes")]
    return {"type": "array", "logicalType": "map", "items": {"type": "record", "name": name, "fields": fields}}


LIST_SCHEMA = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _required("manifest_path", 500, "string"),
        *(
            _required(name, number, "long")
            for name, number in (("manifest_length", 501), ("partition_spec_id", 502), ("content", 517))
        ),
        *(_required(name, number, "long") for name, number in (("sequence_number", 515), ("min_sequence_number", 516))),
        _required("added_snapshot_id", 503, "long"),
        *(
            _required(f"{kind}_files_count", number, "int")
            for kind, number in (("added", 504), ("existing", 505), ("deleted", 506))
        ),
        *(
            _required(f"{kind}_rows_count", number, "long")
            for kind, number in (("added", 512), ("existing", 513), ("deleted", 514))
        ),
    ],
}
_FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        _required("content", 134, "int"),
        _required("file_path", 100, "string"),
        _required("file_format", 101, "string"),
        _required("partition", 102, {"type": "record", "name": "r102", "fields": []}),
        _required("record_count", 103, "long"),
        _required("file_size_in_bytes", 104, "long"),
        _optional("lower_bounds", 125, _map("k126_v127", 126, 127)),
        _optional("upper_bounds", 128, _map("k129_v130", 129, 130)),
        _optional("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
        _optional("referenced_data_file", 143, "string"),
        _optional("content_offset", 144, "long"),
        _optional("content_size_in_bytes", 145, "long"),
    ],
}
ENTRY_SCHEMA = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _required("status", 0, "int"),
        _optional("snapshot_id", 1, "long"),
        _optional("sequence_number", 3, "long"),
        _required("data_file", 2, _FILE),
    ],
}
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_COLUMN)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
_DELETE_AVRO = {
    "type": "record",
    "name": "delete",
    "fields": [_required("file_path", PATH_COLUMN, "string"), _required("pos", 2147483545, "long")],
}


@dataclass(frozen=True)
class Side:
    """One of the two: where its files are, and the URIs that it writes into them.

    Args:
        content: folder of its content files.
        localized: folder of its path-bearing files.
        ending: of its metadata.json's name.
    """

    content: Path
    localized: Path
    ending: str = ".metadata.json"

    def path(self, name: str) -> Path:
        path_bearing = name.startswith(("metadata/snap", "metadata/m-", "metadata/v")) or "delete" in name
        return (self.localized if path_bearing else self.content) / name

    def uri(self, name: str) -> str:
        return f"file://{self.path(name)}"

    def put(self, name: str, data: bytes) -> int:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return len(data)


def sides(world: World, name: str) -> tuple[Side, Side]:
    """The table as `main` has it, and as the replica must be."""
    us, eu = world.folder / "us" / "lake" / name, world.folder / "eu" / "replica"
    return Side(us, us), Side(eu / "us-lake" / name, eu / localized_path(f"us-lake/{name}"), f"-{DIGEST}.metadata.json")


def publish(world: World, *names: str, version: int = 2) -> None:
    """Write tables on both sides and commit them, each on its branch."""
    for name in names:
        for side in sides(world, name):
            write(side, version)
    locations = {name: [side.uri("metadata/v1" + side.ending) for side in sides(world, name)] for name in names}
    source = world.commit(**{name: both[0] for name, both in locations.items()})
    world.catalog.create_branch(BRANCH)
    puts = [
        Put(("ns",), namespace_content(("ns",))),
        *(Put(("ns", name), table(both[1])) for name, both in locations.items()),
    ]
    properties = {head.RUN_ID: "run", head.SOURCE_HASH: source, head.PLANNED_HASH: source}
    world.catalog.commit(BRANCH, world.catalog.reference(BRANCH).hash, puts, "sterna", properties)


def write(side: Side, version: int) -> None:
    """Write one side: two data files, two snapshots, deletes of every kind that the format version has, statistics."""
    data = [_file(side, f"data/{letter}.parquet", _parquet(letter), record_count=ROWS) for letter in "ab"]
    deletes = _vectors(side) if version == 3 else _position_deletes(side)
    # In format v1 there are none.
    deletes = deletes if version > 1 else []
    size = side.put("metadata/stats.puffin", b"PFA1" + b"statistics" * 10)
    rows = [
        _manifest(side, "metadata/m-data.avro", data, 1, version),
        _manifest(side, "metadata/m-deletes.avro", deletes, 2, version),
    ]
    for number in (1, 2):
        header = {"snapshot-id": str(number), "format-version": str(version)}
        side.put(f"metadata/snap-{number}.avro", avro(LIST_SCHEMA, rows[:number] if deletes else rows[:1], header))
    side.put("metadata/v1" + side.ending, json.dumps(_metadata(side, version, size)).encode())


def _file(side: Side, name: str, data: bytes, **fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys([field["name"] for field in _FILE["fields"]])
    size = side.put(name, data)
    file = {"content": 0, "file_path": side.uri(name), "file_format": name.rpartition(".")[2].upper(), "partition": {}}
    return empty | file | {"file_size_in_bytes": size, "split_offsets": [4]} | fields


def _parquet(letter: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [letter] * ROWS}), sink)
    return sink.getvalue()


def _position_deletes(side: Side) -> list[dict[str, Any]]:
    a, b = side.uri("data/a.parquet"), side.uri("data/b.parquet")
    both = delete_rows([(a, 1), (a, 3), (b, 0)])
    alone = {"referenced_data_file": a, "lower_bounds": bound(a), "upper_bounds": bound(a)}
    return [
        _file(
            side,
            "data/deletes-both.parquet",
            both,
            content=1,
            record_count=3,
            lower_bounds=bound(a),
            upper_bounds=bound(b),
        ),
        _file(side, "data/deletes-a.parquet", delete_rows([(a, 5)]), content=1, record_count=1, **alone),
        _file(side, "data/deletes-b.orc", delete_rows([(b, 2), (b, 4)], "orc"), content=1, record_count=2),
        _file(side, "data/deletes-ab.avro", delete_rows([(a, 7), (b, 7)], "avro"), content=1, record_count=2),
    ]


def bound(path: str) -> list[dict[str, Any]]:
    return [{"key": PATH_COLUMN, "value": path.encode()}]


def delete_rows(rows: list[tuple[str, int]], kind: str = "parquet") -> bytes:
    """A position delete file."""
    records = [{"file_path": path, "pos": pos} for path, pos in rows]
    if kind == "avro":
        return avro(_DELETE_AVRO, records, {})
    sink = io.BytesIO()
    written = pa.Table.from_pylist(records, _DELETE_SCHEMA)
    orc.write_table(written, sink) if kind == "orc" else pq.write_table(written, sink)
    return sink.getvalue()


def _vectors(side: Side) -> list[dict[str, Any]]:
    paths = [side.uri("data/a.parquet"), side.uri("data/b.parquet")]
    data = puffin(paths)
    return [
        _file(
            side,
            "data/deletes.puffin",
            data,
            content=1,
            record_count=number + 1,
            referenced_data_file=path,
            **_blob(number),
        )
        for number, path in enumerate(paths)
    ]


def _blob(number: int) -> dict[str, Any]:
    return {"content_offset": 4 + number * 20, "content_size_in_bytes": 20, "split_offsets": None}


def puffin(paths: list[str]) -> bytes:
    """A Puffin file with a deletion vector of 20 bytes for each data file.

    The first deletes one row, the second two, and so on.
    """
    blobs, body = [], b"PFA1"
    for number, path in enumerate(paths):
        vector = b"\xd1\xd3\x39\x64" + bytes([number]) * 8
        properties = {"referenced-data-file": path, "cardinality": str(number + 1)}
        common = {"type": "deletion-vector-v1", "fields": [PATH_COLUMN], "snapshot-id": -1, "sequence-number": -1}
        blobs.append(common | {"offset": len(body), "length": 20, "properties": properties})
        body += struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    payload = json.dumps({"blobs": blobs, "properties": {"created-by": "a test"}}).encode()
    return body + b"PFA1" + payload + struct.pack("<i", len(payload)) + b"\0\0\0\0PFA1"


def _manifest(side: Side, name: str, files: list[dict[str, Any]], snapshot: int, version: int) -> dict[str, Any]:
    content = "deletes" if any(file["content"] for file in files) else "data"
    header = {"partition-spec-id": "0", "content": content, "format-version": str(version)}
    entries = [{"status": 1, "snapshot_id": snapshot, "sequence_number": None, "data_file": file} for file in files]
    length = side.put(name, avro(ENTRY_SCHEMA, entries, header))
    counts = dict.fromkeys([field["name"] for field in LIST_SCHEMA["fields"]], 0)
    rows = sum(file["record_count"] for file in files)
    numbers = dict.fromkeys(
        ["sequence_number", "min_sequence_number", "added_snapshot_id"], snapshot if version > 1 else 0
    )
    kind = {
        "content": int(content == "deletes"),
        "added_files_count": len(files),
        "added_rows_count": rows,
        "added_snapshot_id": snapshot,
    }
    return counts | {"manifest_path": side.uri(name), "manifest_length": length} | numbers | kind


def _metadata(side: Side, version: int, statistics: int) -> dict[str, Any]:
    replica = side.content != side.localized
    location = f"file://{side.content}"
    numbers = ({"sequence-number": 1}, {"sequence-number": 2}) if version > 1 else ({}, {})
    snapshots = [
        {
            "snapshot-id": number,
            "timestamp-ms": number * 1000,
            "summary": {"operation": "append", "backup": location},
            "manifest-list": side.uri(f"metadata/snap-{number}.avro"),
        }
        | numbers[number - 1]
        for number in (1, 2)
    ]
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "id", "required": False, "type": "string"}],
    }
    return {
        "format-version": version,
        "table-uuid": f"uuid-of-{side.content.name}",
        "location": location,
        "last-updated-ms": 2000,
        "last-column-id": 1,
        **({"last-sequence-number": 2} if version > 1 else {"schema": schema}),
        **({"next-row-id": 20} if version == 3 else {}),
        "current-schema-id": 0,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            "write.data.path": f"{location}/data",
            "owner": "x",
            **({"gc.enabled": "false"} if replica else {}),
        },
        "current-snapshot-id": 2,
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "tag": {"snapshot-id": 1, "type": "tag"}},
        "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": number * 1000, "snapshot-id": number} for number in (1, 2)],
        "metadata-log": []
        if replica
        else [{"timestamp-ms": 1, "metadata-file": f"{location}/metadata/v0.metadata.json"}],
        "statistics": [
            {
                "snapshot-id": 2,
                "statistics-path": side.uri("metadata/stats.puffin"),
                "file-size-in-bytes": statistics,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
        ],
    }


def avro(schema: Any, records: list[Any], header: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.writer(sink, parsed, records, codec="deflate", metadata=header, sync_marker=b"sixteen bytes ok")
    return sink.getvalue()
