"""Which bounds of a footer are taken for a file's."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sterna.pipelines.ingest.file_metrics import float_ids, has_nan, incomplete_ids

LONG = "z" * 5000
SCHEMA = {
    "fields": [
        {"id": 1, "name": "n", "type": "long"},
        {"id": 2, "name": "t", "type": "string"},
        {"id": 3, "name": "d", "type": "double"},
        {"id": 4, "name": "s", "type": {"type": "struct", "fields": [{"id": 5, "name": "f", "type": "float"}]}},
        {"id": 6, "name": "l", "type": {"type": "list", "element-id": 7, "element": "string"}},
    ]
}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([["a", "b"], ["c"]], False),
        ([["a", "b"], [LONG]], True),
        ([[LONG], ["a"]], True),
        ([[LONG], [LONG]], False),  # a file without bounds is read
        ([["a"], [None]], False),
        ([[None], [None]], False),
        ([["a"], [None, LONG]], True),
        ([[LONG]], False),
    ],
)
def test_a_row_group_without_bounds_beside_others_is_a_gap(
    tmp_path: Path, groups: list[list[str | None]], expected: bool
) -> None:
    path = tmp_path / "file.parquet"
    with parquet.ParquetWriter(path, pa.schema([("n", pa.int64()), ("t", pa.string())])) as writer:
        for values in groups:
            writer.write_table(pa.table({"n": list(range(len(values))), "t": pa.array(values, pa.string())}))
    assert incomplete_ids(parquet.read_metadata(path), SCHEMA) == ({2} if expected else set())


def test_one_without_statistics_has_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    parquet.write_table(pa.table({"t": ["a", "b"]}), path, row_group_size=1, write_statistics=False)
    assert not incomplete_ids(parquet.read_metadata(path), SCHEMA)


def with_id(name: str, type: pa.DataType, id: int) -> pa.Field:
    return pa.field(name, type, metadata={"PARQUET:field_id": str(id)})


@pytest.mark.parametrize(
    ("field", "column", "expected"),
    [
        (pa.field("s", pa.struct([("f", pa.string())])), [{"f": "a"}, {"f": LONG}], {5}),
        # Of what is inside of lists and maps Iceberg takes no bounds.
        (pa.field("l", pa.list_(pa.string())), [["a"], [LONG]], set()),
        (with_id("a_x2Eb", pa.string(), 9), ["a", LONG], {9}),
        (
            with_id("c_x2Ed", pa.struct([with_id("e_x2Ef", pa.string(), 8)]), 9),
            [{"e_x2Ef": "a"}, {"e_x2Ef": LONG}],
            {8},
        ),
    ],
)
def test_a_column_is_known_by_its_id_in_the_file_and_by_its_name_else(
    tmp_path: Path, field: pa.Field, column: list[Any], expected: set[int]
) -> None:
    """Iceberg's writers spell names as Avro has them."""
    path = tmp_path / "file.parquet"
    parquet.write_table(pa.table([pa.array(column, field.type)], schema=pa.schema([field])), path, row_group_size=1)
    assert incomplete_ids(parquet.read_metadata(path), SCHEMA) == expected


def test_floats_are_found_inside_of_structs() -> None:
    assert float_ids(SCHEMA) == {3, 5}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1.0, None]), False),
        (pa.array([1.0, math.nan]), True),
        (pa.array([None, None], pa.float32()), False),
        (pa.array([{"f": 1.0}, {"f": math.nan}]), True),
        (pa.array([{"f": 1.0}, None]), False),
        (pa.array([[math.nan]]), False),
        (pa.array(["nan"]), False),
    ],
)
def test_nan_is_seen_where_there_are_bounds(column: Any, expected: bool) -> None:
    assert has_nan(pa.table({"c": column})) is expected
