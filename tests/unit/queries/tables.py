"""Tables to ask: written by PyIceberg, and what it can't write, deletes, put beside by hand."""

from __future__ import annotations

import io
import json
import struct
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from sterna.catalog.model import Key
from sterna.serving.queries.job import PinnedTable, QueryJob
from tests.support.small_world import World
from tests.unit.verify.tables import PATH_COLUMN, delete_rows

KEY: Key = ("ns", "sales")
ROWS = 200


def sales(first: int = 0) -> pa.Table:
    """Rows of every type that is read here; nulls in each column, NaN and infinity among the doubles."""
    numbers = range(first, first + ROWS)

    def some(values: list[Any]) -> list[Any]:
        return [None if index % 7 == 3 else value for index, value in enumerate(values)]

    doubles = [float("nan") if n % 11 == 5 else float("inf") if n % 50 == 1 else n * 1.5 for n in numbers]
    return pa.table(
        {
            "id": pa.array(list(numbers), pa.int64()),
            "price": pa.array(some(doubles), pa.float64()),
            "small": pa.array(some([n % 5 for n in numbers]), pa.int32()),
            "name": pa.array(some([f"n{n % 13}" for n in numbers]), pa.string()),
            "amount": pa.array(some([Decimal(n) / 100 for n in numbers]), pa.decimal128(12, 2)),
            "day": pa.array(some([n * 3 for n in numbers]), pa.date32()),
            "seen": pa.array(some([n * 3_600_000_001 for n in numbers]), pa.timestamp("us", tz="UTC")),
            "local": pa.array(some([n * 1_000_001 for n in numbers]), pa.timestamp("us")),
            "good": pa.array(some([n % 2 == 0 for n in numbers]), pa.bool_()),
            "bytes": pa.array(some([bytes([n % 256]) for n in numbers]), pa.binary()),
            "tags": pa.array(some([[n, None] for n in numbers]), pa.list_(pa.int64())),
            "place": pa.array(
                some([{"x": n, "y": None} for n in numbers]), pa.struct({"x": pa.int32(), "y": pa.string()})
            ),
        }
    )


def written(world: World, *parts: pa.Table, name: str = "sales") -> str:
    """Write a table of region us, a snapshot a part; return its metadata location."""
    table = world.writer.create_table(
        ("ns", name),
        parts[0].schema,
        location=f"file://{world.folder}/us/lake/{name}",
        properties={"format-version": "2"},
    )
    for part in parts:
        table.append(part)
    return str(table.metadata_location)


def in_place(world: World, uri: str, *keys: Key) -> str:
    """Move a table of us to where eu reads it, as a replica would have it; return its metadata location there."""
    us, eu = f"{world.folder}/us/lake", f"{world.folder}/eu/lake"
    for path in Path(us).rglob("*"):
        target = Path(str(path).replace(us, eu, 1))
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".avro":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_respelled(path.read_bytes(), us, eu))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(
                path.read_bytes().replace(us.encode(), eu.encode()) if path.suffix == ".json" else path.read_bytes()
            )
    return uri.replace(us, eu, 1)


def _respelled(data: bytes, us: str, eu: str) -> bytes:
    reader = fastavro.reader(io.BytesIO(data))
    records = json.loads(
        json.dumps(list(reader), default=lambda blob: {"bytes": blob.hex()}).replace(us, eu), object_hook=_bytes
    )
    return _avro(reader, records)


def _bytes(document: dict[str, Any]) -> Any:
    return bytes.fromhex(document["bytes"]) if set(document) == {"bytes"} else document


def _avro(reader: Any, records: list[Any]) -> bytes:
    sink = io.BytesIO()
    metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(sink, reader.writer_schema, records, metadata=metadata)
    return sink.getvalue()


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def document(uri: str) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(path_of(uri).read_text())
    return metadata


def current(uri: str) -> int:
    return int(document(uri)["current-snapshot-id"])


def files_of(uri: str) -> list[str]:
    """The data files of the current snapshot, in the order of their manifests."""
    return [
        entry["data_file"]["file_path"]
        for manifest in _manifests(uri)[1]
        for entry in _read(manifest["manifest_path"])[1]
    ]


def _read(uri: str) -> tuple[Any, list[Any]]:
    reader = fastavro.reader(io.BytesIO(path_of(uri).read_bytes()))
    return reader, list(reader)


def _manifests(uri: str) -> tuple[Any, list[Any]]:
    metadata = document(uri)
    snapshot = next(
        candidate for candidate in metadata["snapshots"] if candidate["snapshot-id"] == metadata["current-snapshot-id"]
    )
    return _read(snapshot["manifest-list"])


def with_deletes(uri: str, kind: str) -> str:
    """Put deletes into a copy of a table's current metadata; return the copy's location.

    Args:
        uri: the table's metadata.
        kind: `positions`: the first rows of each file; `vectors`: one row, two rows, of a file after another;
            `equality`: rows whose id is 1.
    """
    files = files_of(uri)
    folder = path_of(uri).parent
    if kind == "vectors":
        data, name = puffin(files)[0], "deletes.puffin"
    elif kind == "positions":
        data, name = delete_rows(sorted((file, pos) for file in files for pos in (0, 1, 17))), "deletes.parquet"
    else:
        sink = io.BytesIO()
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table({"id": [1]}, schema=pa.schema([field])), sink)
        data, name = sink.getvalue(), "equality.parquet"
    (folder / name).write_bytes(data)
    return _with_manifest(uri, kind, f"file://{folder / name}", len(data), files)


