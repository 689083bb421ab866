"""Which bounds of a footer are taken for a file's."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sterna.pipelines.ingest.file_metrics import has_gaps, has_nan, limit_metrics

LONG = "z" * 5000
SCHEMA = {
    "fields": [
        {"id": 1, "name": "d", "type": "double"},
        {"id": 2, "name": "s", "type": {"type": "struct", "fields": [{"id": 3, "name": "f", "type": "float"}]}},
        {"id": 4, "name": "t", "type": "string"},
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
    assert has_gaps(parquet.read_metadata(path)) is expected


def test_one_without_statistics_has_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    parquet.write_table(pa.table({"t": ["a", "b"]}), path, row_group_size=1, write_statistics=False)
    assert not has_gaps(parquet.read_metadata(path))


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


@pytest.mark.parametrize(
    ("properties", "gaps", "nan", "changed"),
    [
        ({}, False, False, {}),
        ({}, False, True, {"column.d": "counts", "column.s.f": "counts"}),
        ({}, True, True, {"default": "counts"}),
        ({"default": "none"}, True, False, {}),
        (
            {"default": "full", "column.t": "full", "column.d": "none"},
            True,
            False,
            {"default": "counts", "column.t": "counts"},
        ),
        ({"column.d": "full"}, False, True, {"column.d": "counts", "column.s.f": "counts"}),
    ],
)
def test_modes_are_those_whose_bounds_hold(
    properties: dict[str, str], gaps: bool, nan: bool, changed: dict[str, str]
) -> None:
    prefix = "write.metadata.metrics."
    given = {f"{prefix}{name}": mode for name, mode in properties.items()} | {"x": "y"}
    wanted = given | {f"{prefix}{name}": mode for name, mode in changed.items()}
    assert limit_metrics(SCHEMA, given, has_gaps=gaps, has_nan=nan) == wanted
