"""Types of columns: what each is written as, which types of Arrow and Parquet it takes, and how JSON writes it.

One table, for the gateway, the worker and the documentation: what no row of it takes is refused before it is durable.
PyIceberg's `pyarrow_to_schema` is what it is held to by a test, where that is exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.errors import BadDrop, printable
from sterna.libraries import pa

Type = str | Mapping[str, Any]
"""A type as Iceberg's JSON writes it: a word (`long`, `decimal(10,2)`), or a mapping (`struct`, `list`, `map`)."""
FIELD_ID = b"PARQUET:field_id"
"""The metadata of a field of Arrow that has its field id in Parquet."""
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_FIXED = re.compile(r"fixed\[\s*([0-9]+)\s*\]")
_MAX_PRECISION = 38


@dataclass(frozen=True)
class ColumnType:
    """One row of the table.

    Args:
        name: how Iceberg writes the type.
        sources: the types of Arrow and Parquet that it takes, in Arrow's words.
        json: how a row of JSON writes a value.
        is_source: whether a type of Arrow is one of the sources.
        arrow: the type of Arrow that Spark is handed; None: it depends on the type's parameters.
    """

    name: str
    sources: str
    json: str
    is_source: Callable[[pa.DataType], bool]
    arrow: Callable[[], pa.DataType] | None = None


def _any_of(*names: str) -> Callable[[pa.DataType], bool]:
    def is_source(source: pa.DataType) -> bool:
        return any(getattr(pa.types, f"is_{name}")(source) for name in names)

    return is_source


def _arrow(name: str, *arguments: str) -> Callable[[], pa.DataType]:
    def build() -> pa.DataType:
        return getattr(pa, name)(*arguments)

    return build


def _is_timestamp(*, zoned: bool) -> Callable[[pa.DataType], bool]:
    def is_source(source: pa.DataType) -> bool:
        return bool(pa.types.is_timestamp(source) and (source.tz is not None) == zoned)

    return is_source


def _is_decimal(source: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(source) and 0 <= source.scale <= source.precision <= _MAX_PRECISION)


def _is_fixed(source: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(source) and source.byte_width > 0)


def _is_extension(name: str) -> Callable[[pa.DataType], bool]:
    def is_source(source: pa.DataType) -> bool:
        return isinstance(source, pa.BaseExtensionType) and source.extension_name == name

    return is_source


def _is_string(source: pa.DataType) -> bool:
    return _any_of("string", "large_string", "string_view")(source) or _is_extension("arrow.json")(source)


