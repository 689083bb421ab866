"""Rows as JSON lines: which values a column takes, and which columns rows bring; pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, InvalidOperation
from math import inf, nextafter
from typing import Any

from sterna.ingest import strict_texts as texts
from sterna.ingest.column_types import Type, decimal, fixed
from sterna.ingest.columns import Column

_BITS = {"int": 31, "long": 63}
_LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_DIGITS = Context(prec=80)  # a decimal has 38, and Python's own context 28
BLANK = b" \t\r\n"
"""What JSON takes for space: a line of nothing else is no row."""
Converter = Callable[[Any], Any]


class BadValue(ValueError):
    """A value that its column doesn't take.

    Args:
        text: why; it shows nothing of the value.
        path: of the field that has it, from the value down; "": the value itself.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path

    def inside(self, name: str) -> BadValue:
        """Return the same of the value that this one is a field of."""
        return BadValue(str(self), f"{name}.{self.path}" if self.path else name)


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a row; decimals exact.

    Raises:
        BadValue: it is no JSON object, or names a column twice.
    """
    try:
        # Decoded here: of bytes, `json` guesses the encoding.
        text = line.decode("utf-8")
        row = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_once)
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


def size(value: Any) -> int:
    """Return how many bytes of texts a value of a column has, those inside of it counted."""
    if isinstance(value, str | bytes):
        return len(value.encode()) if isinstance(value, str) else len(value)
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list | tuple) else 1


def converter(type: Type) -> Converter:
    """Return what reads a column's value from one of JSON, raising BadValue; None is none."""
    if isinstance(type, str):
        inner = _word(type)
    elif type["type"] == "list":
        inner = _list(type)
    elif type["type"] == "map":
        inner = _map(type)
    else:
        inner = _struct(type)
    return lambda value: None if value is None else inner(value)


def _word(type: str) -> Converter:
    if sizes := decimal(type):
        return lambda value: _decimal(value, *sizes)
    if length := fixed(type):
        return lambda value: _fixed(value, length)
    return _PLAIN.get(type, _no_column)


def _list(type: Mapping[str, Any]) -> Converter:
    element = _field("element", type["element"], required=bool(type.get("element-required")))
    return lambda value: [element(each) for each in _is(value, list)]


def _map(type: Mapping[str, Any]) -> Converter:
    key, item = _key(type["key"]), _field("value", type["value"], required=bool(type.get("value-required")))

    def take(value: Any) -> list[tuple[Any, Any]]:
        pairs = [(key(name), item(each)) for name, each in _is(value, dict).items()]
        if len({name for name, _ in pairs}) != len(pairs):
            raise BadValue("a key stands twice in a map", "key")
        return pairs

    return take


def _key(type: Type) -> Converter:
    """Return what reads a map's key, which is a text in JSON."""
    if not isinstance(type, str):
        return _no_column
    take = _word(type)
    if type in ("int", "long", "float", "double", "boolean"):
        take = lambda name: _word(type)(_scalar(name))  # noqa: E731

    def read(name: Any) -> Any:
        try:
            return take(name)
        except BadValue as error:
            raise error.inside("key") from None

    return read


def _scalar(name: str) -> Any:
    """Return what a text would be without its quotes: a number or a boolean."""
    if name in ("true", "false"):
        return name == "true"
    try:
        return texts.read_whole(name) if name.lstrip("-").isdigit() else texts.read_decimal(name)
    except texts.NoValue as error:
        raise BadValue(str(error)) from None


def _field(name: str, type: Type, *, required: bool) -> Converter:
    """Return what reads a field of a value, naming it where it is wrong."""
    take = converter(type)

    def read(value: Any) -> Any:
        try:
            result = take(value)
        except BadValue as error:
            raise error.inside(name) from None
        if result is None and required:
            raise BadValue("no value, and there has to be one", name)
        return result

    return read


def _struct(type: Mapping[str, Any]) -> Converter:
    fields = {
        field["name"]: _field(field["name"], field["type"], required=bool(field.get("required")))
        for field in type["fields"]
    }

    def take(value: Any) -> dict[str, Any]:
        row = _is(value, dict)
        for name in sorted(set(row) - set(fields)):
            if row[name] not in (None, [], {}):
                raise BadValue("the table has no such column", name[:100])
        return {name: read(row.get(name)) for name, read in fields.items()}

    return take


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


def _real(kind: str, nearest: Callable[[int | Decimal], float]) -> Converter:
    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise BadValue(f"expected a number, not {type(value).__name__}")
        number = nearest(value)
        if abs(number) > _LARGEST[kind]:  # a decimal beyond it becomes infinite without a word
            raise BadValue(f"a number beyond a {kind}'s range")
        # A fraction is read as the nearest there is, as by each reader of JSON. A whole number is meant as it stands.
        if isinstance(value, int) and number != value:
            raise BadValue(f"a whole number that a {kind} doesn't hold")
        return number

    return take


def _nearest_double(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf


def _nearest_float(value: int | Decimal) -> float:
    """Return the nearest number of 32 bits: rounded once, not to 64 bits before."""
    double = _nearest_double(value)
    if abs(double) > _LARGEST["float"]:
        return double
    single = _single(double)
    if single == double or double == value:
        return single
    # Half between two of them by 64 bits alone: the value itself says which is nearer.
    return _single(nextafter(double, inf if value > Decimal(double) else -inf)) if _is_half(double, single) else single


def _is_half(double: float, single: float) -> bool:
    other = double + (double - single)
    return _single(other) == other and other != single


def _single(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return inf if number > 0 else -inf


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise BadValue(f"expected a number, not {type(value).__name__}")
    try:
        number = texts.read_decimal(value) if isinstance(value, str) else Decimal(value)
        exact = number == number.quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    except (InvalidOperation, texts.NoValue):
        exact = False
    if not exact or (number and number.adjusted() >= precision - scale):
        raise BadValue(f"no decimal of {precision} digits, {scale} of them after the point")
    return number


def _of_text(read: Callable[[str], Any]) -> Converter:
    def take(value: Any) -> Any:
        try:
            return read(_is(value, str))
        except texts.NoValue as error:
            raise BadValue(str(error)) from None

    return take


_binary = _of_text(texts.read_base64)


def _fixed(value: Any, length: int) -> bytes:
    data: bytes = _binary(value)
    if len(data) != length:
        raise BadValue(f"{len(data)} bytes, and the column takes {length}")
    return data


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
    "float": _real("float", _nearest_float),
    "double": _real("double", _nearest_double),
    "string": _text,
    "date": _of_text(texts.read_date),
    "time": _of_text(texts.read_time),
    "timestamp": _of_text(lambda text: texts.read_timestamp(text, zoned=False)),
    "timestamptz": _of_text(lambda text: texts.read_timestamp(text, zoned=True)),
    "uuid": _of_text(texts.read_uuid),
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
