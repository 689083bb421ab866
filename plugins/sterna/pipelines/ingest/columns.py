"""Columns: what a table has, what an upload has, and how both change; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.errors import BadDrop
from sterna.libraries import pa
from sterna.pipelines.ingest.column_types import (
    Type,
    iceberg_type,
    parse_decimal,
    parse_fixed,
    require_unique_names,
    validate_parquet_schema,
)

_PROMOTIONS = {("int", "long"), ("float", "double")}
# Exact for each value, or checked value by value.
_EXACT_CONVERSIONS = {("string", "uuid"), ("fixed[16]", "uuid")}
METADATA_COLUMNS = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names at the top of a schema by which Spark reads none of a table's columns, or none of its changes.

Source: Apache Iceberg, "Spec", "Reserved Field IDs", and `MetadataColumns` of its Java library.
"""
MAX_COLUMNS = 2_000
"""Columns that a table may get without a setting: more cost every planner of the table, and so other tenants."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        required: whether each row has a value.
    """

    name: str
    type: Type
    required: bool = False


@dataclass(frozen=True)
class FieldChange:
    """A column, or a field inside one, that the table lacks or that takes a wider type.

    Args:
        path: from the column down; `element`, `key` and `value` as Iceberg names the fields of lists and maps.
        widen: it is there, and takes a wider type.
    """

    path: tuple[str, ...]
    type: Type
    widen: bool = False


