"""Fields of partition specs whose columns are no longer in a table's schema.

Source: Iceberg specification, "Partition Evolution" and appendix C, "Partition Specs" and "Schemas" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

OF_COLUMNS: Final = ("schemas", "current-schema-id", "schema", "partition-specs", "partition-spec")
"""The members of a metadata.json that `lost_fields` looks at."""


def lost_fields(metadata: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return, by id of a partition spec, the names of its fields whose columns the current schema lacks.

    A `void` field needs no column. What has another form than the specification's says nothing: nobody but Iceberg's
    own writers needs it, and these say so.

    Args:
        metadata: the members `OF_COLUMNS` of a metadata.json.
    """
    schemas, current = metadata.get("schemas"), metadata.get("current-schema-id")
    newest = [each for each in _objects(schemas) if each.get("schema-id") == current]
    schema = newest[0] if newest and current is not None else metadata.get("schema")
    if not isinstance(schema, Mapping):
        return {}
    columns = {id for id in _ids(schema) if type(id) is int}
    specs = [(each.get("spec-id"), each.get("fields")) for each in _objects(metadata.get("partition-specs"))]
    # Files of format v1 have one spec alone, without an id.
    found = [(id, _lost(fields, columns)) for id, fields in specs or [(0, metadata.get("partition-spec"))]]
    return {id: names for id, names in found if type(id) is int and names}


def _lost(fields: Any, columns: set[int]) -> tuple[str, ...]:
    return tuple(
        str(each.get("name"))
        for each in _objects(fields)
        if each.get("transform") != "void" and any(type(id) is int and id not in columns for id in _sources(each))
    )


def _sources(field: Mapping[str, Any]) -> list[Any]:
    several = field.get("source-ids")  # v3: a transform may take several columns
    return several if isinstance(several, list) else [field.get("source-id")]


def _ids(kind: Any) -> Iterator[Any]:
    """Yield the ids of all columns in a type, at whatever depth."""
    waiting = [kind]
    while waiting:
        some = waiting.pop()
        if not isinstance(some, Mapping):
            continue
        for each in _objects(some.get("fields")):
            yield each.get("id")
            waiting.append(each.get("type"))
        for name in ("element", "key", "value"):
            if name in some:
                yield some.get(f"{name}-id")
                waiting.append(some[name])


def _objects(some: Any) -> list[Mapping[str, Any]]:
    return [each for each in some if isinstance(each, Mapping)] if isinstance(some, list) else []