TYPES: tuple[ColumnType, ...] = (
    ColumnType("boolean", "`bool`", "`true`, `false`", _any_of("boolean"), _arrow("bool_")),
    ColumnType(
        "int", "`int8` to `int32`, `uint8`, `uint16`", "a whole number",
        _any_of("int8", "int16", "int32", "uint8", "uint16"), _arrow("int32"),
    ),
    ColumnType(
        "long", "`int64`, `uint32`, `uint64` up to 2^63 - 1", "a whole number",
        _any_of("int64", "uint32", "uint64"), _arrow("int64"),
    ),
    ColumnType(
        "float", "`float16`, `float32`", "a number; a whole one as `float` holds it",
        _any_of("float16", "float32"), _arrow("float32"),
    ),
    ColumnType(
        "double", "`float64`", "a number; a whole one as `double` holds it", _any_of("float64"), _arrow("float64")
    ),
    ColumnType("decimal(p, s)", "`decimal32` to `decimal256`, p up to 38", "a number, or its text", _is_decimal),
    ColumnType("date", "`date32`, `date64`", '`"2026-11-23"`', _any_of("date"), _arrow("date32")),
    ColumnType(
        "time", "`time32`, `time64`", '`"10:00:00"`, with up to six digits after a point',
        _any_of("time"), _arrow("time64", "us"),
    ),
    ColumnType(
        "timestamp", "`timestamp` without a zone", '`"2026-11-23T10:00:00"`, likewise',
        _is_timestamp(zoned=False), _arrow("timestamp", "us"),
    ),
    ColumnType(
        "timestamptz", "`timestamp` with a zone", 'the same with `Z` or `+01:00`',
        _is_timestamp(zoned=True), _arrow("timestamp", "us", "UTC"),
    ),
    ColumnType(
        "string", "`string`, `large_string`, `string_view`, `arrow.json`", "a text", _is_string, _arrow("string")
    ),
    ColumnType("uuid", "`arrow.uuid`; a text, or 16 bytes", "as RFC 9562 writes it", _is_extension("arrow.uuid"),
               _arrow("string")),
    ColumnType("fixed[n]", "`fixed_size_binary`, no `INTERVAL`", "base64 of n bytes", _is_fixed),
    ColumnType(
        "binary", "`binary`, `large_binary`, `binary_view`", "base64",
        _any_of("binary", "large_binary", "binary_view"), _arrow("binary"),
    ),
)  # fmt: skip
NESTED = (
    ("list", "`list`, `large_list`, `fixed_size_list`, `list_view`, `large_list_view`", "an array"),
    ("map", "`map`", "an object; keys are texts"),
    ("struct", "`struct` with fields", "an object"),
)
"""Rows of the documentation for types that are made of others: `list_type`, `arrow_type` and `iceberg_type`."""


def format_type_table() -> list[str]:
    """Return the table as the documentation has it, in Markdown."""
    rows = [(column_type.name, column_type.sources, column_type.json) for column_type in TYPES]
    lines = ["| column | from Arrow and Parquet | from JSON |", "|---|---|---|"]
    return lines + [f"| `{name}` | {sources} | {json} |" for name, sources, json in (*rows, *NESTED)]


