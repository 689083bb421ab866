"""A file of a drop is taken whole, or refused by name: nothing of it is passed over that this version doesn't know."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import BadDrop
from sterna.pipelines.cdc.apply import read_rows
from sterna.pipelines.cdc.change_buffer import SEQUENCE
from sterna.pipelines.cdc.journal import Part
from sterna.pipelines.ingest.columns import Column

_PART = Part("s3://x/1.parquet", 1, 1, (Column("id", "int"),))


@dataclass(frozen=True)
class Stored:
    """A store that has one file."""

    table: pa.Table

    def read(self, uri: str) -> bytes:
        sink = io.BytesIO()
        pq.write_table(self.table, sink)
        return sink.getvalue()


def rows(operation: str = "u", **more: Any) -> pa.Table:
    columns = {"id": pa.array([1], pa.int32()), "_sterna_seq": pa.array([1], pa.int64()), "_sterna_op": [operation]}
    columns |= {"_sterna_absent": pa.array([[]], pa.list_(pa.string()))}
    columns |= {"_sterna_ts": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))}
    return pa.table({**columns, **more})


@pytest.mark.parametrize("operation", ["u", "d", "t"])
def test_known_operations_are_taken(operation: str) -> None:
    table = read_rows(cast(Any, Stored(rows(operation))), [(1, _PART)])
    assert table is not None
    assert table.num_rows == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (rows("x"), "an operation 'x'"),
        (rows(_sterna_before=[1]), "a column _sterna_before"),
        (pa.concat_tables([rows(), rows()]), "it has 2 rows"),
    ],
)
@pytest.mark.parametrize("columns", [[], ["id", "_sterna_seq", "_sterna_op"]])
def test_what_this_version_does_not_know_is_refused(table: pa.Table, said: str, columns: list[str]) -> None:
    if columns and "column" in said:
        return  # of keys alone, no other column is read
    with pytest.raises(BadDrop, match=said):
        read_rows(cast(Any, Stored(table)), [(1, _PART)], columns)


@pytest.mark.parametrize("columns", [[], ["id", "_sterna_seq", "_sterna_op"]])
def test_rows_of_a_later_drop_come_after_those_of_an_earlier_one_wherever_a_reader_began_to_count(
    columns: list[str],
) -> None:
    def place(number: int, counted: int) -> int:
        read = read_rows(cast(Any, Stored(rows(_sterna_seq=[counted]))), [(number, _PART)], columns)
        assert read is not None
        (sequence,) = read[SEQUENCE].to_pylist()
        return int(sequence)

    assert place(1, 1 << 30) < place(2, 1)
