"""The metadata of a table that a client makes in one request: all ids are assigned again.

Source: Iceberg's REST specification, `CreateTableRequest`; Java's `TableMetadata.newTableMetadata`, `AssignFreshIds`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.metadata_draft import stripped_location
from sterna.serving.rest_catalog.metadata_updates import DEFAULT_FORMAT_VERSION, empty_metadata
from sterna.serving.rest_catalog.partition_specs import (
    UNPARTITIONED_LAST_ID,
    check_names,
    check_spec,
    last_field_id,
    parse_spec,
    with_field_ids,
)
from sterna.serving.rest_catalog.schemas import Schema, check_format_version, parse_schema
from sterna.serving.rest_catalog.sort_orders import FIRST_SORTED_ID, UNSORTED, UNSORTED_ID, check_order, parse_order
from sterna.serving.rest_catalog.table_draft import MAX_FORMAT_VERSION, TableDraft, finish_draft

_FORMAT_VERSION = "format-version"
_RESERVED = frozenset(
    {
        _FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Properties that say what the metadata itself says: they are never stored. Source: Java's `TableProperties`."""
_NEW_TABLE_PROPERTIES = {"write.parquet.compression-codec": "zstd"}


def create_table_metadata(request: Mapping[str, Any], location: str, now_ms: int) -> dict[str, Any]:
    """Return the metadata of a table that is made, or staged, by a request.

    Args:
        request: a CreateTableRequest; the property `format-version` says which version is wanted.
        location: of the table.
        now_ms: when it is made.

    Raises:
        BadUpdate: the request is malformed, or its spec or order doesn't fit its schema.
    """
    properties = read.optional_field(request, "properties", read.text_map) or {}
    version = _format_version(properties)
    sent = parse_schema(read.field(request, "schema", read.as_object))
    check_format_version(sent, version)
    schema, new_ids = _with_fresh_ids(sent)
    document = empty_metadata(version, now_ms) | {
        "table-uuid": str(uuid.uuid4()),
        "location": stripped_location(location),
        "last-column-id": schema.highest_column_id,
        "schemas": [schema.document],
        "properties": {
            **_NEW_TABLE_PROPERTIES,
            **{name: text for name, text in properties.items() if name not in _RESERVED},
        },
    }
    document |= _partitioning(request.get("partition-spec"), schema, new_ids)
    document |= _sorting(request.get("write-order"), schema, new_ids)
    return finish_draft(TableDraft(document, now_ms, changed=True))


def _format_version(properties: Mapping[str, str]) -> int:
    text = properties.get(_FORMAT_VERSION, str(DEFAULT_FORMAT_VERSION))
    if text not in map(str, range(1, MAX_FORMAT_VERSION + 1)):
        raise BadUpdate(f"a table has a format version from 1 to {MAX_FORMAT_VERSION}: {text}")
    return int(text)


def _with_fresh_ids(sent: Schema) -> tuple[Schema, Mapping[int, int]]:
    """Return a schema with ids that count up from 1, and the new ids by the old ones."""
    counter = count(1)
    new_ids: dict[int, int] = {}

    def assign(old_id: int) -> int:
        new_ids[old_id] = next(counter)
        return new_ids[old_id]

    document = {**_fresh_struct(sent.document, assign), "schema-id": 0}
    identifiers = sent.document.get("identifier-field-ids")
    if identifiers:
        document["identifier-field-ids"] = [new_ids[old_id] for old_id in identifiers]
    return parse_schema(document), new_ids


def _fresh_type(content: Any, assign: Callable[[int], int]) -> Any:
    """Return a type with new ids: those of a struct's fields, or of a map's two parts, come before what is in them."""
    if isinstance(content, str):
        return content
    if content["type"] == "struct":
        return _fresh_struct(content, assign)
    if content["type"] == "list":
        element_id = assign(content["element-id"])
        return {**content, "element-id": element_id, "element": _fresh_type(content["element"], assign)}
    ids = {"key-id": assign(content["key-id"]), "value-id": assign(content["value-id"])}
    key = _fresh_type(content["key"], assign)
    return {**content, **ids, "key": key, "value": _fresh_type(content["value"], assign)}


def _fresh_struct(struct: Mapping[str, Any], assign: Callable[[int], int]) -> dict[str, Any]:
    ids = [assign(column["id"]) for column in struct["fields"]]
    fields = [
        {**column, "id": column_id, "type": _fresh_type(column["type"], assign)}
        for column_id, column in zip(ids, struct["fields"], strict=True)
    ]
    return {**struct, "fields": fields}


def _partitioning(content: object, schema: Schema, new_ids: Mapping[int, int]) -> dict[str, Any]:
    spec: dict[str, Any] = parse_spec({"fields": []} if content is None else content)
    fields = [{**element, "source-id": _new_source(element, new_ids)} for element in spec["fields"]]
    for element in fields:
        element.pop("field-id", None)
    spec = with_field_ids({"spec-id": 0, "fields": fields}, (), UNPARTITIONED_LAST_ID)
    check_names(spec, schema)
    check_spec(spec, schema)
    return {"partition-specs": [spec], "default-spec-id": 0, "last-partition-id": last_field_id(spec)}


def _sorting(content: object, schema: Schema, new_ids: Mapping[int, int]) -> dict[str, Any]:
    order: dict[str, Any] = parse_order(UNSORTED if content is None else content)
    fields = [{**element, "source-id": _new_source(element, new_ids)} for element in order["fields"]]
    order = {"order-id": FIRST_SORTED_ID if fields else UNSORTED_ID, "fields": fields}
    check_order(order, schema)
    return {"sort-orders": [order], "default-sort-order-id": order["order-id"]}


def _new_source(element: Mapping[str, Any], new_ids: Mapping[int, int]) -> int:
    source_id = element["source-id"]
    if source_id not in new_ids:
        raise BadUpdate(f"a partition or sort field has no source: no column has the id {source_id}")
    return new_ids[source_id]
