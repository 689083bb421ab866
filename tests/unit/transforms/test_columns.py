"""Columns of a source that are others than they were when a flow's target was made.

The kind: a name is believed to be the column. A column dropped and added anew, two whose names were swapped, one that
got a wider type, at any depth of a struct, list or map; one that came with a default for old rows. What the flow
doesn't read may change, a field of a struct too, and so may comments, order and whether nulls are allowed.
"""

from __future__ import annotations

from typing import Any

import pytest

from sterna.pipelines.transforms.columns import changed_columns


def field(id: int, name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "required": False, "type": kind, **more}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": 1, "fields": list(fields)}


def changed(old: list[dict[str, Any]], new: list[dict[str, Any]], used: str = "a b s") -> list[str]:
    return list(changed_columns(schema(*old), schema(*new), [tuple(path.split(".")) for path in used.split()]))


A, B = field(1, "a"), field(2, "b", "int")


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([field(3, "a"), B], ["a was dropped and added again"]),
        ([A, field(2, "b", "long")], ["b was int and is long"]),
        ([field(2, "a", "int"), field(1, "b")], ["a was b", "b was a"]),
        ([field(1, "b"), field(3, "a")], ["b was a", "a was dropped and added again"]),
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


POINT = [field(5, "x", "int"), field(6, "y", "int"), field(7, "in", struct(field(8, "a", "int"), field(9, "b", "int")))]


def items(element: Any, id: int = 10) -> dict[str, Any]:
    return {"type": "list", "element-id": id, "element": element, "element-required": False}


def pairs(value: Any, key: Any = "string") -> dict[str, Any]:
    return {"type": "map", "key-id": 11, "key": key, "value-id": 12, "value": value, "value-required": False}


def swapped(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fields[0] | {"name": "y"}, fields[1] | {"name": "x"}, *fields[2:]]


DEEP = [*POINT[:2], field(7, "in", struct(field(8, "a", "long"), field(9, "b", "int")))]


@pytest.mark.parametrize(
    ("new", "used", "expected"),
    [
        # A field of a struct alone is read: the others may change.
        ([*POINT, field(13, "z")], "s.x", []),
        ([POINT[0], field(14, "y")], "s.x", []),
        ([POINT[0] | {"type": "long"}, *POINT[1:]], "s.y s.in", []),
        (DEEP, "s.x s.in.b", []),
        ([*POINT[:2], field(15, "in", "int")], "s.x", []),
        # And what is read is compared, at any depth.
        (DEEP, "s.in.a", ["s.in.a was int and is long"]),
        (DEEP, "s.in", ["s.in was struct and is struct"]),
        (DEEP, "s", ["s was struct and is struct"]),
        (swapped(POINT), "s.x", ["s.x was s.y"]),
        ([field(16, "x", "int"), *POINT[1:]], "s.x", ["s.x was dropped and added again"]),
        ([*POINT, field(13, "z", **{"initial-default": 7})], "s.z", ["s.z came, with a value for rows from before"]),
        ([*POINT, field(13, "z", **{"initial-default": 7})], "s.x", []),
        ([*POINT[:2], field(7, "in", "int")], "s.in.a", ["s.in was struct and is int"]),
    ],
)
def test_fields_of_a_struct(new: list[dict[str, Any]], used: str, expected: list[str]) -> None:
    assert changed([field(3, "s", struct(*POINT))], [field(3, "s", struct(*new))], used) == expected
    # The same where the struct is a list's element.
    lists = [field(3, "s", items(struct(*fields))) for fields in (POINT, new)]
    inner = " ".join(path.replace("s.", "s.element.", 1) for path in used.split())
    whole = {"s was struct and is struct": "s was list and is list"}
    assert changed(lists[:1], lists[1:], inner) == [whole.get(text, text) for text in expected]


@pytest.mark.parametrize(
    ("old", "new", "used", "expected"),
    [
        (pairs(struct(*POINT)), pairs(struct(*DEEP)), "s.value.x", []),
        (pairs(struct(*POINT)), pairs(struct(*DEEP)), "s.value.in.a", ["s.in.a was int and is long"]),
        (pairs(struct(*POINT)), pairs(struct(*POINT), "int"), "s.value.x", ["s was map and is map"]),
        (pairs("int"), pairs("long"), "s.value", ["s was int and is long"]),
        (items(struct(*POINT)), items(struct(*DEEP)), "s.element.x", []),
        (items(struct(*POINT)), items(struct(*POINT), 99), "s.element.x", ["s was list and is list"]),
        (items("int"), items("long"), "s.element", ["s was int and is long"]),
        (items("int"), pairs("int"), "s.element", ["s was list and is map"]),
    ],
)
def test_ways_into_lists_and_maps(old: Any, new: Any, used: str, expected: list[str]) -> None:
    assert changed([field(3, "s", old)], [field(3, "s", new)], used) == expected