@dataclass(frozen=True)
class Evolution:
    """What has to become of a table's schema before rows of another one can be written."""

    changes: tuple[FieldChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


def parse_columns(metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of the current schema of a metadata.json."""
    schemas = {schema["schema-id"]: schema for schema in metadata.get("schemas", ())}
    schema = schemas.get(metadata.get("current-schema-id")) or metadata["schema"]
    return tuple(Column(field["name"], field["type"], bool(field.get("required"))) for field in schema["fields"])


def arrow_columns(schema: pa.Schema, parquet: Any = None) -> tuple[Column, ...]:
    """Return the columns of an upload of Arrow or Parquet; one that has no value anywhere isn't among them.

    Args:
        schema: as Arrow has it.
        parquet: the same as pyarrow's `ParquetSchema`; None: it is a stream.

    Raises:
        BadDrop: a column has a type that no table has, or there are two of one name.
    """
    require_unique_names(schema.names)
    if parquet is not None:
        validate_parquet_schema(parquet)
    return tuple(
        Column(field.name, iceberg_type(field.type, field.name)) for field in schema if str(field.type) != "null"
    )


def plan_evolution(
    table: Sequence[Column], incoming: Sequence[Column], evolve: str, max_columns: int = MAX_COLUMNS
) -> Evolution:
    """Return how a table has to change for an upload's columns.

    Args:
        table: its columns.
        incoming: the upload's.
        evolve: `none`, `add` or `widen`.
        max_columns: columns that it may get so, those in structs counted.

    Raises:
        BadDrop: a column can't be written to the table, or its schema may not change so.
    """
    struct = _struct(table)
    changes = Evolution(tuple(_struct_changes((), _struct(incoming), struct, evolve)))
    # Counted before the schema is evolved, which takes time that grows with the square of what is added.
    added = [change.type for change in changes.changes if not change.widen]
    if added and sum(map(_leaves, (struct, *added))) > max_columns:
        raise BadDrop(
            f"the table would get more than {max_columns} columns, those in structs included (tables[].columns)"
        )
    return changes


def apply_evolution(table: Sequence[Column], changes: Evolution) -> tuple[Column, ...]:
    """Return the columns that a table has after an evolution."""
    return parse_columns({"schema": _evolve_struct(_struct(table), changes)})


def _struct(columns: Sequence[Column]) -> Mapping[str, Any]:
    """Return columns as one type: a table's columns are the fields of a struct."""
    return {"type": "struct", "fields": [vars(column) for column in columns]}


def _evolve_struct(struct: Mapping[str, Any], changes: Evolution) -> Mapping[str, Any]:
    type: Type = struct
    for change in changes.changes:
        type = _with_field(type, change.path, change.type)
    assert not isinstance(type, str)
    return type


def _with_field(type: Type, path: Sequence[str], leaf: Type) -> Type:
    """Return a type in which a field inside of it is there, of another type."""
    if not path:
        return leaf
    assert not isinstance(type, str)
    if type["type"] != "struct":
        return {**type, path[0]: _with_field(type[path[0]], path[1:], leaf)}
    fields = list(type["fields"])
    index = next((position for position, field in enumerate(fields) if field["name"] == path[0]), None)
    if index is None:
        fields.append({"name": path[0], "type": leaf})
    else:
        fields[index] = {**fields[index], "type": _with_field(fields[index]["type"], path[1:], leaf)}
    return {**type, "fields": fields}


def _type_changes(path: tuple[str, ...], incoming: Type, existing: Type, evolve: str) -> Iterator[FieldChange]:
    """Yield what has to become of a column, and of the fields inside of it.

    Raises:
        BadDrop: it can't become that.
    """
    if _fits_primitive(incoming, existing):
        return
    if isinstance(incoming, Mapping) and isinstance(existing, Mapping) and incoming["type"] == existing["type"]:
        if existing["type"] == "struct":
            yield from _struct_changes(path, incoming, existing, evolve)
            return
        for name in ("element", "key", "value"):
            if name in existing:
                # Iceberg changes no field of a map's keys.
                yield from _type_changes(
                    (*path, name), incoming[name], existing[name], "none" if name == "key" else evolve
                )
        return
    if evolve != "widen" or not is_promotable(existing, incoming):
        raise BadDrop(f"column {'.'.join(path)!r} is {type_name(incoming)}, and the table has {type_name(existing)}")
    yield FieldChange(path, incoming, widen=True)


def _struct_changes(
    path: tuple[str, ...], incoming: Mapping[str, Any], existing: Mapping[str, Any], evolve: str
) -> Iterator[FieldChange]:
    existing_types = {field["name"]: field["type"] for field in existing["fields"]}
    folded = {name.casefold(): name for name in existing_types}
    for field in incoming["fields"]:
        name, nested_path = field["name"], (*path, field["name"])
        if name in existing_types:
            yield from _type_changes(nested_path, field["type"], existing_types[name], evolve)
            continue
        _require_addable(name, field["type"], folded, evolve, ".".join((*path, "")))
        folded[name.casefold()] = name
        yield FieldChange(nested_path, field["type"])


def _require_addable(name: str, type: Type, folded: Mapping[str, str], evolve: str, path: str) -> None:
    if evolve == "none":
        raise BadDrop(f"the table has no column {path + name!r}, and may not get one")
    if name.casefold() in folded:
        # Engines resolve columns case-insensitively: a second one would be ambiguous for ever.
        raise BadDrop(f"column {path + name!r} differs from {path + folded[name.casefold()]!r} by case alone")
    _check_name(name, path)
    _check_fields(type, f"{path}{name}.")


def _check_name(name: str, path: str) -> None:
    if not path and name.casefold() in METADATA_COLUMNS:
        raise BadDrop(f"{name!r} can't be a column's name: Iceberg has a metadata column of that name")
    # Iceberg finds fields by their path with dots: one in a name would make it another column's.
    if not name.strip() or not name.isprintable() or len(name) > 255 or "." in name:
        raise BadDrop(f"{path + name[:50]!r} can't be a column's name")


def _check_fields(type: Type, path: str) -> None:
    if isinstance(type, str):
        return
    if type["type"] == "struct":
        require_unique_names([field["name"].casefold() for field in type["fields"]], path)
        for field in type["fields"]:
            _check_name(field["name"], path)
            _check_fields(field["type"], f"{path}{field['name']}.")
        return
    for name in ("element", "key", "value"):
        if name in type:
            _check_fields(type[name], f"{path}{name}.")


def _leaves(type: Type) -> int:
    return 1 if isinstance(type, str) else sum(map(_leaves, inner_types(type)))


def inner_types(type: Mapping[str, Any]) -> list[Type]:
    """Return the types that a struct, list or map is made of."""
    if type["type"] == "struct":
        return [field["type"] for field in type["fields"]]
    return [type[name] for name in ("element", "key", "value") if name in type]


def require_readable(table: Sequence[Column], changes: Evolution) -> None:
    """See that a table which Spark reads stays one: with a column of type `time` it reads none of its columns.

    Args:
        table: its columns; none: it is made now.
        changes: what it is to become.

    Raises:
        BadDrop: it would get its first such column.
    """
    if not table or any(_has_time(column.type) for column in table):
        return
    if late := next((change for change in changes.changes if _has_time(change.type)), None):
        name = ".".join(late.path)
        raise BadDrop(f"the table may not get column {name!r}: Spark reads no table that has a column of type time")


def _has_time(type: Type) -> bool:
    return type == "time" if isinstance(type, str) else any(map(_has_time, inner_types(type)))


def type_at(columns: Sequence[Column], path: Sequence[str]) -> Type | None:
    """Return the type of a column or of a field inside of it, None where there is none."""
    type: Type | None = _struct(columns)
    for name in path:
        if not isinstance(type, Mapping):
            return None
        children = {field["name"]: field["type"] for field in type["fields"]} if type["type"] == "struct" else type
        type = children.get(name)
    return type


def merge_new_fields(incoming: Type, existing: Type) -> Type:
    """Return a column's type with the fields of JSON rows that it lacks; all else is unchanged.

    Whether values of existing fields fit is checked row by row.
    """
    if isinstance(incoming, str) or isinstance(existing, str):
        return existing
    if incoming["type"] == "list" and existing["type"] == "list":
        return {**existing, "element": merge_new_fields(incoming["element"], existing["element"])}
    if incoming["type"] != "struct" or existing["type"] == "list":
        return existing
    if existing["type"] == "map":
        value = existing["value"]
        for field in incoming["fields"]:
            value = merge_new_fields(field["type"], value)
        return {**existing, "value": value}
    fields = {field["name"]: field for field in existing["fields"]}
    for field in incoming["fields"]:
        existing_field = fields.get(field["name"])
        fields[field["name"]] = (
            {**existing_field, "type": merge_new_fields(field["type"], existing_field["type"])}
            if existing_field
            else field
        )
    return {**existing, "fields": list(fields.values())}


def fits(incoming: Type, existing: Type) -> bool:
    """Return whether values of a type can be written to a column of another, exactly."""
    try:
        return not any(_type_changes(("",), incoming, existing, "none"))
    except BadDrop:
        return False


def _fits_primitive(incoming: Type, existing: Type) -> bool:
    if incoming == existing or is_promotable(incoming, existing):
        return True
    if isinstance(incoming, str) and isinstance(existing, str) and (incoming, existing) in _EXACT_CONVERSIONS:
        return True
    if parse_fixed(incoming) is not None:
        return existing == "binary" or parse_fixed(incoming) == parse_fixed(existing)
    sizes = parse_decimal(incoming)
    return sizes is not None and sizes == parse_decimal(existing)


def has_columns(table: Sequence[Column], incoming: Sequence[Column]) -> bool:
    """Return whether a table has each of some columns, for values of its type."""
    types = {column.name: column.type for column in table}
    return all(column.name in types and fits(column.type, types[column.name]) for column in incoming)


def is_promotable(narrow: Type, wide: Type) -> bool:
    """Return whether Iceberg may promote a column of one type to another."""
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    if (narrow, wide) in _PROMOTIONS:
        return True
    small, large = parse_decimal(narrow), parse_decimal(wide)
    return bool(small and large and small[1] == large[1] and small[0] < large[0])


def type_name(type: Type) -> str:
    """Return how messages call a type."""
    return type if isinstance(type, str) else str(type["type"])
