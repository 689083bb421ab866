"""Schemas of tables and views as JSON: parsed, compared, looked up by id and name.

Source: Iceberg specification, "Schemas and Data Types" and appendix C, "Schemas"; Java's `Schema` and `SchemaParser`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.column_types import canonical_type, check_default, minimum_format_version

MAX_DEPTH = 100
"""Levels of a schema's nested types."""
_NESTED = frozenset({"struct", "list", "map"})
_DEFAULTS = ("initial-default", "write-default")
_DEFAULTS_SINCE_VERSION = 3


@dataclass(frozen=True)
class Column:
    """A column, or a part of one: a field of a struct, a list's element, a map's key or value.

    Args:
        name: the full one, with its parents' names.
        type_name: `struct`, `list`, `map`, or a type's canonical name.
        parent: the id of the column that it is in; None at the top.
    """

    column_id: int
    name: str
    type_name: str
    required: bool
    parent: int | None
    has_initial_default: bool

    @property
    def is_primitive(self) -> bool:
        """Whether it is a single value, which partitions and orders can be made of."""
        return self.type_name not in _NESTED and self.type_name != "variant"


@dataclass(frozen=True)
class Schema:
    """A schema and its columns.

    Args:
        document: its JSON with canonical types, a schema-id, and neither nulls nor an empty list of identifier fields.
        columns: all, nested ones too, by id.
        ids: the ids by full name, and by the shorter ones without `element` and `value` that engines know.
    """

    document: dict[str, Any]
    columns: Mapping[int, Column]
    ids: Mapping[str, int]

    @property
    def schema_id(self) -> int:
        """The schema's own id."""
        return int(self.document["schema-id"])

    @property
    def highest_column_id(self) -> int:
        """The highest id of a column; 0 without any."""
        return max(self.columns, default=0)

    def ancestors(self, column: Column) -> list[Column]:
        """Return what a column is in, from the nearest on."""
        parents = []
        while column.parent is not None:
            column = self.columns[column.parent]
            parents.append(column)
        return parents


@dataclass
class _Walk:
    """What has been read of a schema so far; paths are the names of what is around, in full and in short."""

    columns: dict[int, Column] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    short_ids: dict[str, int] = field(default_factory=dict)

    def add(self, column: Column, short_path: tuple[str, ...], name: str) -> None:
        if column.column_id in self.columns:
            raise BadUpdate(f"the schema has two columns of id {column.column_id}")
        if column.name in self.ids:
            raise BadUpdate(f"the schema has two columns of name {column.name}")
        self.columns[column.column_id] = column
        self.ids[column.name] = column.column_id
        if short_path:
            self.short_ids.setdefault(".".join((*short_path, name)), column.column_id)


@dataclass(frozen=True)
class _Place:
    """Where in a schema a type stands."""

    path: tuple[str, ...] = ()
    short_path: tuple[str, ...] = ()
    parent: int | None = None

    @property
    def name(self) -> str:
        return ".".join(self.path) or "the schema"

    def inside(self, name: str, column_id: int, *, in_short: bool = True) -> _Place:
        return _Place((*self.path, name), (*self.short_path, name) if in_short else self.short_path, column_id)


def parse_schema(content: object) -> Schema:
    """Return a client's schema; what it has beyond the specification stays in its JSON.

    Args:
        content: the JSON; a missing schema-id is 0.

    Raises:
        BadUpdate: it isn't one; the message names the column.
    """
    document = read.as_object(content, "schema")
    if document.get("type", "struct") != "struct":
        raise BadUpdate("a schema's type has to be struct")
    walk = _Walk()
    struct = _struct(document, _Place(), walk)
    schema_id = read.optional_field(document, "schema-id", read.as_int)
    kept = {**document, "type": "struct", "schema-id": schema_id or 0, "fields": struct["fields"]}
    kept.pop("identifier-field-ids", None)
    if document.get("identifier-field-ids"):
        kept["identifier-field-ids"] = list(
            dict.fromkeys(read.array_field(document, "identifier-field-ids", read.as_int))
        )
    schema = Schema(kept, walk.columns, {**walk.short_ids, **walk.ids})
    for column_id in kept.get("identifier-field-ids", ()):
        _check_identifier(schema, column_id)
    return schema


