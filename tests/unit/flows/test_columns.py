"""Columns of a source that are others than they were when a flow's target was made.

The kind: a name is believed to be the column. A column dropped and added anew, two whose names were swapped, one that
got a wider type, at any depth of a struct, list or map; one that came with a default for old rows. What the flow
doesn't read may change, and so may comments, order and whether nulls are allowed.
"""

from __future__ import annotations

from typing import Any

import pytest

from sterna.flows.columns import changed_columns


def field(id: int, name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "required": False, "type": kind, **more}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": 1, "fields": list(fields)}


def changed(old: list[dict[str, Any]], new: list[dict[str, Any]], used: str = "a b s") -> list[str]:
    return list(changed_columns(schema(*old), schema(*new), used.split()))


A, B = field(1, "a"), field(2, "b", "int")


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([field(3, "a"), B], ["a was dropped and added anew"]),
        ([A, field(2, "b", "long")], ["b was int and is long"]),
        ([field(2, "a", "int"), field(1, "b")], ["a was b", "b was a"]),
        ([field(1, "b"), field(3, "a")], ["b was a", "a was dropped and added anew"]),
        ([A, B, field(3, "s", **{"initial-default": 7})], ["s came, with a value for rows from before"]),
    ],
)
def test_a_column_that_is_another_one(new: list[dict[str, Any]], expected: list[str]) -> None:
    assert changed([A, B], new) == expected


@pytest.mark.parametrize(
    "new",
    [
        [A, B],
        [B, A],
        [A, B, field(3, "s")],
        [A | {"doc": "said"}, B | {"required": True}],
        [A, B, field(9, "z", "string")],
    ],
)
def test_a_column_that_is_the_same_one(new: list[dict[str, Any]]) -> None:
    assert changed([A, B], new) == []


def test_what_is_not_read_may_change() -> None:
    assert changed([A, B], [A, field(3, "b", "string")], "a") == []


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (struct(field(5, "x", "int")), struct(field(5, "x", "long")), False),
        (struct(field(5, "x")), struct(field(6, "x")), False),
        (struct(field(5, "x")), struct(field(5, "y")), False),
        (struct(field(5, "x")), struct(field(5, "x", doc="d")), True),
        (
            {"type": "list", "element-id": 5, "element": "int", "element-required": False},
            {"type": "list", "element-id": 5, "element": "long", "element-required": False},
            False,
        ),
        (
            {"type": "list", "element-id": 5, "element": struct(field(6, "x")), "element-required": True},
            {"type": "list", "element-id": 5, "element": struct(field(6, "x")), "element-required": False},
            True,
        ),
        (
            {"type": "map", "key-id": 5, "key": "string", "value-id": 6, "value": "float", "value-required": False},
            {"type": "map", "key-id": 5, "key": "string", "value-id": 6, "value": "double", "value-required": False},
            False,
        ),
    ],
)
def test_types_at_any_depth(old: Any, new: Any, same: bool) -> None:
    assert (changed([field(3, "s", old)], [field(3, "s", new)]) == []) is same
