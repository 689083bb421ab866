"""Data files that Arrow writes: their schema as PyIceberg reads it, and tables that are left to Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema

from sterna.pipelines.ingest.arrow_files import can_write, write_rows

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 3, "name": "name", "required": False, "type": "string"},
        {"id": 4, "name": "amount", "required": False, "type": "decimal(9, 2)"},
        {"id": 5, "name": "at", "required": False, "type": "time"},
        {"id": 6, "name": "seen", "required": False, "type": "timestamptz"},
        {"id": 7, "name": "code", "required": False, "type": "fixed[2]"},
        {
            "id": 8,
            "name": "more",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [
                    {
                        "id": 9,
                        "name": "tags",
                        "required": False,
                        "type": {"type": "list", "element-id": 10, "element": "date", "element-required": False},
                    },
                    {
                        "id": 11,
                        "name": "by",
                        "required": False,
                        "type": {
                            "type": "map",
                            "key-id": 12,
                            "key": "string",
                            "value-id": 13,
                            "value": "double",
                            "value-required": False,
                        },
                    },
                ],
            },
        },
    ],
}


def some_rows(count: int = 3) -> pa.Table:
    """Rows as a worker has them: each type as `arrow_type` says, without field ids."""
    more = pa.struct({"tags": pa.list_(pa.date32()), "by": pa.map_(pa.string(), pa.float64())})
    columns = {
        "id": pa.array(range(count), pa.int64()),
        "name": pa.array(["a"] * count),
        "amount": pa.array([Decimal("1.25")] * count, pa.decimal128(9, 2)),
        "at": pa.array([dt.time(1, 2, 3, 4)] * count, pa.time64("us")),
        "seen": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * count, pa.timestamp("us", "UTC")),
        "code": pa.array([b"ab"] * count, pa.binary()),
        "more": pa.array([{"tags": [dt.date(2026, 1, 1), None], "by": [("k", 0.5)]}] * count, more),
    }
    return pa.table(columns)


def test_a_file_has_the_table_s_fields_and_the_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "file", some_rows()
    write_rows(rows, path, SCHEMA, {})
    with pq.ParquetFile(path) as file:
        assert pyarrow_to_schema(file.schema_arrow) == Schema.model_validate(SCHEMA)
        assert file.read().to_pylist() == rows.to_pylist()
        physical = {file.schema.column(number).path: file.schema.column(number) for number in range(4)}
        assert physical["amount"].physical_type == "INT32"  # as Iceberg has decimals of up to nine digits
        assert "isAdjustedToUTC=false" in str(physical["at"].logical_type)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "uncompressed", "ZSTD"])
def test_a_file_is_compressed_as_the_table_has_it(tmp_path: Path, codec: str) -> None:
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": "5"}
    assert can_write(SCHEMA, properties, 1)
    write_rows(some_rows(), tmp_path / "file", SCHEMA, properties)
    assert pq.read_metadata(tmp_path / "file").row_group(0).column(0).compression == codec.upper()


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        ("zstd", "-131072"),
        ("zstd", "0"),
        ("zstd", "22"),
        ("gzip", "-1"),
        ("gzip", "0"),
        ("gzip", "9"),
        ("snappy", "x"),  # without levels, and Spark ignores it
        ("uncompressed", ""),
    ],
)
def test_levels_at_the_edges_of_a_codec_are_written(tmp_path: Path, codec: str, level: str) -> None:
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": level}
    assert can_write(SCHEMA, properties, 1)
    write_rows(some_rows(), tmp_path / "file", SCHEMA, properties)
    assert pq.read_table(tmp_path / "file").num_rows == 3


def test_row_groups_are_as_large_as_the_table_has_them(tmp_path: Path) -> None:
    rows = some_rows(1_000)
    for size, groups in ((rows.nbytes // 4, {4, 5}), (1, {10}), (10**18 - 1, {1})):
        properties = {"write.parquet.row-group-size-bytes": str(size)}
        assert can_write(SCHEMA, properties, 1)
        write_rows(rows, tmp_path / "file", SCHEMA, properties)
        assert pq.read_metadata(tmp_path / "file").num_row_groups in groups
    write_rows(rows.slice(0, 0), tmp_path / "file", SCHEMA, {})
    assert pq.read_metadata(tmp_path / "file").num_rows == 0


def test_a_row_without_a_value_that_it_has_to_have_is_not_written(tmp_path: Path) -> None:
    rows = some_rows().set_column(0, "id", pa.array([1, None, 3], pa.int64()))
    with pytest.raises(ValueError, match="null"):
        write_rows(rows, tmp_path / "file", SCHEMA, {})


@pytest.mark.parametrize(
    "properties",
    [
        {"write.format.default": "orc"},
        {"write.parquet.compression-codec": "lz4"},
        {"write.parquet.bloom-filter-enabled.column.id": "true"},
        {"write.parquet.page-size-bytes": "4096"},
        {"write.target-file-size-bytes": "1023"},
        {"encryption.key-id": "k"},
        {"parquet.compression.codec.zstd.level": "19"},
        {"parquet.enable.dictionary": "false"},
        {"io.compression.codec.zstd.level": "19"},
        {"zlib.compress.level": "BEST_SPEED"},
        *(
            {"write.parquet.compression-codec": codec, "write.parquet.compression-level": level}
            for codec, levels in {
                "gzip": ("BEST_SPEED", " BEST_SPEED ", "best_speed", "10", "-2", "", "5.0", "\u0665"),
                "ZSTD": ("x", "", " 3 ", "+3", "0x3", "3_0", "1.5", "23", "-131073", "9" * 30, "\u0663"),
            }.items()
            for level in levels
        ),
        *(
            {name: value}
            for name in ("write.parquet.row-group-size-bytes", "write.target-file-size-bytes")
            for value in ("0", "-1", "x", "", "1e6", "1_000_000", " 5000", "9" * 30, "\u0665" * 8)
        ),
    ],
)
def test_what_arrow_would_write_otherwise_is_left_to_spark(properties: dict[str, str]) -> None:
    assert can_write(SCHEMA, {"write.wap.enabled": "true", "write.metadata.metrics.default": "full"}, 1024)
    assert not can_write(SCHEMA, properties, 1024)


@pytest.mark.parametrize(
    "type",
    [
        "uuid",
        {"type": "list", "element-id": 2, "element": "uuid", "element-required": False},
        {"type": "list", "element-id": 2, "element": "long", "element-required": True},
        {"type": "map", "key-id": 2, "key": "uuid", "value-id": 3, "value": "long", "value-required": False},
        {"type": "map", "key-id": 2, "key": "long", "value-id": 3, "value": "long", "value-required": True},
        {"type": "struct", "fields": [{"id": 2, "name": "a", "required": True, "type": "long"}]},
    ],
)
def test_a_column_that_lies_in_arrow_otherwise_is_left_to_spark(type: Any) -> None:
    field = {"id": 1, "name": "it", "required": False, "type": type}
    assert not can_write({"type": "struct", "fields": [field]}, {}, 1)