def parse_decimal(type: Type) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type, None for any other."""
    match = _DECIMAL.fullmatch(type) if isinstance(type, str) else None
    return (int(match[1]), int(match[2])) if match else None


def parse_fixed(type: Type) -> int | None:
    """Return the length of a fixed type, None for any other."""
    match = _FIXED.fullmatch(type) if isinstance(type, str) else None
    return int(match[1]) if match else None


def arrow_type(type: Type, path: str = "") -> pa.DataType:
    """Return Arrow's type for a column's.

    Args:
        type: the column's.
        path: how messages call the column.

    Raises:
        BadDrop: ingestion writes no such column.
    """
    if isinstance(type, str):
        return _primitive_arrow_type(type, path)
    if type["type"] == "list":
        return pa.list_(arrow_type(type["element"], f"{path}.element"))
    if type["type"] == "map":
        return pa.map_(arrow_type(type["key"], f"{path}.key"), arrow_type(type["value"], f"{path}.value"))
    return pa.struct([pa.field(field["name"], arrow_type(field["type"], f"{path}.{field['name']}"))
                      for field in type["fields"]])  # fmt: skip


def _primitive_arrow_type(type: str, path: str) -> pa.DataType:
    if sizes := parse_decimal(type):
        return pa.decimal128(*sizes)
    if parse_fixed(type):
        return pa.binary()  # Spark's binary, whose length is checked when it is read
    row = next(
        (column_type for column_type in TYPES if column_type.name == type and column_type.arrow is not None), None
    )
    if row is None or row.arrow is None:
        raise BadDrop(f"column {path!r}: columns of type {printable(type, 50)} can't be written by ingestion")
    return row.arrow()


def iceberg_type(source: pa.DataType, path: str) -> Type:
    """Return the type of a column for Arrow's.

    Args:
        source: Arrow's.
        path: how messages call the column.

    Raises:
        BadDrop: no table has such a column.
    """
    if pa.types.is_dictionary(source) or pa.types.is_run_end_encoded(source):
        return iceberg_type(source.value_type, path)
    if pa.types.is_decimal(source) and _is_decimal(source):
        return f"decimal({source.precision}, {source.scale})"
    if _is_fixed(source):
        return f"fixed[{source.byte_width}]"
    for row in TYPES:
        if row.arrow is not None and row.is_source(source):
            return row.name
    return _nested_type(source, path)


def is_list(source: pa.DataType) -> bool:
    """Return whether a type of Arrow is one of lists, a map not among them."""
    return _any_of("list", "large_list", "list_view", "large_list_view")(source) or (
        _any_of("fixed_size_list")(source) and source.list_size > 0
    )


def convert_leaves(field: pa.Field, convert: Callable[[pa.Field], pa.DataType]) -> pa.Field:
    """Return a field whose values are of other types, those inside of dictionaries, maps, structs and lists, too.

    Args:
        convert: returns the type for a field that is none of these.
    """
    kind = field.type
    if pa.types.is_dictionary(kind):
        values = convert_leaves(field.with_type(kind.value_type), convert).type
        return field.with_type(pa.dictionary(kind.index_type, values, kind.ordered))
    if pa.types.is_map(kind):
        key, item = (convert_leaves(child, convert) for child in (kind.key_field, kind.item_field))
        return field.with_type(pa.map_(key, item, kind.keys_sorted))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([convert_leaves(child, convert) for child in kind]))
    if not is_list(kind):
        return field.with_type(convert(field))
    element = convert_leaves(kind.value_field, convert)
    if pa.types.is_fixed_size_list(kind):
        return field.with_type(pa.list_(element, kind.list_size))
    builders = {"large_list": pa.large_list, "list_view": pa.list_view, "large_list_view": pa.large_list_view}
    return field.with_type(builders.get(str(kind).partition("<")[0], pa.list_)(element))


def _nested_type(source: pa.DataType, path: str) -> Type:
    if is_list(source):
        return {"type": "list", "element": iceberg_type(source.value_type, f"{path}.element")}
    if pa.types.is_map(source):
        key, value = iceberg_type(source.key_type, f"{path}.key"), iceberg_type(source.item_type, f"{path}.value")
        return {"type": "map", "key": key, "value": value}
    if pa.types.is_struct(source) and source.num_fields:
        fields = [source.field(number) for number in range(source.num_fields)]
        require_unique_names([field.name for field in fields], f"{path}.")
        types = [{"name": field.name, "type": iceberg_type(field.type, f"{path}.{field.name}")} for field in fields]
        return {"type": "struct", "fields": types}
    raise BadDrop(f"column {path!r} has a type that no table has: {printable(str(source), 100)}")


def validate_parquet_schema(schema: Any) -> None:
    """See that Arrow reads each column of a Parquet file as what it is.

    It takes an interval for twelve bytes, and wraps a time of 96 bits around after 262 years: of those at the top the
    worker reads both halves, and of others it can't.

    Source: Apache Parquet, "Logical types", INTERVAL, and "Types", INT96.

    Args:
        schema: pyarrow's `ParquetSchema`.

    Raises:
        BadDrop: one isn't.
    """
    for column in (schema.column(number) for number in range(len(schema.names))):
        if column.converted_type == "INTERVAL":
            raise BadDrop(f"column {printable(column.path, 100)!r} has a type that no table has: INTERVAL")
        if column.physical_type == "INT96" and (column.path != column.name or column.max_repetition_level):
            raise BadDrop(
                f"column {printable(column.path, 100)!r} has a type that no table has: INT96 inside of another"
            )


def require_unique_names(names: Sequence[str], path: str = "") -> None:
    """See that no two columns of an upload have one name: which of them is meant would be ambiguous.

    Raises:
        BadDrop: two have.
    """
    if len(set(names)) != len(names):
        duplicate = next(name for index, name in enumerate(names) if name in names[:index])
        raise BadDrop(f"column {path + duplicate[:50]!r} occurs twice")
