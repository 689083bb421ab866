"""Keys, ids, values and states as they stand in the store."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.config.sections.features import Entity, FeatureView
from sterna.pipelines.features.model import (
    FIELDS,
    Column,
    State,
    Value,
    encode_columns,
    id_columns,
    is_too_old,
    join_id,
    parse_key_part,
    read_state,
    read_value,
    rows_digest,
    split_id,
    value_head,
    value_key,
    view_digest,
)

VIEW = FeatureView(name="user", entity="user", table="d.t", features=["age"], event_time="at", max_age="2h")
ENTITY = Entity(name="user", key={"user_id": "long"})


@pytest.mark.parametrize(
    ("kind", "given", "id"),
    [
        ("long", "123", "123"),
        ("long", 123, "123"),
        ("long", "-0", "0"),
        ("long", "007", "7"),
        ("long", str(2**63 - 1), str(2**63 - 1)),
        ("long", str(-(2**63)), str(-(2**63))),
        ("long", 2**63, None),
        ("long", "+5", None),
        ("long", " 5", None),
        ("long", "5.0", None),
        ("long", 5.0, None),
        ("long", True, None),
        ("long", "\u0661", None),
        ("long", "1" * 5000, None),
        ("long", None, None),
        ("int", str(2**31), None),
        ("int", 2**31 - 1, str(2**31 - 1)),
        ("string", "a:b *?", "a:b *?"),
        ("string", "", ""),
        ("string", 5, None),
        ("string", "x" * 1001, None),
        ("string", "\ud800", None),
    ],
)
def test_ids(kind: Any, given: Any, id: str | None) -> None:
    assert parse_key_part(kind, given) == id


def test_values() -> None:
    assert value_key("user", "123") == "features:user:123"
    head = value_head(1, 2, 3, 4, gone=False)
    assert read_value(head + b'["a\\nb"]') == Value(1, 2, 3, 4, ["a\nb"])
    assert read_value(value_head(1, 2, -3, 4, gone=True)) == Value(1, 2, -3, 4, None)
    # A word of a newer version is no deletion.
    assert read_value(value_head(1, 2, -3, 4, gone=True).replace(b"gone", b"late")) is None
    odd_ones = (b"", b"x", b"2 1 1 1 1 row\n[]", b"1 1 1 1 row\n[]", head, head + b"[", head + b"null", b"\xff")
    for odd in odd_ones:
        assert read_value(odd) is None


def test_states() -> None:
    assert read_state([None] * len(FIELDS)) == State()
    column = Column("age", 2, "int")
    fields = {"epoch": "5", "snapshot": "-7", "columns": encode_columns([column]), "ready": "a/0"}
    read = read_state([fields[name].encode() if name in fields else None for name in FIELDS])
    assert read == State(generation=5, snapshot=-7, columns=(column,), complete_server="a/0")


def test_ids_of_several_columns_are_lists_and_those_of_one_are_as_they_were() -> None:
    both = Entity(name="visit", key={"user_id": "long", "page": "string", "n": "int"})
    for entity, parts, id, label in (
        (ENTITY, ["123"], "123", {"user_id": "123"}),
        (both, ["-1", 'a","b', "7"], '["-1","a\\",\\"b","7"]', {"user_id": "-1", "page": 'a","b', "n": 7}),
        (both, ["1", "é/\n", "0"], '["1","é/\\n","0"]', {"user_id": "1", "page": "é/\n", "n": 0}),
    ):
        assert join_id(parts) == id
        assert split_id(entity, id) == parts
        assert id_columns(entity, id) == label
    assert join_id(["a", "b,c"]) != join_id(["a,b", "c"])


def test_the_digest_of_a_key_of_one_column_is_that_of_november_2026() -> None:
    """Another one would fill all stores anew."""
    columns, keys = [Column("age", 2, "int")], [Column("user_id", 1, "long")]
    assert rows_digest(VIEW, ENTITY, columns, keys, "uuid") == "2fc6f950a3f19030c66b9741/115bcd7a45ac6f9fab5f7b03"


def test_a_digest_tells_what_makes_other_rows() -> None:
    age, key = Column("age", 2, "int"), Column("user_id", 1, "long")
    one = rows_digest(VIEW, ENTITY, [age], [key], "uuid")
    assert one == rows_digest(VIEW, ENTITY, [age], [key], "uuid")
    assert one.partition("/")[0] == view_digest(VIEW, ENTITY)
    assert one != rows_digest(VIEW, ENTITY, [Column("age", 2, "long")], [key], "uuid"), "another type"
    assert one != rows_digest(VIEW, ENTITY, [Column("age", 3, "int")], [key], "uuid"), "another column of that name"
    assert one != rows_digest(VIEW, ENTITY, [age], [key], "other"), "another table of that name"
    assert one != rows_digest(VIEW.model_copy(update={"serve": "cache"}), ENTITY, [age], [key], "uuid")


def test_ages() -> None:
    noon = 1_767_268_800_000
    assert not is_too_old({"at": "2026-01-01T10:00:00"}, VIEW, noon)
    assert is_too_old({"at": "2026-01-01T09:59:59.999Z"}, VIEW, noon)
    assert not is_too_old({"at": "2026-01-02T00:00:00Z"}, VIEW, noon)
    assert is_too_old({"at": None}, VIEW, noon)
    assert not is_too_old({"at": None}, VIEW.model_copy(update={"max_age": None}), noon)
