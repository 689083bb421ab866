"""Rows as JSON lines: which values a column takes, and which columns rows bring; pure."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from math import inf
from typing import Any

from sterna.ingest.columns import Column, Type, decimal

_BITS = {"int": 31, "long": 63}
_LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_DIGITS = Context(prec=80)  # a decimal has 38, and Python's own context 28
Converter = Callable[[Any], Any]


class BadValue(ValueError):
    """A value that its column doesn't take; the text says why, and shows nothing of it."""


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a row; decimals exact.

    Raises:
        BadValue: it is no JSON object, or names a column twice.
    """
    try:
        row = json.loads(line, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except BadValue:
        raise
    except InvalidOperation:
        raise BadValue("no JSON: a number with an exponent that nothing can hold") from None
    except (ValueError, RecursionError) as error:
        raise BadValue(f"no JSON: {str(error)[:100]}") from None
    if not isinstance(row, dict):
        raise BadValue("a row is a JSON object")
    return row


def brought(rows: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns that rows bring, as far as their values tell; one that is null everywhere isn't among them."""
    found: dict[str, Type | None] = {}
    for row in rows:
        for name, value in row.items():
            found[name] = _both(found.get(name), _type(value))
    return tuple(Column(name, type) for name, type in found.items() if type is not None)


def converter(type: Type) -> Converter:
    """Return what makes a column's value of one from JSON, raising BadValue; None is none."""
    if isinstance(type, str):
        sizes = decimal(type)
        inner = (lambda value: _decimal(value, *sizes)) if sizes else _PLAIN.get(type, _no_column)
    elif type["type"] == "list":
        element = converter(type["element"])
        inner = lambda value: [element(each) for each in _is(value, list)]  # noqa: E731
    elif type["type"] == "map":
        item = converter(type["value"])
        inner = lambda value: [(key, item(each)) for key, each in _is(value, dict).items()]  # noqa: E731
    else:
        fields = {field["name"]: converter(field["type"]) for field in type["fields"]}
        inner = lambda value: _struct(_is(value, dict), fields)  # noqa: E731
    return lambda value: None if value is None else inner(value)


def _struct(value: Mapping[str, Any], fields: Mapping[str, Converter]) -> dict[str, Any]:
    if more := sorted(set(value) - set(fields)):
        raise BadValue(f"there is no field {more[0][:50]!r}")
    return {name: field(value.get(name)) for name, field in fields.items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadValue("a name stands twice in an object")
    return made


def _refuse_constant(name: str) -> Any:
    raise BadValue(f"{name} is no JSON")


def _is(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadValue(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


def _whole(bits: int) -> Converter:
    def take(value: Any) -> int:
        number: int = _is(value, int)
        if not -(1 << bits) <= number < 1 << bits:
            raise BadValue(f"a number beyond {bits + 1} bits")
        return number

    return take


def _real(kind: str, largest: float) -> Converter:
    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise BadValue(f"expected a number, not {type(value).__name__}")
        try:
            number = float(value)
        except OverflowError:
            number = inf
        if abs(number) > largest:  # a decimal beyond it becomes infinite without a word
            raise BadValue(f"a number beyond a {kind}'s range")
        return number

    return take


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise BadValue(f"expected a number, not {type(value).__name__}")
    try:
        number = Decimal(value)
        exact = number.is_finite() and number == number.quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    except InvalidOperation:
        exact = False
    if not exact or (number and number.adjusted() >= precision - scale):
        raise BadValue(f"no decimal of {precision} digits, {scale} of them after the point")
    return number


def _date(value: Any) -> date:
    try:
        return date.fromisoformat(_is(value, str))
    except ValueError as error:
        raise error if isinstance(error, BadValue) else BadValue("no date such as 2026-11-23") from None


def _timestamp(value: Any, *, zoned: bool) -> datetime:
    try:
        moment = datetime.fromisoformat(_is(value, str))
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC)  # which one at either end of time doesn't have
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, BadValue) else BadValue("no time such as 2026-11-23T10:00:00") from None
    if zoned != (moment.tzinfo is not None):
        raise BadValue("a time needs its offset here" if zoned else "a time has no offset here")
    return moment


def _uuid(value: Any) -> str:
    try:
        return str(uuid.UUID(_is(value, str)))
    except ValueError as error:
        raise error if isinstance(error, BadValue) else BadValue("no UUID") from None


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(_is(value, str), validate=True)
    except ValueError as error:
        raise error if isinstance(error, BadValue) else BadValue("no base64") from None


def _text(value: Any) -> str:
    text: str = _is(value, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue("half of a surrogate pair") from None
    return text


def _no_column(value: Any) -> Any:
    raise BadValue("ingestion writes no such column")


_PLAIN: dict[str, Converter] = {
    "boolean": lambda value: _is(value, bool),
    "int": _whole(_BITS["int"]),
    "long": _whole(_BITS["long"]),
    "float": _real("float", _LARGEST["float"]),
    "double": _real("double", _LARGEST["double"]),
    "string": _text,
    "date": _date,
    "timestamp": lambda value: _timestamp(value, zoned=False),
    "timestamptz": lambda value: _timestamp(value, zoned=True),
    "uuid": _uuid,
    "binary": _binary,
}


def _type(value: Any) -> Type | None:
    """Return the type that a value tells; a text that looks like a time is a text."""
    if value is None:
        return None
    for kind, name in ((bool, "boolean"), (int, "long"), (Decimal, "double"), (str, "string")):
        if isinstance(value, kind):
            return name
    if isinstance(value, list):
        element: Type | None = None
        for each in value:
            element = _both(element, _type(each))
        return {"type": "list", "element": element} if element is not None else None
    fields = brought([value])
    return {"type": "struct", "fields": [{"name": each.name, "type": each.type} for each in fields]} if fields else None


def _both(one: Type | None, other: Type | None) -> Type | None:
    """Return the type of which both are; the first where there is none: the rows of the other are bad then."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if {str(one), str(other)} == {"long", "double"}:
        return "double"
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one["type"] == other["type"]:
        if one["type"] == "list":
            return {"type": "list", "element": _both(one["element"], other["element"])}
        fields = {field["name"]: field["type"] for field in one["fields"]}
        for field in other["fields"]:
            fields[field["name"]] = _both(fields.get(field["name"]), field["type"])
        return {"type": "struct", "fields": [{"name": name, "type": type} for name, type in fields.items()]}
    return one
