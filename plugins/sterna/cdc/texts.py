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

from sterna.cdc.verbatim import ARRAY, NAME, SCALE, SIZE, TYPE
from sterna.ingest.column_types import Type

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
_ELEMENTS = {1000: _BOOL, 1001: _BYTEA, 1005: _INT2, 1007: _INT4, 1016: _INT8, 1028: _OID, 1021: _FLOAT4}
_ELEMENTS |= {1022: _FLOAT8, 1182: _DATE, 1183: _TIME, 1115: _TIMESTAMP, 1185: _TIMESTAMPTZ, 1187: _INTERVAL}
_ELEMENTS |= {791: _MONEY}
_BOX_ARRAY = 1020
_MOST_DIGITS = 38
_ITEMS = {mark: re.compile(rf'"((?:[^"\\]|\\.)*)"|([^"{mark}{{}}\\]+)', re.DOTALL) for mark in (",", ";")}
_SPAN = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_AMOUNT = re.compile(r"(-?)\$([0-9,]+\.[0-9]{2})")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

Read = Callable[[str], Any]


@dataclass(frozen=True)
class Text:
    """How a column's text is read.

    Args:
        type: as the table on `main` has it.
        read: makes a value of a text.

    Raises:
        ValueError, OverflowError: by `read`: the value has no place in the type.
    """

    type: Type
    read: Read


def text_of_column(parameters: Mapping[str, str]) -> Text:
    """Return how a column's text is read.

    Args:
        parameters: the parameters of its schema (`verbatim`).
    """
    number, name = int(parameters[TYPE]), parameters[NAME].rpartition(".")[2].strip('"')
    if number in (_NUMERIC, _BIT):
        return _limited(number, int(parameters[SIZE]), int(parameters[SCALE]))
    if name in ("vector", "halfvec"):
        element: Type = "double" if name == "vector" else "float"
        return Text({"type": "list", "element": element}, lambda raw: [float(each) for each in json.loads(raw)])
    if name == "hstore":
        return Text("string", _pairs)
    if parameters[ARRAY] == "true" or number in _ELEMENTS:
        return _array(number)
    return _KINDS.get(number, _TEXT)


def _limited(number: int, size: int, scale: int) -> Text:
    if number == _BIT:
        return Text("boolean", {"1": True, "0": False}.__getitem__) if size <= 1 else Text("binary", _bits)
    if not (0 < size <= _MOST_DIGITS and 0 <= scale <= size):
        return _TEXT
    return Text(f"decimal({size}, {scale})", _decimal)


def _array(number: int) -> Text:
    element = _KINDS.get(_ELEMENTS.get(number, 0), _TEXT)
    read, mark = element.read, ";" if number == _BOX_ARRAY else ","
    return Text({"type": "list", "element": element.type}, lambda raw: _items(raw, read, mark))


def _items(raw: str, read: Read, mark: str) -> list[Any]:
    """Return an array's values.

    Raises:
        ValueError: it has more than one dimension, or begins at another place than 1: a list has neither.
    """
    if not (raw.startswith("{") and raw.endswith("}")):
        raise ValueError("an array whose first element isn't at place 1 is no list")
    inner = raw[1:-1]
    if not inner:
        return []
    result, at = [], 0
    while True:
        item = _ITEMS[mark].match(inner, at)
        if item is None:
            raise ValueError("an array of more than one dimension is no list")
        quoted, bare = item.groups()
        result.append(None if bare == "NULL" else read(_plain(quoted) if bare is None else bare))
        at = item.end()
        if at == len(inner):
            return result
        if inner[at] != mark:
            raise ValueError(f"no array: {mark} is missing")
        at += 1


def _plain(quoted: str) -> str:
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def _pairs(raw: str) -> str:
    result = {_plain(key): None if value is None else _plain(value) for key, value in _all(_PAIR, raw)}
    return json.dumps(result, separators=(",", ":"), ensure_ascii=False)


def _all(pattern: re.Pattern[str], raw: str) -> list[tuple[str, str | None]]:
    return [(each[1], each[2]) for each in pattern.finditer(raw)]


def _as_it_is(raw: str) -> str:
    return raw


def _flag(raw: str) -> bool:
    return {"t": True, "f": False}[raw]


def _octets(raw: str) -> bytes:
    if not raw.startswith("\\x"):
        raise ValueError("no hexadecimal bytes")
    return bytes.fromhex(raw[2:])


def _bits(raw: str) -> bytes:
    return int(raw, 2).to_bytes((len(raw) + 7) // 8, "little")


def _decimal(raw: str) -> Decimal:
    value = Decimal(raw)
    if not value.is_finite():
        raise ValueError("not finite")
    return value


def _day(raw: str) -> date:
    if len(raw) != 10:  # a later year, one before Christ, or infinity
        raise ValueError("a far year")
    return date.fromisoformat(raw)


def _moment(raw: str) -> datetime:
    value = datetime.fromisoformat(_near(raw))
    if value.tzinfo is not None:
        raise ValueError("a zone")
    return value


def _zoned(raw: str) -> datetime:
    return datetime.fromisoformat(_near(raw)).astimezone(UTC)


def _near(raw: str) -> str:
    if raw[4:5] != "-" or raw.endswith("BC"):
        raise ValueError("a far year")
    return raw


def _clock(raw: str) -> str:
    whole, _, part = raw.partition(".")
    return f"{whole}.{part:0<6}" if part else whole


def _span(raw: str) -> str:
    """Return an interval as ISO 8601 has it, with all its parts; infinity as it is."""
    if raw.endswith("infinity"):
        return raw
    result = _SPAN.fullmatch(raw)
    if result is None:
        raise ValueError("no interval")
    years, months, days, sign, hours, minutes, seconds = result.groups()
    parts = [int(each or 0) for each in (years, months, days)]
    minus = -1 if sign == "-" else 1
    clock = [minus * int(each or 0) for each in (hours, minutes)]
    rest = (minus * Decimal(seconds or 0)).normalize()
    text = f"{rest:f}" if rest else "0"
    return f"P{parts[0]}Y{parts[1]}M{parts[2]}DT{clock[0]}H{clock[1]}M{text}S"


def _amount(raw: str) -> str:
    result = _AMOUNT.fullmatch(raw)
    if result is None:
        raise ValueError("no amount of money")
    return result[1] + result[2].replace(",", "")


_TEXT = Text("string", _as_it_is)
_KINDS: Mapping[int, Text] = {
    _BOOL: Text("boolean", _flag),
    _BYTEA: Text("binary", _octets),
    _INT8: Text("long", int),
    _INT2: Text("int", int),
    _INT4: Text("int", int),
    _OID: Text("long", int),
    _FLOAT4: Text("float", float),
    _FLOAT8: Text("double", float),
    _MONEY: Text("string", _amount),
    _DATE: Text("date", _day),
    _TIME: Text("string", _clock),
    _TIMESTAMP: Text("timestamp", _moment),
    _TIMESTAMPTZ: Text("timestamptz", _zoned),
    _INTERVAL: Text("string", _span),
}
