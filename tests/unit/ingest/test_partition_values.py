"""Iceberg's transforms, by the examples of its own specification."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import Unsupported
from sterna.pipelines.ingest.file_proof import TableShape, validate_file
from sterna.pipelines.ingest.partition_values import NULL, format_partition
from tests.support.small_world import make_world

NOON = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)
BEFORE = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "type", "hashed"),
    [
        (34, "int", 2017239379),
        (34, "long", 2017239379),
        (Decimal("14.20"), "decimal(9, 2)", -500754589),
        (date(2017, 11, 16), "date", -653330422),
        (NOON.replace(tzinfo=None), "timestamp", -2047944441),
        (NOON, "timestamptz", -2047944441),
        ("iceberg", "string", 1210000089),
        (b"\x00\x01\x02\x03", "binary", -188683207),
        (Decimal("-1.28"), "decimal(9,2)", 267099677),  # one byte, as the specification has it, and Java
        (Decimal("-327.68"), "decimal(9,2)", 1659329203),
    ],
)
@pytest.mark.parametrize("count", [1000, 999_999_999])
def test_buckets(value: Any, type: str, hashed: int, count: int) -> None:
    """Appendix B: 32-bit hash requirements."""
    assert format_partition([value], f"bucket[{count}]", type, "c") == str((hashed & 0x7FFFFFFF) % count)


@pytest.mark.parametrize(
    ("value", "transform", "type", "expected"),
    [
        (-1, "truncate[10]", "int", "-10"),
        (19, "truncate[10]", "long", "10"),
        (Decimal("-10.65"), "truncate[50]", "decimal(9, 2)", "-11.00"),
        (Decimal("9" * 36 + ".99"), "truncate[50]", "decimal(38, 2)", "9" * 36 + ".50"),
        ("ice日berg", "truncate[4]", "string", "ice日"),
        (NOON, "year", "timestamptz", "47"),
        (NOON, "month", "timestamptz", "574"),
        (NOON, "day", "timestamptz", "2017-11-16"),
        (NOON, "hour", "timestamptz", "419686"),
        (BEFORE, "year", "timestamp", "-1"),
        (BEFORE, "month", "timestamp", "-1"),
        (BEFORE, "day", "timestamp", "1969-12-31"),
        (BEFORE, "hour", "timestamp", "-1"),
        (date(2017, 11, 16), "month", "date", "574"),
        (True, "identity", "boolean", "true"),
        (Decimal("1E+3"), "identity", "decimal(9, 0)", "1000"),
        (None, "bucket[4]", "long", NULL),
        (None, "zorder[3]", "long", NULL),
        (7, "void", "long", NULL),
    ],
)
def test_other_transforms(value: Any, transform: str, type: str, expected: str) -> None:
    assert format_partition([value], transform, type, "c") == expected


@pytest.mark.parametrize(
    ("values", "transform", "type"),
    [
        ([1, 2], "identity", "long"),
        ([None, 1], "truncate[10]", "long"),
        ([9, 10], "truncate[10]", "long"),
        ([BEFORE, NOON], "year", "timestamp"),
        ([], "identity", "long"),
        ([1.5], "identity", "double"),
        ([NOON], "identity", "timestamp"),
        ([NULL], "identity", "string"),
        ([date(2017, 1, 1)], "hour", "date"),
        ([1], "zorder[3]", "long"),
        ([1], "bucket[4]x", "long"),
        ([1], "bucket[x]", "long"),
        ([f"{NULL}x"], "truncate[26]", "string"),
        ([b"x"], "truncate[1]", "binary"),
        ([1], "identity", "no type"),
    ],
)
def test_what_isn_t_one_partition_or_can_t_be_told_is_refused(values: list[Any], transform: str, type: str) -> None:
    with pytest.raises(Unsupported, match="column 'c'"):
        format_partition(values, transform, type, "c")


@pytest.mark.parametrize("default", [None, "eu"])
def test_a_file_without_the_partitions_column_lies_where_its_rows_are_read(tmp_path: Path, default: Any) -> None:
    """In a table of format 3 a column that a file lacks may have a value in all of its rows."""
    world = make_world(tmp_path)
    path = tmp_path / "eu" / "lake" / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), path)
    part = {"id": 2, "name": "part", "required": False, "type": "string"} | (
        {"initial-default": default} if default else {}
    )
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}, part]
    spec = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}]}
    schema = {"schema-id": 0, "type": "struct", "fields": fields}
    shape = TableShape.parse(
        {"schemas": [schema], "current-schema-id": 0, "partition-specs": [spec], "default-spec-id": 0}
    )
    if default is None:
        assert validate_file(world.context().objects, f"file://{path}", shape).partition == (NULL,)
    else:
        with pytest.raises(Unsupported, match="which has a default"):
            validate_file(world.context().objects, f"file://{path}", shape)
