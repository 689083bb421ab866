"""Avro files for tests.

Real Iceberg schemas, an encoder that uses every form Avro allows, and a decoder to compare with.
"""

import copy
import io
import json
import random
import struct
from typing import Any

import cramjam
import fastavro
from isal import isal_zlib
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, StructType, TimestamptzType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sterna.iceberg.avro.binary import encode_bytes, encode_long
from sterna.iceberg.avro.container import open_container

SYNC = bytes(range(16))
CODECS = ("null", "deflate", "snappy", "zstandard")
PATH_COLUMN = 2147483546
PARTITION = StructType(
    NestedField(1000, "day", DateType()),
    NestedField(1001, "price", DecimalType(9, 2)),
    NestedField(1002, "at", TimestamptzType()),
    NestedField(1003, "name", StringType()),
    NestedField(1004, "place", StructType(NestedField(1005, "x", LongType()), NestedField(1006, "y", StringType()))),
)
LATER_STRUCT = {
    "type": "record",
    "name": "later",
    "fields": [
        {"name": "digest", "type": {"type": "fixed", "name": "three", "size": 3}, "field-id": 9_003},
        {"name": "rows", "type": {"type": "array", "items": {"type": "array", "items": "long"}}, "field-id": 9_004},
        {"name": "flag", "type": "boolean", "field-id": 9_005},
        {"name": "ratio", "type": "float", "field-id": 9_006},
    ],
}


class Raw(bytes):
    """A value that is encoded already."""


def manifest_schema(version: int = 2, partition: StructType = PARTITION) -> dict[str, Any]:
    schema: Any = AvroSchemaConversion().iceberg_to_avro(
        manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version)),
        schema_name="manifest_entry",
    )
    schema = copy.deepcopy(schema)
    fields = data_file_fields(schema)
    if version == 2:
        fields.append({"name": "referenced_data_file", "field-id": 143, "type": ["null", "string"], "default": None})
    fields.append(
        {
            "name": "a_later_field",
            "field-id": 9_000,
            "type": ["null", {"type": "map", "values": ["null", "double", "string"]}],
        }
    )
    fields.append({"name": "a_later_struct", "field-id": 9_002, "type": ["null", LATER_STRUCT]})
    schema["fields"].append(
        {"name": "another_later_field", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}, "field-id": 9_001}
    )
    return schema


def data_file_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return next(field for field in schema["fields"] if field["name"] == "data_file")["type"]["fields"]


def manifest_list_schema(version: int = 2) -> dict[str, Any]:
    schema: Any = AvroSchemaConversion().iceberg_to_avro(
        MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file"
    )
    schema = copy.deepcopy(schema)
    schema["fields"].insert(1, {"name": "a_later_struct", "field-id": 9_002, "type": ["null", LATER_STRUCT]})
    return schema


def entry(
    path: str, *, status: int = 1, content: int = 0, size: int = 1000, version: int = 2, **data_file: Any
) -> dict[str, Any]:
    partition = {
        "day": 19000,
        "price": struct.pack(">i", 1234),
        "at": 1_700_000_000_000_000,
        "name": "x",
        "place": {"x": 7, "y": "s3://us/no"},
    }
    bounds = [{"key": 1, "value": b"\x01"}, {"key": 2, "value": b""}]
    file = {
        "file_path": path,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": 10,
        "file_size_in_bytes": size,
        "column_sizes": [{"key": 1, "value": 40}],
        "value_counts": [{"key": 1, "value": 10}],
        "null_value_counts": None,
        "nan_value_counts": [],
        "lower_bounds": bounds,
        "upper_bounds": bounds,
        "key_metadata": None,
        "split_offsets": [4],
        "sort_order_id": 0,
        "a_later_field": {"a": None, "b": 1.5, "c": "s3://us/not-a-path-of-ours"},
        "a_later_struct": {"digest": b"abc", "rows": [[1, 2], [], [3]], "flag": True, "ratio": 0.5},
    }
    file |= (
        {"block_size_in_bytes": 67108864}
        if version == 1
        else {"content": content, "equality_ids": None, "referenced_data_file": None}
    )
    if version == 3:
        file |= {"first_row_id": None if content else 70, "content_offset": None, "content_size_in_bytes": None}
    if content == 2:
        file["equality_ids"] = [1]
    ids = {"snapshot_id": -(2**62)} | ({"sequence_number": 3, "file_sequence_number": None} if version > 1 else {})
    return {"status": status, **ids, "data_file": file | data_file, "another_later_field": "B"}


def vector(
    path: str, referenced: str, offset: int = 4, *, status: int = 1, size: int = 1000, **data_file: Any
) -> dict[str, Any]:
    """The entry of a deletion vector, as Iceberg's Java library writes it."""
    counts = dict.fromkeys(
        ["column_sizes", "value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets"]
    )
    blob = {
        "file_format": "PUFFIN",
        "referenced_data_file": referenced,
        "content_offset": offset,
        "content_size_in_bytes": 44,
    }
    return entry(path, status=status, content=1, size=size, version=3, **(counts | blob | data_file))


def manifest_row(path: str, length: int = 100, **changes: Any) -> dict[str, Any]:
    """A row of a manifest list, for the schemas of all versions."""
    counts = {
        f"{kind}_{what}_count": number
        for number, kind in enumerate(("added", "existing", "deleted"))
        for what in ("files", "rows")
    }
    partitions = [{"contains_null": False, "contains_nan": None, "lower_bound": b"s3://us", "upper_bound": None}]
    ids = {
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 1,
        "min_sequence_number": 0,
        "added_snapshot_id": 2**62 + 3,
    }
    later = {
        "first_row_id": 70,
        "a_later_struct": {"digest": b"abc", "rows": [[1, 2], [], [3]], "flag": True, "ratio": 0.5},
    }
    return {
        "manifest_path": path,
        "manifest_length": length,
        **ids,
        **counts,
        "partitions": partitions,
        "key_metadata": None,
        **later,
    } | changes


