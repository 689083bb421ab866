"""Records by Iceberg field ids: to compare those of two files, and to write one file's into another one.

Two writers may call a field by other names, or have it at another place; its id is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.program import compile_schema
from sterna.iceberg.avro.records import Record

Values = dict[int, Any]
"""A record's values by field id; records within it likewise, and Iceberg's maps as dictionaries."""

_MAP_NAMES: Final = {"key", "value"}


class FieldSchema:
    """The fields of an Avro record by their field ids, and those of the records in them.

    Args:
        names: field id → name.
        nested: those of the fields that are a record, or an array of some, by field id.
        maps: field ids of Iceberg's maps: arrays of a key and its value.
    """

    def __init__(self, names: Mapping[int, str], nested: Mapping[int, FieldSchema], maps: frozenset[int]) -> None:
        self._names = names
        self._nested = nested
        self._maps = maps

    def __len__(self) -> int:
        return len(self._names)

    def nested(self, field_id: int) -> FieldSchema | None:
        """Return the schema of the records in a field, None where it holds none."""
        return self._nested.get(field_id)

    def name(self, field_id: int) -> str:
        """Return what a field is called, "" where there is no such field."""
        return self._names.get(field_id, "")

    def values(self, record: Mapping[str, Any]) -> Values:
        """Return a decoded record by field ids."""
        return {field_id: self._view(field_id, record.get(name)) for field_id, name in self._names.items()}

    def record(self, values: Values) -> Record:
        """Return a record of this schema: what it has no field for is left out, and what is missing is null."""
        return {name: self._build(field_id, values.get(field_id)) for field_id, name in self._names.items()}

    def _view(self, field_id: int, value: Any) -> Any:
        if field_id in self._maps and value is not None:
            return {pair["key"]: pair["value"] for pair in value}
        nested = self._nested.get(field_id)
        if nested is None or value is None:
            return value
        return [nested.values(element) for element in value] if isinstance(value, list) else nested.values(value)

    def _build(self, field_id: int, value: Any) -> Any:
        if field_id in self._maps and value is not None:
            return [{"key": key, "value": element} for key, element in value.items()]
        nested = self._nested.get(field_id)
        if nested is None or value is None:
            return value
        return [nested.record(element) for element in value] if isinstance(value, list) else nested.record(value)


def field_schema(container: Container, names: Mapping[int, str]) -> FieldSchema:
    """Return the fields of a file's records.

    Args:
        names: field id → name, for a schema without ids.

    Raises:
        BrokenMetadata: the schema is no valid one, or a record has one field id twice.
        Unsupported: it is recursive, or too large.
    """
    compile_schema(container.schema, {}, {}, container.uri)  # refuses what could not be followed to its end
    try:
        return _read_schema(container.schema, names, {})
    except ValueError as error:
        raise container.broken(str(error)) from None


def _read_schema(schema: Any, names: Mapping[int, str], named: dict[str, Any]) -> FieldSchema:
    ids = {name: field_id for field_id, name in names.items()}
    with_ids = any("field-id" in field for field in schema["fields"])
    fields: dict[int, str] = {}
    nested: dict[int, FieldSchema] = {}
    maps: set[int] = set()
    for field in schema["fields"]:
        kind = _without_null(field["type"], named)
        inner = _without_null(kind["items"], named) if _is_type(kind, "array") else kind
        inner_schema = _read_schema(inner, names, named) if _is_type(inner, "record") else None
        field_id = field.get("field-id") if with_ids else ids.get(field["name"])
        if not isinstance(field_id, int):
            continue
        if field_id in fields:
            raise ValueError(f"the Avro schema has the field id {field_id} twice in a record")
        fields[field_id] = str(field["name"])
        if _is_type(kind, "array") and inner_schema is not None and {f["name"] for f in inner["fields"]} == _MAP_NAMES:
            maps.add(field_id)
            continue
        # A record some of whose fields have no id is kept as it is: by ids a part of it would be lost.
        if inner_schema is not None and len(inner_schema) == len(inner["fields"]):
            nested[field_id] = inner_schema
    return FieldSchema(fields, nested, frozenset(maps))


def _is_type(kind: Any, name: str) -> bool:
    return isinstance(kind, dict) and kind.get("type") == name


def _without_null(kind: Any, named: dict[str, Any]) -> Any:
    """Return the one type of a nullable field, with names resolved."""
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        kind = branches[0] if len(branches) == 1 else kind
    if isinstance(kind, str):
        return named.get(kind, kind)
    if isinstance(kind, dict) and isinstance(kind.get("type"), dict | list):
        return _without_null(kind["type"], named)
    if isinstance(kind, dict) and isinstance(kind.get("name"), str):
        named.setdefault(kind["name"], kind)
    return kind
