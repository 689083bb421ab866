"""Columns: what a table has, what a drop brings, and what follows for either; pure.

A type is as Iceberg's JSON writes it: a word (`long`, `decimal(10,2)`), or a mapping (`struct`, `list`, `map`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.errors import BadDrop

if TYPE_CHECKING:
    import pyarrow as pa

Type = str | Mapping[str, Any]
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_WIDER = {("int", "long"), ("float", "double")}
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
class Evolution:
    """What has to become of a table's schema before rows of another one can be written.

    Args:
        add: columns that it lacks.
        widen: columns that take a wider type.
    """

    add: tuple[Column, ...] = ()
    widen: tuple[Column, ...] = ()


def columns_of(metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of the current schema of a metadata.json."""
    schemas = {schema["schema-id"]: schema for schema in metadata.get("schemas", ())}
    schema = schemas.get(metadata.get("current-schema-id")) or metadata["schema"]
    return tuple(Column(field["name"], field["type"], bool(field["required"])) for field in schema["fields"])


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
    add, widen = [], []
    for column in brought:
        have = known.get(column.name)
        if have is None:
            _may_add(column, folded, evolve)
            folded[column.name.casefold()] = column.name
            add.append(column)
        elif not fits(column.type, have.type):
            if evolve != "widen" or not wider(have.type, column.type):
                raise BadDrop(f"column {column.name!r} is {word(column.type)}, and the table has {word(have.type)}")
            widen.append(column)
    if add and sum(_leaves(column.type) for column in (*table, *add)) > most:
        raise BadDrop(f"the table would get more than {most} columns, those in structs included (tables[].columns)")
    return Evolution(tuple(add), tuple(widen))


def refuse_twice(names: Sequence[str]) -> None:
    """See that no two columns of a drop have one name: which of them is meant can't be told.

    Raises:
        BadDrop: two have.
    """
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise BadDrop(f"column {twice[:50]!r} stands twice")


def _may_add(column: Column, folded: Mapping[str, str], evolve: str) -> None:
    if evolve == "none":
        raise BadDrop(f"the table has no column {column.name!r}, and may not get one")
    if column.name.casefold() in folded:
        # Engines look columns up without regard to case: a second one would be ambiguous for ever.
        raise BadDrop(f"column {column.name!r} differs from {folded[column.name.casefold()]!r} by case alone")
    _check_name(column.name)
    _check_fields(column.type)


def _check_name(name: str) -> None:
    # Iceberg finds fields by their path with dots: one in a name would make it another column's.
    if not name.strip() or not name.isprintable() or len(name) > 255 or "." in name:
        raise BadDrop(f"{name[:50]!r} can't be a column's name")


def _check_fields(type: Type) -> None:
    if isinstance(type, str):
        return
    if type["type"] == "struct":
        names = [field["name"] for field in type["fields"]]
        refuse_twice([name.casefold() for name in names])
        for name in names:
            _check_name(name)
    for inner in _inner(type):
        _check_fields(inner)


def _leaves(type: Type) -> int:
    return 1 if isinstance(type, str) else sum(map(_leaves, _inner(type)))


def _inner(type: Mapping[str, Any]) -> list[Type]:
    if type["type"] == "struct":
        return [field["type"] for field in type["fields"]]
    return [type[name] for name in ("element", "key", "value") if name in type]


def fits(brought: Type, have: Type) -> bool:
    """Say whether values of a type can be written to a column of another, exactly."""
    if brought == have or wider(brought, have):
        return True
    if brought == "string" and have == "uuid":
        return True
    if isinstance(brought, Mapping) and isinstance(have, Mapping) and brought["type"] == have["type"]:
        if have["type"] == "list":
            return fits(brought["element"], have["element"])
        if have["type"] == "map":
            return fits(brought["key"], have["key"]) and fits(brought["value"], have["value"])
        fields = {field["name"]: field["type"] for field in have["fields"]}
        return all(
            field["name"] in fields and fits(field["type"], fields[field["name"]]) for field in brought["fields"]
        )
    return False


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


def decimal(type: Type) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type, None for any other."""
    found = _DECIMAL.fullmatch(type) if isinstance(type, str) else None
    return (int(found[1]), int(found[2])) if found else None


def word(type: Type) -> str:
    """Return how messages call a type."""
    return type if isinstance(type, str) else str(type["type"])


def arrow_type(type: Type) -> pa.DataType:
    """Return Arrow's type for a column's.

    Raises:
        BadDrop: Spark writes no such column.
    """
    import pyarrow as pa

    if isinstance(type, str):
        if sizes := decimal(type):
            return pa.decimal128(*sizes)
        simple = {
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us"),
            "timestamptz": pa.timestamp("us", tz="UTC"),
            "string": pa.string(),
            "uuid": pa.string(),
            "binary": pa.binary(),
        }
        if type not in simple:
            raise BadDrop(f"columns of type {type} can't be written by ingestion")
        return simple[type]
    if type["type"] == "list":
        return pa.list_(arrow_type(type["element"]))
    if type["type"] == "map":
        return pa.map_(arrow_type(type["key"]), arrow_type(type["value"]))
    return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in type["fields"]])


def iceberg_type(given: pa.DataType) -> Type:
    """Return the type of a column for Arrow's.

    Raises:
        BadDrop: there is none.
    """
    import pyarrow.types as is_

    plain = (
        (is_.is_boolean, "boolean"),
        (lambda it: is_.is_integer(it) and it.bit_width < 32, "int"),
        (is_.is_int32, "int"),
        (lambda it: is_.is_int64(it) or is_.is_uint32(it), "long"),
        (lambda it: is_.is_float16(it) or is_.is_float32(it), "float"),
        (is_.is_float64, "double"),
        (is_.is_date, "date"),
        (lambda it: is_.is_string(it) or is_.is_large_string(it) or is_.is_string_view(it), "string"),
        (lambda it: is_.is_binary(it) or is_.is_large_binary(it) or is_.is_fixed_size_binary(it), "binary"),
    )
    for test, name in plain:
        if test(given):
            return name
    if is_.is_timestamp(given):
        return "timestamptz" if given.tz else "timestamp"
    if is_.is_decimal(given) and 0 <= given.scale <= given.precision <= 38:
        return f"decimal({given.precision}, {given.scale})"
    return _nested(given)


def _nested(given: pa.DataType) -> Type:
    import pyarrow.types as is_

    if is_.is_dictionary(given):
        return iceberg_type(given.value_type)
    if is_.is_list(given) or is_.is_large_list(given):
        return {"type": "list", "element": iceberg_type(given.value_type)}
    if is_.is_map(given):
        return {"type": "map", "key": iceberg_type(given.key_type), "value": iceberg_type(given.item_type)}
    if is_.is_struct(given) and given.num_fields:
        fields = [given.field(number) for number in range(given.num_fields)]
        return {"type": "struct", "fields": [{"name": each.name, "type": iceberg_type(each.type)} for each in fields]}
    raise BadDrop(f"there is no column for Arrow's type {given}")
