"""Fields of partition specs whose columns are no longer in a table's schema.

Source: Iceberg specification, "Partition Evolution" and appendix C, "Partition Specs" and "Schemas" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

SCHEMA_MEMBERS: Final = ("schemas", "current-schema-id", "schema", "partition-specs", "partition-spec")
"""The members of a metadata.json that `dropped_source_fields` looks at."""


def dropped_source_fields(metadata: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return, by id of a partition spec, the names of its fields whose columns the current schema lacks.

    A `void` field needs no column. What has another form than the specification's says nothing: nobody but Iceberg's
    own writers needs it, and these say so.

    Args:
        metadata: the members `SCHEMA_MEMBERS` of a metadata.json.
    """
    schemas, current_id = metadata.get("schemas"), metadata.get("current-schema-id")
    current_schemas = [candidate for candidate in _objects(schemas) if candidate.get("schema-id") == current_id]
    schema = current_schemas[0] if current_schemas and current_id is not None else metadata.get("schema")
    if not isinstance(schema, Mapping):
        return {}
    columns = {id for id in _column_ids(schema) if type(id) is int}
    specs = [(spec.get("spec-id"), spec.get("fields")) for spec in _objects(metadata.get("partition-specs"))]
    # Files of format v1 have one spec alone, without an id.
    names_by_spec = [
        (id, _dropped_source_names(fields, columns)) for id, fields in specs or [(0, metadata.get("partition-spec"))]
    ]
    return {id: names for id, names in names_by_spec if type(id) is int and names}


def _dropped_source_names(fields: Any, columns: set[int]) -> tuple[str, ...]:
    return tuple(
        str(field.get("name"))
        for field in _objects(fields)
        if field.get("transform") != "void" and any(type(id) is int and id not in columns for id in _source_ids(field))
    )


def _source_ids(field: Mapping[str, Any]) -> list[Any]:
    source_ids = field.get("source-ids")  # v3: a transform may take several columns
    return source_ids if isinstance(source_ids, list) else [field.get("source-id")]


def _column_ids(kind: Any) -> Iterator[Any]:
    """Yield the ids of all columns in a type, at whatever depth."""
    pending = [kind]
    while pending:
        nested = pending.pop()
        if not isinstance(nested, Mapping):
            continue
        for field in _objects(nested.get("fields")):
            yield field.get("id")
            pending.append(field.get("type"))
        for name in ("element", "key", "value"):
            if name in nested:
                yield nested.get(f"{name}-id")
                pending.append(nested[name])


def _objects(array: Any) -> list[Mapping[str, Any]]:
    return [element for element in array if isinstance(element, Mapping)] if isinstance(array, list) else []
