"""Columns: what a table has, what a drop brings, and what follows for either; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.errors import BadDrop
from sterna.ingest.column_types import Type, decimal, fixed, iceberg_type, refuse_parquet, refuse_twice

if TYPE_CHECKING:
    import pyarrow as pa


_WIDER = {("int", "long"), ("float", "double")}
# Exact for each value, or looked at value by value.
_ALIKE = {("string", "uuid"), ("fixed[16]", "uuid")}
METADATA_COLUMNS = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names at the top of a schema by which Spark reads none of a table's columns, or none of its changes.

Source: Apache Iceberg, "Spec", "Reserved Field IDs", and `MetadataColumns` of its Java library.
"""
MOST_COLUMNS = 2_000
"""Columns that a table may get where no setting says so: more cost whoever plans with it, and so other tenants."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its name.
        type: its type.
        required: whether each row has a value.
    """

    name: str
    type: Type
    required: bool = False


@dataclass(frozen=True)
class Inner:
    """A field inside a column, which the table lacks or which takes a wider type.

    Args:
        path: from the column down; `element`, `key` and `value` as Iceberg names the fields of lists and maps.
        type: its type.
        widen: it is there, and takes a wider type.
    """

    path: tuple[str, ...]
    type: Type
    widen: bool = False


@dataclass(frozen=True)
class Evolution:
    """What has to become of a table's schema before rows of another one can be written.

    Args:
        add: columns that it lacks.
        widen: columns that take a wider type.
        inner: fields inside of its columns.
    """

    add: tuple[Column, ...] = ()
    widen: tuple[Column, ...] = ()
    inner: tuple[Inner, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.widen or self.inner)


