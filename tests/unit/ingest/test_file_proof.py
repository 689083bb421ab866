"""Which files may become a table's: required columns, also those inside of others, have a value in each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import BadDrop
from sterna.pipelines.ingest.file_proof import ProvenFile, TableShape, validate_file
from tests.support.small_world import make_world

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])


def field(id: int, name: str, type: Any, *, required: bool = True) -> dict[str, Any]:
    return {"id": id, "name": name, "required": required, "type": type}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def list_of(element: Any, *, required: bool) -> dict[str, Any]:
    return {"type": "list", "element-id": 20, "element": element, "element-required": required}


def map_of(key: Any, value: Any, *, required: bool) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": 30,
        "key": key,
        "value-id": 31,
        "value": value,
        "value-required": required,
    }


AB = struct(field(10, "a", "long"), field(11, "b", "string", required=False))


def proven(tmp_path: Path, table: pa.Table, *fields: dict[str, Any]) -> ProvenFile:
    world = make_world(tmp_path)
    path = tmp_path / "eu" / "lake" / "a.parquet"
    pq.write_table(table, path, row_group_size=2)
    return validate_file(world.context().objects, f"file://{path}", TableShape(struct(*fields)))


CASES: list[tuple[str, pa.Array, dict[str, Any], str]] = [
    ("a primitive", pa.array([1, None]), field(1, "c", "long"), "c"),
    ("a struct", pa.array([{"a": 1}, None], INNER), field(1, "c", AB), "c"),
    ("a field", pa.array([{"a": 1}, {"a": None}], INNER), field(1, "c", AB), "c.a"),
    ("of an optional struct", pa.array([None, {"b": "x"}], INNER), field(1, "c", AB, required=False), "c.a"),
    ("a list", pa.array([[1], None], pa.list_(pa.int64())), field(1, "c", list_of("long", required=False)), "c"),
    (
        "an element",
        pa.array([[1], None, [2, None]], pa.list_(pa.int64())),
        field(1, "c", list_of("long", required=True), required=False),
        "c.element",
    ),
    (
        "a field of an element",
        pa.array([[], [{"a": 1}, None], [{"b": "x"}]], pa.large_list(INNER)),
        field(1, "c", list_of(AB, required=False), required=False),
        "c.element.a",
    ),
    (
        "a map",
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        field(1, "c", map_of("string", "long", required=False)),
        "c",
    ),
    (
        "a value",
        pa.array([[("k", 1)], None, [("l", None)]], pa.map_(pa.string(), pa.int64())),
        field(1, "c", map_of("string", "long", required=True), required=False),
        "c.value",
    ),
    (
        "a field of a value",
        pa.array([None, [("k", {"a": 1}), ("l", None)], [("m", {"b": "x"})]], pa.map_(pa.string(), INNER)),
        field(1, "c", map_of("string", AB, required=False), required=False),
        "c.value.a",
    ),
    (
        "a field of a key",
        pa.array([[({"a": 1}, 1)], [({"b": "x"}, 1)]], pa.map_(INNER, pa.int64())),
        field(1, "c", map_of(AB, "long", required=False), required=False),
        "c.key.a",
    ),
    (
        "deep inside",
        pa.array(
            [{"l": [[("k", 1)], None]}, {"l": [[("k", None)]]}],
            pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.int64())))]),
        ),
        field(1, "c", struct(field(2, "l", list_of(map_of("string", "long", required=True), required=False)))),
        "c.l.element.value",
    ),
    (
        "of a dictionary",
        pa.array([{"b": "x"}, {"b": None}], pa.struct([("b", pa.dictionary(pa.int32(), pa.string()))])),
        field(1, "c", struct(field(11, "b", "string"))),
        "c.b",
    ),
]


@pytest.mark.parametrize(("column", "table_field", "path"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_a_row_without_a_value_that_it_has_to_have_is_refused(
    tmp_path: Path, column: pa.Array, table_field: dict[str, Any], path: str
) -> None:
    with pytest.raises(BadDrop, match=f"column '{path}' is required, and has rows without a value"):
        proven(tmp_path, pa.table({"c": column}), table_field)


@pytest.mark.parametrize(("column", "table_field"), [pytest.param(*case[1:3], id=case[0]) for case in CASES])
def test_rows_that_have_all_that_they_have_to_have_are_proven(
    tmp_path: Path, column: pa.Array, table_field: dict[str, Any]
) -> None:
    """The first row of each is whole: what is inside of a value that is null isn't missing."""
    whole = pa.concat_arrays([column.slice(0, 1)] * 3)
    assert proven(tmp_path, pa.table({"c": whole}), table_field).rows == 3


def test_a_column_that_the_file_lacks_has_nothing_inside(tmp_path: Path) -> None:
    fields = (field(1, "id", "long"), field(2, "c", AB, required=False))
    assert proven(tmp_path, pa.table({"id": [1]}), *fields).rows == 1
