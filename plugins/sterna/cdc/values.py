"""Columns and values of a database as Iceberg and Arrow have them: exactly, or as text; pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from sterna.cdc.log_texts import is_of_log, text_of_log
from sterna.cdc.texts import text_of_column
from sterna.cdc.verbatim import TYPE
from sterna.errors import UnfitSource
from sterna.ingest.column_types import Type
from sterna.ingest.columns import METADATA_COLUMNS, Column

UPDATED, DELETED = "last_updated_ts", "is_deleted"
"""Columns that sterna adds: when the source committed the row's last change, and whether it was deleted there."""
_SOURCE = "__debezium.source.column."
_PLAIN = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double"}
_PLAIN |= {"boolean": "boolean", "string": "string"}
_BYTES = ("BYTEA", "BIT", "VARBIT", "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
_NUMBERS = ("NUMERIC", "DECIMAL", "DEC", "FIXED")
_LARGE = "org.apache.kafka.connect.data.Decimal"  # a BIGINT UNSIGNED
_FILLERS = (None, 0, "", "0", "1970-01-01T00:00:00Z")
_MOST_DIGITS = 38
_DIGITS = "10"  # a MySQL's, where a statement says none; a Postgres always says how many


@dataclass(frozen=True)
class SourceColumn:
    """A column as changes bring it.

    Args:
        column: as the table on `main` has it.
        read: makes a value of what JSON has; None stays None.
        array: whether a value that was not changed may come as another one.
        default: what the engine fills in where the value isn't told and can't be null, beside the zero of its type.
    """

    column: Column
    read: Callable[[Any], Any]
    array: bool
    default: Any = None


def columns_of_schema(schema: Mapping[str, Any]) -> tuple[SourceColumn, ...]:
    """Return the columns of a change's schema, as the engine describes it (Kafka Connect's JSON).

    Args:
        schema: of the whole change: `before`, `after`, `source`, …

    Raises:
        UnfitSource: a column is of a kind that isn't read.
    """
    after = next(field for field in schema["fields"] if field["field"] == "after")
    refuse_names([field["field"] for field in after["fields"]])
    return tuple(replace(_column(field), default=field.get("default")) for field in after["fields"])


def read_row(columns: Sequence[SourceColumn], row: Mapping[str, Any], absent: Mapping[str, Any]) -> list[Any]:
    """Return a row's values in the columns' order.

    Args:
        columns: of its schema.
        row: as JSON has it.
        absent: columns that weren't told; their values are None.

    Raises:
        UnfitSource: a value has no place in its column's type.
    """
    values = []
    for each in columns:
        name = each.column.name
        given = None if name in absent else row.get(name)
        try:
            values.append(None if given is None else each.read(given))
        except (ValueError, OverflowError, InvalidOperation, TypeError, KeyError):
            raise UnfitSource(
                f"a value of column {name} has no place in {_type_name(each.column.type)}: infinity, NaN, a far year, "
                "a date that no calendar has, or an array that is no list",
                hint="see UnfitSource in the run book",
            ) from None
    return values


def _type_name(type: Type) -> str:
    return type if isinstance(type, str) else f"a list of {type['element']}"


def absent_columns(columns: Sequence[SourceColumn], row: Mapping[str, Any], placeholder: str) -> list[str]:
    """Return the columns of which a change doesn't tell the value, since it is long and was not changed.

    Args:
        columns: of its schema.
        row: as JSON has it.
        placeholder: what the engine puts in their place.
    """
    # As text, as bytes, and as an hstore has it.
    pair = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    signs = (placeholder, base64.b64encode(placeholder.encode()).decode(), pair)
    return [each.column.name for each in columns if row.get(each.column.name) in signs]


def is_filler(column: SourceColumn, value: Any) -> bool:
    """Say whether the engine has the same value for a column that can't be null and isn't told.

    Args:
        column: the column.
        value: as JSON has it.
    """
    return value in (column.default, *_FILLERS)


def refuse_names(names: Sequence[str], table: str = "") -> None:
    """See that a table on `main` can have columns of these names.

    Args:
        names: of all of a table's columns.
        table: its `schema.table`, or "".

    Raises:
        UnfitSource: it can't.
    """
    hint = "leave the table out"
    for name in names:
        if name.casefold() in (UPDATED, DELETED) or name.casefold().startswith("_sterna_"):
            raise UnfitSource(f"it has a column {name}, and sterna has one of that name", table=table, hint=hint)
        if name.casefold() in METADATA_COLUMNS:
            said = f"it has a column {name}, and Iceberg has a metadata column of that name"
            raise UnfitSource(said, table=table, hint=hint)
    if len({name.casefold() for name in names}) != len(names):
        raise UnfitSource("two of its columns differ by case alone", table=table, hint=hint)


def _column(field: Mapping[str, Any]) -> SourceColumn:
    name, parameters = field["field"], field.get("parameters") or {}
    if TYPE in parameters:
        text = text_of_log(parameters) if is_of_log(parameters) else text_of_column(parameters)
        return SourceColumn(Column(name, text.type), text.read, not isinstance(text.type, str))
    if field["type"] == "array":
        element = _element(name, field["items"], parameters)
        read = element.read
        type: Type = {"type": "list", "element": element.column.type}
        return SourceColumn(Column(name, type), lambda given: [None if v is None else read(v) for v in given], True)
    return _element(name, field, parameters)


def _element(name: str, field: Mapping[str, Any], parameters: Mapping[str, str]) -> SourceColumn:
    kind, meaning = field["type"], field.get("name") or ""
    native = parameters.get(f"{_SOURCE}type", "").upper()
    if meaning == _LARGE:
        return SourceColumn(Column(name, "decimal(20, 0)"), _large, False)
    if kind == "string" and native.partition(" ")[0] in _NUMBERS and (digits := _digits(parameters)):
        precision, scale = digits
        return SourceColumn(Column(name, f"decimal({precision}, {scale})"), _decimal_reader(scale), False)
    if meaning == "io.debezium.data.Enum" and "\\" in (allowed := parameters.get("allowed", "")):
        if "\\" in allowed.replace("\\,", ","):
            raise UnfitSource(
                f"an option of column {name} has a backslash, which isn't read", hint="leave its table out"
            )
        # The log's values have a comma so, and the first rows' have it plain.
        return SourceColumn(Column(name, "string"), lambda given: given.replace("\\,", ","), False)
    if kind == "bytes" and native.lstrip("_") in _BYTES:
        return SourceColumn(Column(name, "binary"), base64.b64decode, False)
    if kind == "bytes":  # a type that the engine doesn't know, in its text form
        return SourceColumn(Column(name, "string"), lambda given: base64.b64decode(given).decode(), False)
    if kind not in _PLAIN:
        raise UnfitSource(f"column {name} is of type {native or kind}, which isn't read", hint="leave its table out")
    return SourceColumn(Column(name, _PLAIN[kind]), float if kind in ("float", "double") else _as_it_is, False)


def _as_it_is(given: Any) -> Any:
    return given


def _digits(parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return precision and scale where the database limits them, within what Iceberg has."""
    precision, scale = parameters.get(f"{_SOURCE}length", _DIGITS), parameters.get(f"{_SOURCE}scale", "0")
    if not 0 < int(precision) <= _MOST_DIGITS or not 0 <= int(scale) <= int(precision):
        return None
    return int(precision), int(scale)


def _decimal_reader(scale: int) -> Callable[[Any], Decimal]:
    step = Decimal(1).scaleb(-scale)

    def read(given: Any) -> Decimal:
        value = Decimal(given)
        if not value.is_finite() or value != (fixed := _quantized(value, step)):
            raise ValueError
        return fixed

    return read


def _quantized(value: Decimal, step: Decimal) -> Decimal:
    from decimal import Context

    return value.quantize(step, context=Context(prec=_MOST_DIGITS + 1))


def _large(given: str) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(given), "big", signed=True))
