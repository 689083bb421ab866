"""Arrow's values as JSON holds them: doubles are numbers; decimals and whole numbers of 64 bits are text."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from sterna.errors import QueryFailed

_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def type_name(kind: pa.DataType) -> str:
    """Return a type as Iceberg calls it.

    Raises:
        QueryFailed: an answer can't have it.
    """
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if kinds.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if kinds.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if kinds.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if kinds.is_timestamp(kind):
        return f"timestamp{'tz' if kind.tz else ''}{'_ns' if kind.unit == 'ns' else ''}"
    for name, checks in _NAMES.items():
        if any(check(kind) for check in checks):
            return name
    raise QueryFailed(f"the answer has a column of the type {kind}: cast it in the SQL")


_NAMES: dict[str, tuple[Any, ...]] = {
    "boolean": (kinds.is_boolean,),
    "int": (kinds.is_int8, kinds.is_int16, kinds.is_int32, kinds.is_uint8, kinds.is_uint16),
    "long": (kinds.is_int64, kinds.is_uint32),
    "decimal(20, 0)": (kinds.is_uint64,),
    "float": (kinds.is_float32,),
    "double": (kinds.is_float64,),
    "string": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
    "binary": (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view),
    "date": (kinds.is_date32,),
    "time": (kinds.is_time64,),
    "unknown": (kinds.is_null,),
}


def json_value(value: pa.Scalar) -> Any:
    """Return a value as JSON holds it; `type_name` has passed its type."""
    if not value.is_valid:
        return None
    kind = value.type
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return [json_value(element) for element in value.values]
    if kinds.is_map(kind):
        return [[json_value(pair[0]), json_value(pair[1])] for pair in value.values]
    if kinds.is_struct(kind):
        return {field.name: json_value(value[field.name]) for field in kind}
    if kinds.is_timestamp(kind):
        return _format_time(value.value, kind.unit, kind.tz is not None)
    return _plain_value(value.as_py(), kind)


def _plain_value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if type_name(kind) == "int" else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE[str(value)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else format(value, "f")


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # JSON has no numbers for these


def _format_time(value: int, unit: str, zoned: bool) -> str:
    seconds, fraction_units = divmod(value, _UNITS_PER_SECOND[unit])
    try:
        text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    except OverflowError:
        raise QueryFailed("the answer has a time outside the years 1 to 9999") from None
    digits = _DIGITS[unit]
    fraction = f".{fraction_units:0{digits}d}" if fraction_units else ""
    return f"{text:0>19}{fraction}{'Z' if zoned else ''}"
