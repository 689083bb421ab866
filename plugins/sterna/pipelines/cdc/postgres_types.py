"""Values of a Postgres from the database's own text: exactly, or as that text; pure.

Sessions have pinned settings (`SETTINGS`), so that text has one form: dates in ISO 8601, intervals as `postgres`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from sterna.pipelines.cdc.postgres_converter import ARRAY, NAME, SCALE, SIZE, TYPE
from sterna.pipelines.ingest.column_types import Type

SETTINGS: Final[Mapping[str, str]] = {
    "DateStyle": "ISO,MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "row_security": "off",
    "search_path": "public",
}
"""Settings of a session that change how values are written, which names they have, or which rows there are."""
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _OID = 16, 17, 20, 21, 23, 26
_FLOAT4, _FLOAT8, _MONEY, _NUMERIC = 700, 701, 790, 1700
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ, _INTERVAL, _BIT = 1082, 1083, 1114, 1184, 1186, 1560
_ARRAY_ELEMENTS = {1000: _BOOL, 1001: _BYTEA, 1005: _INT2, 1007: _INT4, 1016: _INT8, 1028: _OID, 1021: _FLOAT4}
_ARRAY_ELEMENTS |= {1022: _FLOAT8, 1182: _DATE, 1183: _TIME, 1115: _TIMESTAMP, 1185: _TIMESTAMPTZ, 1187: _INTERVAL}
_ARRAY_ELEMENTS |= {791: _MONEY}
_BOX_ARRAY = 1020
_MAX_DECIMAL_DIGITS = 38
_ARRAY_ELEMENT = {
    delimiter: re.compile(rf'"((?:[^"\\]|\\.)*)"|([^"{delimiter}{{}}\\]+)', re.DOTALL) for delimiter in (",", ";")
}
_INTERVAL_TEXT = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_HSTORE_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_MONEY_TEXT = re.compile(r"(-?)\$([0-9,]+\.[0-9]{2})")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

ParseText = Callable[[str], Any]


@dataclass(frozen=True)
class TextReader:
    """How a column's text is read.

    Args:
        type: as the table on `main` has it.
        parse: makes a value of a text.

    Raises:
        ValueError, OverflowError: by `parse`: the value has no place in the type.
    """

    type: Type
    parse: ParseText


def text_reader(parameters: Mapping[str, str]) -> TextReader:
    """Return how a column's text is read.

    Args:
        parameters: the parameters of its schema (`postgres_converter`).
    """
    type_oid, name = int(parameters[TYPE]), parameters[NAME].rpartition(".")[2].strip('"')
    if type_oid in (_NUMERIC, _BIT):
        return _sized_reader(type_oid, int(parameters[SIZE]), int(parameters[SCALE]))
    if name in ("vector", "halfvec"):
        element: Type = "double" if name == "vector" else "float"
        return TextReader(
            {"type": "list", "element": element}, lambda raw: [float(element_text) for element_text in json.loads(raw)]
        )
    if name == "hstore":
        return TextReader("string", _parse_hstore)
    if parameters[ARRAY] == "true" or type_oid in _ARRAY_ELEMENTS:
        return _array_reader(type_oid)
    return _READERS.get(type_oid, _STRING_READER)


def _sized_reader(type_oid: int, size: int, scale: int) -> TextReader:
    if type_oid == _BIT:
        return (
            TextReader("boolean", {"1": True, "0": False}.__getitem__)
            if size <= 1
            else TextReader("binary", _parse_bits)
        )
    if not (0 < size <= _MAX_DECIMAL_DIGITS and 0 <= scale <= size):
        return _STRING_READER
    return TextReader(f"decimal({size}, {scale})", _parse_decimal)


def _array_reader(type_oid: int) -> TextReader:
    element = _READERS.get(_ARRAY_ELEMENTS.get(type_oid, 0), _STRING_READER)
    parse, delimiter = element.parse, ";" if type_oid == _BOX_ARRAY else ","
    return TextReader({"type": "list", "element": element.type}, lambda raw: _parse_array(raw, parse, delimiter))


def _parse_array(raw: str, parse: ParseText, delimiter: str) -> list[Any]:
    """Return an array's values.

    Raises:
        ValueError: it has more than one dimension, or begins at another place than 1: a list has neither.
    """
    if not (raw.startswith("{") and raw.endswith("}")):
        raise ValueError("an array whose first element isn't at place 1 is no list")
    inner = raw[1:-1]
    if not inner:
        return []
    elements, index = [], 0
    while True:
        match = _ARRAY_ELEMENT[delimiter].match(inner, index)
        if match is None:
            raise ValueError("an array of more than one dimension is no list")
        quoted, unquoted = match.groups()
        elements.append(None if unquoted == "NULL" else parse(_unescape(quoted) if unquoted is None else unquoted))
        index = match.end()
        if index == len(inner):
            return elements
        if inner[index] != delimiter:
            raise ValueError(f"no array: {delimiter} is missing")
        index += 1


def _unescape(quoted: str) -> str:
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def _parse_hstore(raw: str) -> str:
    matches = _HSTORE_PAIR.finditer(raw)
    pairs = {_unescape(match[1]): None if match[2] is None else _unescape(match[2]) for match in matches}
    return json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)


def _parse_boolean(raw: str) -> bool:
    return {"t": True, "f": False}[raw]


def _parse_bytea(raw: str) -> bytes:
    if not raw.startswith("\\x"):
        raise ValueError("no hexadecimal bytes")
    return bytes.fromhex(raw[2:])


def _parse_bits(raw: str) -> bytes:
    return int(raw, 2).to_bytes((len(raw) + 7) // 8, "little")


def _parse_decimal(raw: str) -> Decimal:
    value = Decimal(raw)
    if not value.is_finite():
        raise ValueError("not finite")
    return value


def _parse_date(raw: str) -> date:
    if len(raw) != 10:  # a later year, one before Christ, or infinity
        raise ValueError("a far year")
    return date.fromisoformat(raw)


def _parse_timestamp(raw: str) -> datetime:
    value = datetime.fromisoformat(_require_four_digit_year(raw))
    if value.tzinfo is not None:
        raise ValueError("a zone")
    return value


def _parse_timestamptz(raw: str) -> datetime:
    return datetime.fromisoformat(_require_four_digit_year(raw)).astimezone(UTC)


def _require_four_digit_year(raw: str) -> str:
    if raw[4:5] != "-" or raw.endswith("BC"):
        raise ValueError("a far year")
    return raw


def _parse_time(raw: str) -> str:
    clock, _, fraction = raw.partition(".")
    return f"{clock}.{fraction:0<6}" if fraction else clock


def _parse_interval(raw: str) -> str:
    """Return an interval as ISO 8601 has it, with all its parts; infinity as it is."""
    if raw.endswith("infinity"):
        return raw
    match = _INTERVAL_TEXT.fullmatch(raw)
    if match is None:
        raise ValueError("no interval")
    years, months, days, sign, hours, minutes, seconds = match.groups()
    parts = [int(part or 0) for part in (years, months, days)]
    minus = -1 if sign == "-" else 1
    clock = [minus * int(part or 0) for part in (hours, minutes)]
    fraction = (minus * Decimal(seconds or 0)).normalize()
    text = f"{fraction:f}" if fraction else "0"
    return f"P{parts[0]}Y{parts[1]}M{parts[2]}DT{clock[0]}H{clock[1]}M{text}S"


def _parse_money(raw: str) -> str:
    match = _MONEY_TEXT.fullmatch(raw)
    if match is None:
        raise ValueError("no amount of money")
    return match[1] + match[2].replace(",", "")


_STRING_READER = TextReader("string", str)
_READERS: Mapping[int, TextReader] = {
    _BOOL: TextReader("boolean", _parse_boolean),
    _BYTEA: TextReader("binary", _parse_bytea),
    _INT8: TextReader("long", int),
    _INT2: TextReader("int", int),
    _INT4: TextReader("int", int),
    _OID: TextReader("long", int),
    _FLOAT4: TextReader("float", float),
    _FLOAT8: TextReader("double", float),
    _MONEY: TextReader("string", _parse_money),
    _DATE: TextReader("date", _parse_date),
    _TIME: TextReader("string", _parse_time),
    _TIMESTAMP: TextReader("timestamp", _parse_timestamp),
    _TIMESTAMPTZ: TextReader("timestamptz", _parse_timestamptz),
    _INTERVAL: TextReader("string", _parse_interval),
}
