"""Partition specs as JSON: bound to a schema, compared, and looked at again when the schema changes.

Source: Iceberg specification, "Partitioning"; Java's `PartitionSpec`, `UnboundPartitionSpec` and `PartitionSpecParser`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.schemas import Schema
from sterna.serving.rest_catalog.transforms import VOID, canonical_transform, check_source

FIRST_FIELD_ID = 1000
UNPARTITIONED_LAST_ID = FIRST_FIELD_ID - 1

Spec = Mapping[str, Any]


def parse_spec(content: object) -> dict[str, Any]:
    """Return a client's spec with canonical transforms; its fields have ids, all or none.

    Args:
        content: the JSON.

    Raises:
        BadUpdate: it isn't one.
    """
    document = read.as_object(content, "spec")
    fields = [_parse_field(element) for element in read.array_field(document, "fields", read.as_object)]
    with_ids = sum("field-id" in element for element in fields)
    if with_ids not in (0, len(fields)):
        raise BadUpdate(f"the spec has fields without a field-id: {len(fields) - with_ids} of {len(fields)}")
    return {**document, "spec-id": read.optional_field(document, "spec-id", read.as_int) or 0, "fields": fields}


def with_field_ids(spec: Spec, existing: Iterable[Spec], last_field_id: int) -> dict[str, Any]:
    """Return a spec whose fields all have ids: where it has none, those of equal fields, or new ones.

    Args:
        spec: parsed.
        existing: the table's specs, in which a field of the same source and transform has its id already.
        last_field_id: the highest one that the table ever gave.
    """
    used = {_meaning(element): element["field-id"] for other in existing for element in other["fields"]}
    fields = []
    for element in spec["fields"]:
        field_id = element.get("field-id", used.get(_meaning(element)))
        if field_id is None:
            last_field_id = field_id = last_field_id + 1
        fields.append({**element, "field-id": field_id})
    return {**spec, "fields": fields}


def check_spec(spec: Spec, schema: Schema) -> None:
    """Look whether a table's current schema has what a spec is made of.

    Args:
        spec: the default one, or one that is to be added.
        schema: the current one.

    Raises:
        BadUpdate: a source is missing, within a list or map, or of a type that its transform doesn't take.
    """
    for element in spec["fields"]:
        if element["transform"] == VOID:
            continue
        column = schema.columns.get(element["source-id"])
        if column is None:
            raise BadUpdate(f"the partition field {element['name']} has no source: no column is {element['source-id']}")
        check_source(element["transform"], column, "partition")
        if any(parent.type_name != "struct" for parent in schema.ancestors(column)):
            raise BadUpdate(f"the partition field {element['name']} has a source within a list or a map")


def check_names(spec: Spec, schema: Schema) -> None:
    """Look whether a spec's names are free: Java reads no table in which they aren't.

    Args:
        spec: any of the table's, also one that is not the default.
        schema: the current one.

    Raises:
        BadUpdate: a name is empty, there twice, or a column's that isn't its source.
    """
    names: set[str] = set()
    for element in spec["fields"]:
        name = element["name"]
        if not name or name in names:
            raise BadUpdate(f"a partition field has no name of its own: {name!r}")
        names.add(name)
        source_id = element["source-id"]
        if source_id in schema.columns and schema.ids.get(name, source_id) != source_id:
            raise BadUpdate(f"the partition field {name} has the name of a column that isn't its source")


def check_sequential(spec: Spec) -> None:
    """Look whether a spec's field ids count up from 1000, as format version 1 has them.

    Args:
        spec: that is to be added to a table of version 1.

    Raises:
        BadUpdate: they don't.
    """
    if any(element["field-id"] != FIRST_FIELD_ID + at for at, element in enumerate(spec["fields"])):
        raise BadUpdate(f"a spec of format version 1 has field ids that count up from {FIRST_FIELD_ID}")


def find_compatible(spec: Spec, existing: Sequence[Spec]) -> Spec | None:
    """Return the first spec of a table that has the same sources, transforms and names in the same order.

    Args:
        spec: that is to be added.
        existing: the table's.
    """
    return next((other for other in existing if _fields_key(other) == _fields_key(spec)), None)


def last_field_id(spec: Spec) -> int:
    """Return a spec's highest field id; 999 without any field."""
    return max((element["field-id"] for element in spec["fields"]), default=UNPARTITIONED_LAST_ID)


def _parse_field(document: read.Json) -> dict[str, Any]:
    transform = canonical_transform(read.field(document, "transform", read.as_text))
    kept = {**document, "name": read.field(document, "name", read.as_text), "transform": transform}
    kept["source-id"] = read.field(document, "source-id", read.as_int)
    if document.get("field-id") is None:
        kept.pop("field-id", None)
    else:
        kept["field-id"] = read.field(document, "field-id", read.as_int)
    return kept


def _meaning(element: Mapping[str, Any]) -> tuple[int, str]:
    return element["source-id"], element["transform"]


def _fields_key(spec: Spec) -> list[tuple[int, str, str]]:
    return [(element["source-id"], element["transform"], element["name"]) for element in spec["fields"]]