def path_bounds(lower: str, upper: str | None = None, extra: bool = True) -> dict[str, Any]:
    others = [{"key": 2147483545, "value": struct.pack("<q", 7)}] if extra else []
    return {
        "lower_bounds": [{"key": PATH_COLUMN, "value": lower.encode()}, *others],
        "upper_bounds": [*others, {"key": PATH_COLUMN, "value": (upper or lower).encode()}],
    }


def pack(codec: str, payload: bytes) -> bytes:
    if codec == "deflate":
        return isal_zlib.compress(payload, wbits=-15)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(payload)) + isal_zlib.crc32(payload).to_bytes(4, "big")
    return bytes(cramjam.zstd.compress(payload)) if codec == "zstandard" else payload


def container(
    schema: Any, blocks: list[list[bytes]], codec: str = "null", metadata: dict[str, str] | None = None
) -> bytes:
    """An Avro file of given encoded records, a list a block.

    Its header is a map in two blocks, one of which tells its size.
    """
    header = {"avro.schema": json.dumps(schema), "avro.codec": codec, "format-version": "2"} | (metadata or {})
    pairs = b"".join(encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items())
    out = b"Obj\x01" + encode_long(-len(header)) + encode_long(len(pairs)) + pairs
    out += encode_long(1) + encode_bytes(b"a-later-key") + encode_bytes(b"s3://us/\xff\x00") + b"\x00" + SYNC
    for records in blocks:
        payload = pack(codec, b"".join(records))
        out += encode_long(len(records)) + encode_long(len(payload)) + payload + SYNC
    return out


def avro_file(
    schema: Any, records: list[Any], codec: str = "deflate", block: int = 3, seed: int = 0, **metadata: str
) -> bytes:
    """An Avro file whose arrays and maps come in all forms: one block, many blocks, blocks that tell their size."""
    rng = random.Random(seed)
    encoded = [encode(schema, record, {}, rng) for record in records]
    metadata = {key.replace("_", "-"): value for key, value in metadata.items()}
    return container(schema, [encoded[at : at + block] for at in range(0, len(encoded), block)], codec, metadata)


def encode(schema: Any, value: Any, named: dict[str, Any], rng: random.Random) -> bytes:
    """Encode a value.

    The forms of a field's arrays depend on the seed, the field's name and its value, not on other fields.
    """
    if isinstance(value, Raw):
        return value
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        number = next(number for number, branch in enumerate(schema) if _fits(branch, value))
        return encode_long(number) + encode(schema[number], value, named, rng)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return encode(kind, value, named, rng)
    if kind in ("record", "fixed", "enum"):
        named[schema["name"]] = schema
    if kind == "record":
        seed = rng.random()
        return b"".join(
            encode(field["type"], value[field["name"]], named, random.Random(f"{seed} {field['name']}"))
            for field in schema["fields"]
        )
    if kind == "array":
        return _loop([encode(schema["items"], item, named, rng) for item in value], rng)
    if kind == "map":
        return _loop(
            [encode_bytes(key.encode()) + encode(schema["values"], item, named, rng) for key, item in value.items()],
            rng,
        )
    return _simple(kind, schema, value)


def _simple(kind: str, schema: Any, value: Any) -> bytes:
    if kind in ("int", "long"):
        return encode_long(value)
    if kind in ("string", "bytes"):
        return encode_bytes(value.encode() if isinstance(value, str) else value)
    if kind == "enum":
        return encode_long(schema["symbols"].index(value))
    formats = {"float": "<f", "double": "<d", "boolean": "?"}
    return b"" if kind == "null" else value if kind == "fixed" else struct.pack(formats[kind], value)


def _loop(items: list[bytes], rng: random.Random) -> bytes:
    out = b""
    while items:
        size = rng.choice((1, 2, len(items)))
        part, items = items[:size], items[size:]
        data = b"".join(part)
        out += (
            encode_long(-len(part)) + encode_long(len(data)) if rng.random() < 0.4 else encode_long(len(part))
        ) + data
    return out + b"\x00"


def _fits(branch: Any, value: Any) -> bool:
    kind = branch["type"] if isinstance(branch, dict) else branch
    types = {
        "null": type(None),
        "int": int,
        "long": int,
        "string": str,
        "bytes": bytes,
        "fixed": bytes,
        "double": float,
        "boolean": bool,
    }
    return isinstance(value, types.get(kind, list if kind == "array" else dict))


def decode(data: bytes) -> tuple[bytes, list[Any]]:
    """The header's bytes, and all records as plain values (fastavro itself lacks zstandard here, so the blocks are
    ours).
    """
    file = open_container(data, "test")
    schema = _plain(file.schema)
    records = []
    for group in file.groups():
        stream = io.BytesIO(group.data)
        records += [fastavro.schemaless_reader(stream, schema, None) for _ in range(group.records)]
        assert stream.read() == b""
    return data[: file.header_end], records


def parts(data: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The header's bytes, and each block's number of records with its bytes before compression."""
    file = open_container(data, "test")
    groups = [(group, list(zip(group.bounds, group.bounds[1:], strict=False))) for group in file.groups()]
    return data[: file.header_end], [
        (block.count, group.data[start:end])
        for group, ends in groups
        for block, (start, end) in zip(group.blocks, ends, strict=True)
    ]


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    return [_plain(branch) for branch in schema] if isinstance(schema, list) else schema
