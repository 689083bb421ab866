"""Columns and values of a database as Iceberg and Arrow have them: exactly, or as text; pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from sterna.errors import UnfitSource
from sterna.pipelines.cdc.mysql_types import is_log_type, log_text_reader
from sterna.pipelines.cdc.postgres_converter import SOURCE_COLUMN, TYPE
from sterna.pipelines.cdc.postgres_types import text_reader
from sterna.pipelines.ingest.column_types import Type
from sterna.pipelines.ingest.columns import METADATA_COLUMNS, Column

UPDATED, DELETED = "last_updated_ts", "is_deleted"
"""Columns that sterna adds: when the source committed the row's last change, and whether it was deleted there."""
_PRIMITIVE_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
}
_PRIMITIVE_TYPES |= {"boolean": "boolean", "string": "string"}
_BINARY_TYPES = ("BYTEA", "BIT", "VARBIT", "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
_DECIMAL_TYPES = ("NUMERIC", "DECIMAL", "DEC", "FIXED")
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"  # a BIGINT UNSIGNED
_FILLERS = (None, 0, "", "0", "1970-01-01T00:00:00Z")
_MAX_DECIMAL_DIGITS = 38
_DEFAULT_PRECISION = "10"  # MySQL's default in a statement; Postgres always has a precision


@dataclass(frozen=True)
class SourceColumn:
    """A column as changes have it.

    Args:
        column: as the table on `main` has it.
        parse: makes a value of what JSON has; None stays None.
        may_change: whether an unchanged value may have another form.
        default: the engine's value for a missing one that can't be null, beside the zero of its type.
    """

    column: Column
    parse: Callable[[Any], Any]
    may_change: bool
    default: Any = None


def columns_of_schema(schema: Mapping[str, Any]) -> tuple[SourceColumn, ...]:
    """Return the columns of a change's schema, as the engine describes it (Kafka Connect's JSON).

    Args:
        schema: of the whole change: `before`, `after`, `source`, …

    Raises:
        UnfitSource: a column is of a kind that isn't read.
    """
    after = next(field for field in schema["fields"] if field["field"] == "after")
    validate_names([field["field"] for field in after["fields"]])
    return tuple(replace(_column(field), default=field.get("default")) for field in after["fields"])


def read_row(columns: Sequence[SourceColumn], row: Mapping[str, Any], absent: Mapping[str, Any]) -> list[Any]:
    """Return a row's values in the columns' order.

    Args:
        columns: of its schema.
        row: as JSON has it.
        absent: columns that the change doesn't contain; their values are None.

    Raises:
        UnfitSource: a value has no place in its column's type.
    """
    values = []
    for column in columns:
        name = column.column.name
        raw = None if name in absent else row.get(name)
        try:
            values.append(None if raw is None else column.parse(raw))
        except (ValueError, OverflowError, InvalidOperation, TypeError, KeyError):
            raise UnfitSource(
                f"a value of column {name} has no place in {_type_name(column.column.type)}: infinity, NaN, a far "
                "year, a date that no calendar has, or an array that is no list",
                hint="see UnfitSource in the run book",
            ) from None
    return values


def _type_name(type: Type) -> str:
    return type if isinstance(type, str) else f"a list of {type['element']}"


def absent_columns(columns: Sequence[SourceColumn], row: Mapping[str, Any], placeholder: str) -> list[str]:
    """Return the columns that a change doesn't contain, since their values are long and unchanged.

    Args:
        columns: of its schema.
        row: as JSON has it.
        placeholder: what the engine puts in their place.
    """
    # As text, as bytes, and as an hstore has it.
    pair = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    placeholders = (placeholder, base64.b64encode(placeholder.encode()).decode(), pair)
    return [column.column.name for column in columns if row.get(column.column.name) in placeholders]


def is_filler(column: SourceColumn, value: Any) -> bool:
    """Return whether the engine has this value for a missing one in a column that can't be null.

    Args:
        value: as JSON has it.
    """
    return value in (column.default, *_FILLERS)


def validate_names(names: Sequence[str], table: str = "") -> None:
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
            reason = f"it has a column {name}, and Iceberg has a metadata column of that name"
            raise UnfitSource(reason, table=table, hint=hint)
    if len({name.casefold() for name in names}) != len(names):
        raise UnfitSource("two of its columns differ by case alone", table=table, hint=hint)


def _column(field: Mapping[str, Any]) -> SourceColumn:
    name, parameters = field["field"], field.get("parameters") or {}
    if TYPE in parameters:
        text = log_text_reader(parameters) if is_log_type(parameters) else text_reader(parameters)
        return SourceColumn(Column(name, text.type), text.parse, not isinstance(text.type, str))
    if field["type"] == "array":
        element = _element(name, field["items"], parameters)
        parse = element.parse
        type: Type = {"type": "list", "element": element.column.type}
        return SourceColumn(
            Column(name, type),
            lambda raw: [None if element_raw is None else parse(element_raw) for element_raw in raw],
            True,
        )
    return _element(name, field, parameters)


def _element(name: str, field: Mapping[str, Any], parameters: Mapping[str, str]) -> SourceColumn:
    kind, logical_type = field["type"], field.get("name") or ""
    native = parameters.get(f"{SOURCE_COLUMN}type", "").upper()
    if logical_type == _CONNECT_DECIMAL:
        return SourceColumn(Column(name, "decimal(20, 0)"), _decode_unsigned, False)
    if kind == "string" and native.partition(" ")[0] in _DECIMAL_TYPES and (digits := _decimal_digits(parameters)):
        precision, scale = digits
        return SourceColumn(Column(name, f"decimal({precision}, {scale})"), _decimal_reader(scale), False)
    if logical_type == "io.debezium.data.Enum" and "\\" in (allowed := parameters.get("allowed", "")):
        if "\\" in allowed.replace("\\,", ","):
            raise UnfitSource(
                f"an option of column {name} has a backslash, which isn't read", hint="leave its table out"
            )
        # The log's values have a comma so, and the first rows' have it plain.
        return SourceColumn(Column(name, "string"), lambda raw: raw.replace("\\,", ","), False)
    if kind == "bytes" and native.lstrip("_") in _BINARY_TYPES:
        return SourceColumn(Column(name, "binary"), base64.b64decode, False)
    if kind == "bytes":  # a type unknown to the engine, as text
        return SourceColumn(Column(name, "string"), lambda raw: base64.b64decode(raw).decode(), False)
    if kind not in _PRIMITIVE_TYPES:
        raise UnfitSource(f"column {name} is of type {native or kind}, which isn't read", hint="leave its table out")
    return SourceColumn(
        Column(name, _PRIMITIVE_TYPES[kind]), float if kind in ("float", "double") else _identity, False
    )


def _identity(raw: Any) -> Any:
    return raw


def _decimal_digits(parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return precision and scale where the database limits them, within what Iceberg has."""
    precision, scale = (
        parameters.get(f"{SOURCE_COLUMN}length", _DEFAULT_PRECISION),
        parameters.get(f"{SOURCE_COLUMN}scale", "0"),
    )
    if not 0 < int(precision) <= _MAX_DECIMAL_DIGITS or not 0 <= int(scale) <= int(precision):
        return None
    return int(precision), int(scale)


def _decimal_reader(scale: int) -> Callable[[Any], Decimal]:
    step, context = Decimal(1).scaleb(-scale), Context(prec=_MAX_DECIMAL_DIGITS + 1)

    def parse(raw: Any) -> Decimal:
        value = Decimal(raw)
        if not value.is_finite() or value != (quantized := value.quantize(step, context=context)):
            raise ValueError
        return quantized

    return parse


def _decode_unsigned(raw: str) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(raw), "big", signed=True))
