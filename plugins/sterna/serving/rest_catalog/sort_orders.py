"""Sort orders as JSON: parsed, compared, and looked at again when the schema changes.

Source: Iceberg specification, "Sorting"; Java's `SortOrder`, `UnboundSortOrder` and `SortOrderParser`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.schemas import Schema
from sterna.serving.rest_catalog.transforms import canonical_transform, check_source

UNSORTED_ID = 0
FIRST_SORTED_ID = 1
UNSORTED: Mapping[str, Any] = {"order-id": UNSORTED_ID, "fields": []}
_DIRECTIONS = frozenset({"asc", "desc"})
_NULL_ORDERS = frozenset({"nulls-first", "nulls-last"})

Order = Mapping[str, Any]


def parse_order(content: object) -> dict[str, Any]:
    """Return a client's sort order with canonical transforms.

    Args:
        content: the JSON; a missing order-id is that of its kind.

    Raises:
        BadUpdate: it isn't one, or 0 is the id of an order that sorts, or not that of one that doesn't.
    """
    document = read.as_object(content, "sort-order")
    fields = [_parse_field(element) for element in read.array_field(document, "fields", read.as_object)]
    order_id = read.optional_field(document, "order-id", read.as_int)
    if order_id is None:
        order_id = FIRST_SORTED_ID if fields else UNSORTED_ID
    if bool(fields) is (order_id == UNSORTED_ID):
        raise BadUpdate(f"the sort order's id is {order_id}: {UNSORTED_ID} is that of what isn't sorted")
    return {**document, "order-id": order_id, "fields": fields}


def check_order(order: Order, schema: Schema) -> None:
    """Look whether a table's current schema has what an order is made of.

    Args:
        order: the default one, or one that is to be added.
        schema: the current one.

    Raises:
        BadUpdate: a source is missing, or of a type that its transform doesn't take.
    """
    for element in order["fields"]:
        column = schema.columns.get(element["source-id"])
        if column is None:
            raise BadUpdate(f"a sort field has no source: no column has the id {element['source-id']}")
        check_source(element["transform"], column, "sort")


def find_same_order(order: Order, existing: Sequence[Order]) -> Order | None:
    """Return the first order of a table that sorts in the same way.

    Args:
        order: that is to be added.
        existing: the table's.
    """
    return next((other for other in existing if _fields_key(other) == _fields_key(order)), None)


def _parse_field(document: read.Json) -> dict[str, Any]:
    return {
        **document,
        "transform": canonical_transform(read.field(document, "transform", read.as_text)),
        "source-id": read.field(document, "source-id", read.as_int),
        "direction": _one_of(document, "direction", _DIRECTIONS),
        "null-order": _one_of(document, "null-order", _NULL_ORDERS),
    }


def _one_of(document: read.Json, name: str, choices: frozenset[str]) -> str:
    choice = read.field(document, name, read.as_text).lower()
    if choice not in choices:
        raise BadUpdate(f"{name} is none of {', '.join(sorted(choices))}")
    return choice


def _fields_key(order: Order) -> list[tuple[Any, ...]]:
    names = ("transform", "source-id", "direction", "null-order")
    return [tuple(element[name] for name in names) for element in order["fields"]]