def same_schema(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two schemas have the same columns and identifier fields, whatever their ids.

    Args:
        one: a schema's JSON, as a table's metadata or `Schema.document` has it.
        other: the other's.
    """
    return _shape(one) == _shape(other) and _identifiers(one) == _identifiers(other)


def check_format_version(schema: Schema, format_version: int) -> None:
    """Look whether a table's version has a schema's types and defaults.

    Args:
        schema: that is to be added.
        format_version: the table's.

    Raises:
        BadUpdate: it has not.
    """
    for column in schema.columns.values():
        since_version = minimum_format_version(column.type_name)
        if format_version < since_version:
            raise BadUpdate(f"column {column.name}: {column.type_name} is a type of v{since_version} and later")
        if column.has_initial_default and format_version < _DEFAULTS_SINCE_VERSION:
            raise BadUpdate(f"column {column.name}: a table has initial defaults from v{_DEFAULTS_SINCE_VERSION} on")


def _type(content: object, place: _Place, walk: _Walk) -> Any:
    if isinstance(content, str):
        return canonical_type(content)
    if len(place.path) > MAX_DEPTH:
        raise BadUpdate(f"the schema's types are nested deeper than {MAX_DEPTH} levels")
    document = read.as_object(content, f"the type of {place.name}")
    readers = {"struct": _struct, "list": _list, "map": _map}
    kind = document.get("type")
    if not isinstance(kind, str) or kind not in readers:
        raise BadUpdate(f"the type of {place.name} is none: {kind}")
    return readers[kind](document, place, walk)


def _struct(document: read.Json, place: _Place, walk: _Walk) -> dict[str, Any]:
    fields = [_field(element, place, walk) for element in read.array_field(document, "fields", read.as_object)]
    return {**document, "type": "struct", "fields": fields}


def _field(document: read.Json, place: _Place, walk: _Walk) -> dict[str, Any]:
    column_id, name = read.field(document, "id", read.as_int), read.field(document, "name", read.as_text)
    required = read.field(document, "required", read.as_bool)
    within = place.inside(name, column_id)
    column_type = _type(document.get("type"), within, walk)
    type_name = column_type if isinstance(column_type, str) else column_type["type"]
    if required and type_name == "unknown":
        raise BadUpdate(f"column {within.name}: what is of an unknown type can't be required")
    read.optional_field(document, "doc", read.as_text)
    for default in _DEFAULTS:
        if document.get(default) is not None:
            check_default(type_name, document[default], f"the {default} of column {within.name}")
    initial = document.get("initial-default") is not None
    column = Column(column_id, within.name, type_name, required, place.parent, initial)
    walk.add(column, place.short_path, name)
    kept = {key: content for key, content in document.items() if content is not None or key not in (*_DEFAULTS, "doc")}
    return {**kept, "type": column_type}


def _list(document: read.Json, place: _Place, walk: _Walk) -> dict[str, Any]:
    return {**document, "element": _part(document, "element", place, walk)}


def _map(document: read.Json, place: _Place, walk: _Walk) -> dict[str, Any]:
    key = _part(document, "key", place, walk)
    return {**document, "key": key, "value": _part(document, "value", place, walk)}


def _part(document: read.Json, part: str, place: _Place, walk: _Walk) -> Any:
    """Read a list's element, or a map's key or value: a map's key is always required."""
    column_id = read.field(document, f"{part}-id", read.as_int)
    required = True if part == "key" else read.field(document, f"{part}-required", read.as_bool)
    content = document.get(part)
    is_struct = isinstance(content, Mapping) and content.get("type") == "struct"
    within = place.inside(part, column_id, in_short=part == "key" or not is_struct)
    part_type = _type(content, within, walk)
    type_name = part_type if isinstance(part_type, str) else part_type["type"]
    walk.add(Column(column_id, within.name, type_name, required, place.parent, False), place.short_path, part)
    return part_type


def _check_identifier(schema: Schema, column_id: int) -> None:
    column = schema.columns.get(column_id)
    if column is None:
        raise BadUpdate(f"the identifier field {column_id} is no column")
    if not column.is_primitive or not column.required or column.type_name in ("float", "double"):
        raise BadUpdate(f"column {column.name} can't be an identifier field: that is a required, exact single value")
    if any(parent.type_name != "struct" or not parent.required for parent in schema.ancestors(column)):
        raise BadUpdate(f"column {column.name} can't be an identifier field: all around it has to be a required struct")


def _identifiers(document: Mapping[str, Any]) -> set[int]:
    return set(document.get("identifier-field-ids") or ())


def _shape(content: Any) -> Any:
    """Return what makes a type: of a table's own metadata nothing is demanded here."""
    if isinstance(content, str):
        return content.casefold().replace(" ", "")
    if not isinstance(content, Mapping):
        return None
    if content.get("type") == "list":
        return "list", content.get("element-id"), content.get("element-required"), _shape(content.get("element"))
    if content.get("type") == "map":
        ids = (content.get("key-id"), content.get("value-id"), content.get("value-required"))
        return "map", ids, _shape(content.get("key")), _shape(content.get("value"))
    return "struct", [_field_shape(column) for column in content.get("fields") or ()]


def _field_shape(column: Mapping[str, Any]) -> Any:
    marks = [column.get(name) for name in ("id", "name", "required", "doc", *_DEFAULTS)]
    return marks, _shape(column.get("type"))
