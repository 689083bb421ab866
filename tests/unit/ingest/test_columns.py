"""Which values a column takes: types of a drop beside those of a table, whose fields have ids."""

from __future__ import annotations

import pytest

from sterna.errors import BadDrop
from sterna.pipelines.ingest.column_types import Type
from sterna.pipelines.ingest.columns import Column, fits, has_columns, plan_evolution

LIST: Type = {"type": "list", "element-id": 5, "element": "string", "element-required": False}
STRUCT: Type = {"type": "struct", "fields": [{"id": 7, "name": "x", "required": False, "type": "long"}]}
TABLE = (Column("id", "long"), Column("tags", LIST), Column("more", STRUCT))


def listed(element: Type) -> Type:
    return {"type": "list", "element": element}


def struct(**fields: Type) -> Type:
    return {"type": "struct", "fields": [{"name": name, "type": type} for name, type in fields.items()]}


@pytest.mark.parametrize(
    ("brought", "have", "answer"),
    [
        ("int", "long", True),
        ("long", "int", False),
        (listed("string"), LIST, True),
        (listed("long"), LIST, False),
        (struct(x="int"), STRUCT, True),
        (struct(y="int"), STRUCT, False),
        (struct(x="int"), "long", False),
        ("long", STRUCT, False),
        (listed("string"), STRUCT, False),
        ("string", "uuid", True),
        ("decimal(9,2)", "decimal(12,2)", True),
    ],
)
def test_a_column_takes_what_it_holds_exactly(brought: Type, have: Type, answer: bool) -> None:
    assert fits(brought, have) is answer


def test_columns_with_fields_of_their_own_come_again() -> None:
    again = (Column("tags", listed("string")), Column("more", struct(x="long")))
    assert has_columns(TABLE, again)
    assert not plan_evolution(TABLE, again, "none")
    assert not has_columns(TABLE, (Column("new", "long"),))


def test_columns_over_the_limit_are_refused_before_the_schema_is_evolved() -> None:
    """Evolving is quadratic: it would take minutes, and the batch would be tried again."""
    incoming = tuple(Column(f"c{number}", "long") for number in range(20_000))
    with pytest.raises(BadDrop, match="more than 19999 columns"):
        plan_evolution((), incoming, "add", 19_999)
    assert len(plan_evolution((), incoming, "add", 20_000).changes) == 20_000


def test_fields_inside_of_structs_count_and_wider_columns_do_not() -> None:
    """Four there, and three that are new."""
    incoming = (Column("more", struct(x="long", y="long")), Column("new", struct(a="long", b=listed("long"))))
    table = (*TABLE, Column("small", "int"))
    assert len(plan_evolution(table, incoming, "add", 7).changes) == 2
    with pytest.raises(BadDrop, match="more than 6 columns"):
        plan_evolution(table, incoming, "add", 6)
    assert plan_evolution(table, (Column("small", "long"),), "widen", 1).changes