def puffin(files: list[str]) -> tuple[bytes, list[tuple[int, int]]]:
    """A Puffin file with a deletion vector for each data file; the first deletes one row, the second two, and so on.

    Returns:
        The file, and where each vector stands in it, with its length.
    """
    from pyroaring import BitMap

    body, blobs = b"PFA1", []
    for number, file in enumerate(files):
        bitmap = BitMap(range(10, 11 + number)).serialize()
        vector = b"\xd1\xd3\x39\x64" + struct.pack("<qi", 1, 0) + bitmap
        blob = struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        properties = {"referenced-data-file": file, "cardinality": str(number + 1)}
        common = {"type": "deletion-vector-v1", "fields": [PATH_COLUMN], "snapshot-id": -1, "sequence-number": -1}
        blobs.append(common | {"offset": len(body), "length": len(blob), "properties": properties})
        body += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    whole = body + b"PFA1" + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0PFA1"
    return whole, [(blob["offset"], blob["length"]) for blob in blobs]


def _with_manifest(uri: str, kind: str, file: str, size: int, files: list[str]) -> str:
    reader, manifests = _manifests(uri)
    entries, (first, *_) = _read(manifests[0]["manifest_path"])
    plain = dict.fromkeys(
        ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    )
    common = plain | {
        "content": 2 if kind == "equality" else 1,
        "file_path": file,
        "file_size_in_bytes": size,
        "record_count": 1,
    }
    common |= {
        "file_format": "PUFFIN" if kind == "vectors" else "PARQUET",
        "equality_ids": [1] if kind == "equality" else None,
    }
    delete_entries = [
        {**first, "sequence_number": None, "file_sequence_number": None, "data_file": {**first["data_file"], **common}}
    ]
    folder = path_of(uri).parent
    (folder / "deletes-m0.avro").write_bytes(_deletes_avro(entries, delete_entries, kind, files))
    one = {**manifests[0], "manifest_path": f"file://{folder}/deletes-m0.avro", "content": 1, "sequence_number": 99}
    one |= {"manifest_length": (folder / "deletes-m0.avro").stat().st_size, "min_sequence_number": 99}
    (folder / "deletes-list.avro").write_bytes(_avro(reader, [*manifests, one]))
    metadata = document(uri)
    for snapshot in metadata["snapshots"]:
        if snapshot["snapshot-id"] == metadata["current-snapshot-id"]:
            snapshot["manifest-list"] = f"file://{folder}/deletes-list.avro"
            snapshot["sequence-number"] = 99
    metadata["last-sequence-number"] = 99
    if kind == "vectors":
        metadata |= {"format-version": 3, "next-row-id": 1000}
    copy = folder / f"99999-{kind}.metadata.json"
    copy.write_text(json.dumps(metadata))
    return f"file://{copy}"


def _deletes_avro(reader: Any, delete_entries: list[Any], kind: str, files: list[str]) -> bytes:
    sink = io.BytesIO()
    metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    schema = reader.writer_schema
    if kind == "vectors":
        schema = json.loads(json.dumps(schema))
        record = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
        record["fields"] += [
            {"name": "referenced_data_file", "type": ["null", "string"], "default": None, "field-id": 143},
            {"name": "content_offset", "type": ["null", "long"], "default": None, "field-id": 144},
            {"name": "content_size_in_bytes", "type": ["null", "long"], "default": None, "field-id": 145},
        ]
        (one,) = delete_entries
        delete_entries = [
            {
                **one,
                "data_file": {
                    **one["data_file"],
                    "referenced_data_file": file,
                    "content_offset": offset,
                    "content_size_in_bytes": length,
                },
            }
            for file, (offset, length) in zip(files, puffin(files)[1], strict=True)
        ]
        metadata["format-version"] = "3"
    fastavro.writer(
        sink,
        fastavro.parse_schema(schema) if kind == "vectors" else schema,
        delete_entries,
        metadata={**metadata, "content": "deletes"},
    )
    return sink.getvalue()


def job(world: World, sql: str, *tables: PinnedTable, **fields: Any) -> QueryJob:
    """A job for region eu with generous limits."""
    limits = {"kpi": False, "seconds": 60.0, "memory": 256 << 20, "rows": 10_000, "bytes": 1 << 20}
    stores = world.context().objects.spec()
    return QueryJob(
        **{"sql": sql, "params": {}, "tables": tables, **limits, "stores": stores, "credentials": {}, **fields}
    )


def pinned(uri: str, snapshot: int | None = None, *, key: Key = KEY, own_schema: bool = True) -> PinnedTable:
    return PinnedTable(key, uri, current(uri) if snapshot is None else snapshot, own_schema)
