"""Data files that Arrow writes in this process, of tables that keep rows in the order in which they came.

Rows that are handed to Spark cost some twenty times as much. What a table's properties ask of its files is done here,
or `can_write` leaves it to Spark.

Source: Apache Iceberg, "Spec", "Appendix A: Parquet", and "Configuration", "Write properties"; Apache Iceberg 1.12,
`Parquet.WriteBuilder`, `ParquetWriter`; Apache Hadoop, `ZlibFactory`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterna.libraries import pa, pq
from sterna.pipelines.ingest.column_types import FIELD_ID, Type, arrow_type, parse_fixed

_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_ROW_GROUP, _TARGET = "write.parquet.row-group-size-bytes", "write.target-file-size-bytes"
_ROW_GROUP_BYTES, _TARGET_BYTES = 128 << 20, 512 << 20  # Iceberg's defaults
_CODECS = {"zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "uncompressed": "none"}
_LEVELS = {"zstd": range(-131_072, 23), "gzip": range(-1, 10)}
"""What Arrow takes. Spark clamps others of zstd. Of gzip it takes only Hadoop's words (`BEST_SPEED`) and refuses whole
numbers, which PyIceberg takes: files get these levels from Arrow, as the only one that writes them."""
_LEVEL_TEXT, _SIZE_TEXT = re.compile(r"-?[0-9]{1,9}"), re.compile(r"[0-9]{1,18}")
_MIN_GROUP_ROWS = 100  # Iceberg's default: it looks at a row group's size after so many
_OTHER_SETTINGS = (
    "encryption.",
    "parquet.compression.codec.",
    "parquet.enable.dictionary",
    "io.compression.codec.",
    "zlib.compress.",
)
"""Properties that Iceberg's writer hands to Parquet and Hadoop, by how their names begin."""


def can_write(schema: Mapping[str, Any], properties: Mapping[str, str], size: int) -> bool:
    """Return whether Arrow writes a table's files as Iceberg's own writer does, by properties that are plain.

    Args:
        schema: of a table without partitions and order, as Iceberg's JSON writes it.
        properties: the table's.
        size: bytes of the rows in memory.
    """
    parquet = {name for name in properties if name.startswith("write.parquet.")}
    return (
        properties.get("write.format.default", "parquet").lower() == "parquet"
        and parquet <= {_CODEC, _LEVEL, _ROW_GROUP}
        and properties.get(_CODEC, "zstd").lower() in _CODECS
        and _has_plain_level(properties)
        and _read_size(properties, _ROW_GROUP, _ROW_GROUP_BYTES) > 0
        and size <= _read_size(properties, _TARGET, _TARGET_BYTES)
        and not any(name.startswith(_OTHER_SETTINGS) for name in properties)
        and all(_has_layout(field["type"]) for field in schema["fields"])
    )


def write_rows(rows: pa.Table, path: Path, schema: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Write a Parquet file with a table's field ids.

    Args:
        rows: with all columns of the table, in their order.
        path: the file to write.
        schema: the table's, as Iceberg's JSON writes it.
        properties: the table's, for which `can_write` is true.
    """
    fields = [
        _field(field["id"], field["name"], field["type"], required=bool(field.get("required")))
        for field in schema["fields"]
    ]
    group_rows = rows.num_rows * _read_size(properties, _ROW_GROUP, _ROW_GROUP_BYTES) // max(1, rows.nbytes)
    codec, level = _CODECS[properties.get(_CODEC, "zstd").lower()], properties.get(_LEVEL)
    pq.write_table(
        rows.cast(pa.schema(fields)),
        path,
        row_group_size=max(_MIN_GROUP_ROWS, min(rows.num_rows, group_rows)),
        compression=codec,
        compression_level=int(level) if level and codec in _LEVELS else None,
        store_schema=False,
        store_decimal_as_integer=True,
        write_time_adjusted_to_utc=False,
    )


def _has_plain_level(properties: Mapping[str, str]) -> bool:
    level, levels = properties.get(_LEVEL), _LEVELS.get(properties.get(_CODEC, "zstd").lower())
    if level is None or levels is None:
        return True
    return _LEVEL_TEXT.fullmatch(level) is not None and int(level) in levels


def _read_size(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a size in bytes; 0 where it isn't written in plain digits."""
    text = properties.get(name, str(default))
    return int(text) if _SIZE_TEXT.fullmatch(text) else 0


def _has_layout(type: Type) -> bool:
    """Return whether a column's values lie in Arrow as they have to in the file: a UUID is a text there, and a field
    inside of another one can't be required."""
    if isinstance(type, str):
        return type != "uuid"
    required = any(field.get("required") for field in type.get("fields", ()))
    required = required or bool(type.get("element-required") or type.get("value-required"))
    inner = [type[name] for name in ("element", "key", "value") if name in type]
    return not required and all(map(_has_layout, (*inner, *(field["type"] for field in type.get("fields", ())))))


def _field(id: int, name: str, type: Type, *, required: bool = False) -> pa.Field:
    return pa.field(name, _type(type), nullable=not required, metadata={FIELD_ID: str(id).encode()})


def _type(type: Type) -> pa.DataType:
    """Return the type of Arrow that is written as a column's, with field ids inside."""
    if isinstance(type, str):
        length = parse_fixed(type)
        return arrow_type(type) if length is None else pa.binary(length)
    if type["type"] == "list":
        return pa.list_(_field(type["element-id"], "element", type["element"]))
    if type["type"] == "map":
        key = _field(type["key-id"], "key", type["key"], required=True)
        return pa.map_(key, _field(type["value-id"], "value", type["value"]))
    return pa.struct([_field(field["id"], field["name"], field["type"]) for field in type["fields"]])
