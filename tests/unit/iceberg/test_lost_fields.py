"""Partition fields whose columns were dropped, by metadata.json alone. The oracle is PyIceberg's own reader.

The kind: at any depth of the schema, in each format, by several columns; what is void needs none, and metadata of
another form keeps no table from being read.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from sterna.iceberg.metadata.table import dropped_source_fields


def column(id: int, name: str, kind: Any = "long") -> dict[str, Any]:
    return {"id": id, "name": name, "required": False, "type": kind}


def part(source: int, name: str, transform: str = "identity") -> dict[str, Any]:
    return {"source-id": source, "field-id": 1000 + source, "name": name, "transform": transform}


NESTED = column(2, "s", {"type": "struct", "fields": [column(3, "x"), column(4, "y")]})
ITEMS = column(5, "xs", {"type": "list", "element-id": 6, "element-required": False, "element": "int"})
PAIRS = column(
    7, "m", {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "int", "value-required": False}
)
OLD = [column(1, "id"), NESTED]
NEW = [column(1, "id"), NESTED, ITEMS, PAIRS]


def schema(id: int, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": id, "fields": fields}


def lost(*fields: dict[str, Any], now: int = 2) -> dict[int, tuple[str, ...]]:
    specs = [{"spec-id": 0, "fields": []}, {"spec-id": 7, "fields": list(fields)}]
    schemas = [schema(1, OLD), schema(2, NEW), schema(3, [column(1, "id")])]
    return dropped_source_fields({"schemas": schemas, "current-schema-id": now, "partition-specs": specs})


@pytest.mark.parametrize("now", [1, 2, 3])
@pytest.mark.parametrize("source", range(1, 12))
def test_it_is_what_another_reader_does_not_find(source: int, now: int) -> None:
    fields = Schema.model_validate(schema(now, {1: OLD, 2: NEW, 3: [column(1, "id")]}[now]))
    spec = PartitionSpec.model_validate({"spec-id": 7, "fields": [part(source, "p")]})
    there = source in {id for id in range(1, 12) if _has(fields, id)}
    assert spec.fields[0].source_id == source
    assert lost(part(source, "p"), now=now) == ({} if there else {7: ("p",)})


def _has(fields: Schema, id: int) -> bool:
    try:
        fields.find_field(id)
    except ValueError:
        return False
    return True


def test_void_fields_and_several_columns() -> None:
    assert lost(part(99, "a", "void"), part(1, "b"), part(98, "c", "day"), part(99, "d")) == {7: ("c", "d")}
    several = {"source-ids": [1, 3], "field-id": 1000, "name": "p", "transform": "bucket[4]"}
    assert lost(several, now=1) == {}
    assert lost(several, now=3) == {7: ("p",)}


def test_format_v1_has_one_spec() -> None:
    metadata = {"schema": schema(0, [column(1, "id")]), "partition-spec": [part(2, "day"), part(1, "id")]}
    assert dropped_source_fields(metadata) == {0: ("day",)}


@pytest.mark.parametrize(
    "odd", [None, 1, "x", [], {}, [None], [[]], [{"id": [], "fields": 3}], {"fields": [{"id": {}}]}]
)
def test_what_has_another_form_says_nothing(odd: Any) -> None:
    whole = {"schemas": [schema(2, NEW)], "current-schema-id": 2, "partition-specs": [{"spec-id": 1, "fields": []}]}
    for name in whole:
        dropped_source_fields({**whole, name: odd})
    dropped_source_fields({"schema": odd, "partition-spec": odd})
    assert dropped_source_fields({**whole, "partition-specs": [{"spec-id": odd, "fields": odd}]}) == {}
    fields = [part(1, "a") | {"source-id": odd}]
    assert dropped_source_fields({**whole, "partition-specs": [{"spec-id": 1, "fields": fields}]}) == {}