def columns_of(metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of the current schema of a metadata.json."""
    schemas = {schema["schema-id"]: schema for schema in metadata.get("schemas", ())}
    schema = schemas.get(metadata.get("current-schema-id")) or metadata["schema"]
    return tuple(Column(field["name"], field["type"], bool(field["required"])) for field in schema["fields"])


def columns_brought(schema: pa.Schema, parquet: Any = None) -> tuple[Column, ...]:
    """Return the columns of a drop of Arrow or Parquet; one that has no value anywhere isn't among them.

    Args:
        schema: as Arrow has it.
        parquet: the same as pyarrow's `ParquetSchema`; None: it is a stream.

    Raises:
        BadDrop: a column has a type that no table has, or stands twice.
    """
    refuse_twice(schema.names)
    if parquet is not None:
        refuse_parquet(parquet)
    return tuple(
        Column(field.name, iceberg_type(field.type, field.name)) for field in schema if str(field.type) != "null"
    )


def evolution(table: Sequence[Column], brought: Sequence[Column], evolve: str, most: int = MOST_COLUMNS) -> Evolution:
    """Return what a table has to become for the columns that a drop brings.

    Args:
        table: its columns.
        brought: the drop's.
        evolve: `none`, `add` or `widen`.
        most: columns that it may get so, those in structs counted.

    Raises:
        BadDrop: a column can't be written to the table, or its schema may not change so.
    """
    known = {column.name: column for column in table}
    folded = {name.casefold(): name for name in known}
    add: list[Column] = []
    widen: list[Column] = []
    inner: list[Inner] = []
    for column in brought:
        have = known.get(column.name)
        if have is None:
            _may_add(column.name, column.type, folded, evolve)
            folded[column.name.casefold()] = column.name
            add.append(column)
            continue
        for field in _grown((column.name,), column.type, have.type, evolve):
            if len(field.path) == 1:
                widen.append(column)
            else:
                inner.append(field)
    more = Evolution(tuple(add), tuple(widen), tuple(inner))
    if (add or inner) and sum(_leaves(column.type) for column in evolved(table, more)) > most:
        raise BadDrop(f"the table would get more than {most} columns, those in structs included (tables[].columns)")
    return more


def evolved(table: Sequence[Column], more: Evolution) -> tuple[Column, ...]:
    """Return the columns that a table has after an evolution."""
    types = {column.name: column.type for column in table} | {column.name: column.type for column in more.widen}
    for field in more.inner:
        types[field.path[0]] = _with(types[field.path[0]], field.path[1:], field.type)
    return (*(Column(column.name, types[column.name], column.required) for column in table), *more.add)


def _with(type: Type, path: Sequence[str], leaf: Type) -> Type:
    """Return a type in which a field inside of it is there, of another type."""
    if not path:
        return leaf
    assert not isinstance(type, str)
    if type["type"] != "struct":
        return {**type, path[0]: _with(type[path[0]], path[1:], leaf)}
    fields = list(type["fields"])
    place = next((at for at, field in enumerate(fields) if field["name"] == path[0]), None)
    if place is None:
        fields.append({"name": path[0], "type": leaf})
    else:
        fields[place] = {**fields[place], "type": _with(fields[place]["type"], path[1:], leaf)}
    return {**type, "fields": fields}


def _grown(path: tuple[str, ...], brought: Type, have: Type, evolve: str) -> Iterator[Inner]:
    """Yield what has to become of a column, and of the fields inside of it.

    Raises:
        BadDrop: it can't become that.
    """
    if _fits_word(brought, have):
        return
    if isinstance(brought, Mapping) and isinstance(have, Mapping) and brought["type"] == have["type"]:
        if have["type"] == "struct":
            yield from _grown_struct(path, brought, have, evolve)
            return
        for name in ("element", "key", "value"):
            if name in have:
                # Iceberg changes no field of a map's keys.
                yield from _grown((*path, name), brought[name], have[name], "none" if name == "key" else evolve)
        return
    if evolve != "widen" or not wider(have, brought):
        raise BadDrop(f"column {'.'.join(path)!r} is {word(brought)}, and the table has {word(have)}")
    yield Inner(path, brought, widen=True)


def _grown_struct(
    path: tuple[str, ...], brought: Mapping[str, Any], have: Mapping[str, Any], evolve: str
) -> Iterator[Inner]:
    known = {field["name"]: field["type"] for field in have["fields"]}
    folded = {name.casefold(): name for name in known}
    for field in brought["fields"]:
        name, inside = field["name"], (*path, field["name"])
        if name in known:
            yield from _grown(inside, field["type"], known[name], evolve)
            continue
        _may_add(name, field["type"], folded, evolve, ".".join(path) + ".")
        folded[name.casefold()] = name
        yield Inner(inside, field["type"])


def _may_add(name: str, type: Type, folded: Mapping[str, str], evolve: str, path: str = "") -> None:
    if evolve == "none":
        raise BadDrop(f"the table has no column {path + name!r}, and may not get one")
    if name.casefold() in folded:
        # Engines look columns up without regard to case: a second one would be ambiguous for ever.
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
        refuse_twice([field["name"].casefold() for field in type["fields"]], path)
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


def refuse_unreadable(table: Sequence[Column], more: Evolution) -> None:
    """See that a table which Spark reads stays one: with a column of type `time` it reads none of its columns.

    Args:
        table: its columns; none: it is made now.
        more: what it is to become.

    Raises:
        BadDrop: it would get its first such column.
    """
    if not table or any(_has_time(column.type) for column in table):
        return
    names = {column.name: column.type for column in more.add} | {".".join(each.path): each.type for each in more.inner}
    for name, type in names.items():
        if _has_time(type):
            raise BadDrop(f"the table may not get column {name!r}: Spark reads no table that has a column of type time")


def _has_time(type: Type) -> bool:
    return type == "time" if isinstance(type, str) else any(map(_has_time, inner_types(type)))


def type_at(columns: Sequence[Column], path: Sequence[str]) -> Type | None:
    """Return the type of a column or of a field inside of it, None where there is none."""
    type: Type | None = next((column.type for column in columns if column.name == path[0]), None)
    for name in path[1:]:
        if not isinstance(type, Mapping):
            return None
        inside = {field["name"]: field["type"] for field in type["fields"]} if type["type"] == "struct" else type
        type = inside.get(name)
    return type


def news(brought: Type, have: Type) -> Type:
    """Return a column's type with those fields that rows of JSON bring and it lacks; all else as it is there.

    Whether the values of fields that are there fit is looked at row by row.
    """
    if isinstance(brought, str) or isinstance(have, str):
        return have
    if brought["type"] == "list" and have["type"] == "list":
        return {**have, "element": news(brought["element"], have["element"])}
    if brought["type"] != "struct" or have["type"] == "list":
        return have
    if have["type"] == "map":
        value = have["value"]
        for field in brought["fields"]:
            value = news(field["type"], value)
        return {**have, "value": value}
    fields = {field["name"]: field for field in have["fields"]}
    for field in brought["fields"]:
        there = fields.get(field["name"])
        fields[field["name"]] = {**there, "type": news(field["type"], there["type"])} if there else field
    return {**have, "fields": list(fields.values())}


def fits(brought: Type, have: Type) -> bool:
    """Say whether values of a type can be written to a column of another, exactly."""
    try:
        return not any(_grown(("",), brought, have, "none"))
    except BadDrop:
        return False


def _fits_word(brought: Type, have: Type) -> bool:
    if brought == have or wider(brought, have):
        return True
    if isinstance(brought, str) and isinstance(have, str) and (brought, have) in _ALIKE:
        return True
    if fixed(brought) is not None:
        return have == "binary" or fixed(brought) == fixed(have)
    sizes = decimal(brought)
    return sizes is not None and sizes == decimal(have)


def holds(table: Sequence[Column], brought: Sequence[Column]) -> bool:
    """Say whether a table has each of some columns, for values of its type."""
    have = {column.name: column.type for column in table}
    return all(column.name in have and fits(column.type, have[column.name]) for column in brought)


def wider(narrow: Type, wide: Type) -> bool:
    """Say whether Iceberg may promote a column of one type to another."""
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    if (narrow, wide) in _WIDER:
        return True
    small, large = decimal(narrow), decimal(wide)
    return bool(small and large and small[1] == large[1] and small[0] < large[0])


def word(type: Type) -> str:
    """Return how messages call a type."""
    return type if isinstance(type, str) else str(type["type"])
