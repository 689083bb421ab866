"""Rows as JSON lines: which values a column takes, and which columns rows have; pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, InvalidOperation
from math import inf, nextafter
from typing import Any

from sterna.pipelines.ingest import strict_parsing as texts
from sterna.pipelines.ingest.column_types import Type, parse_decimal, parse_fixed
from sterna.pipelines.ingest.columns import Column
from sterna.pipelines.ingest.strict_parsing import BadValue

_BITS = {"int": 31, "long": 63}
_MAX_MAGNITUDE = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_DECIMAL_CONTEXT = Context(prec=80)  # a decimal has 38, and Python's own context 28
BLANK = b" \t\r\n"
"""What JSON takes for space: a line of nothing else is no row."""
Converter = Callable[[Any], Any]


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a row; decimals exact.

    Raises:
        BadValue: it is no JSON object, or names a column twice.
    """
    try:
        # Decoded here: of bytes, `json` guesses the encoding.
        text = line.decode("utf-8")
        row = texts.load_json(text, parse_float=Decimal)
    except BadValue:
        raise
    except InvalidOperation:
        raise BadValue("no JSON: a number with an exponent that nothing can hold") from None
    except (ValueError, RecursionError) as error:
        raise BadValue(f"no JSON: {str(error)[:100]}") from None
    if not isinstance(row, dict):
        raise BadValue("a row is a JSON object")
    return row


def infer_columns(rows: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns of rows, inferred from their values; one that is null everywhere isn't among them."""
    types: dict[str, Type | None] = {}
    for row in rows:
        for name, value in row.items():
            types[name] = _common_type(types.get(name), _infer_type(value))
    return tuple(Column(name, type) for name, type in types.items() if type is not None)


def value_bytes(value: Any) -> int:
    """Return how many bytes of texts a value of a column has, those inside of it counted."""
    if isinstance(value, str | bytes):
        return len(value.encode()) if isinstance(value, str) else len(value)
    if isinstance(value, dict):
        return sum(map(value_bytes, value.values()))
    return sum(map(value_bytes, value)) if isinstance(value, list | tuple) else 1


def build_converter(type: Type) -> Converter:
    """Return what reads a column's value from one of JSON, raising BadValue; None is none."""
    if isinstance(type, str):
        convert = _primitive(type)
    elif type["type"] == "list":
        convert = _list(type)
    elif type["type"] == "map":
        convert = _map(type)
    else:
        convert = _struct(type)
    return lambda value: None if value is None else convert(value)


def _primitive(type: str) -> Converter:
    if sizes := parse_decimal(type):
        return lambda value: _decimal(value, *sizes)
    if length := parse_fixed(type):
        return lambda value: _fixed(value, length)
    return _PRIMITIVE_CONVERTERS.get(type, _reject_column)


def _list(type: Mapping[str, Any]) -> Converter:
    element = _field("element", type["element"], required=bool(type.get("element-required")))
    return lambda value: [element(member) for member in _require_type(value, list)]


def _map(type: Mapping[str, Any]) -> Converter:
    convert_key, convert_value = (
        _key(type["key"]),
        _field("value", type["value"], required=bool(type.get("value-required"))),
    )

    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = [(convert_key(name), convert_value(member)) for name, member in _require_type(value, dict).items()]
        if len({name for name, _ in pairs}) != len(pairs):
            raise BadValue("a map has a key twice", "key")
        return pairs

    return convert


def _key(type: Type) -> Converter:
    """Return what reads a map's key, which is a text in JSON."""
    if not isinstance(type, str):
        return _reject_column
    convert = _primitive(type)
    if type in ("int", "long", "float", "double", "boolean"):
        convert = lambda name: _primitive(type)(_scalar(name))  # noqa: E731

    def read(name: Any) -> Any:
        try:
            return convert(name)
        except BadValue as error:
            raise error.nested_in("key") from None

    return read


def _scalar(name: str) -> Any:
    """Return what a text would be without its quotes: a number or a boolean."""
    if name in ("true", "false"):
        return name == "true"
    return texts.read_integer(name) if name.lstrip("-").isdigit() else texts.read_decimal(name)


def _field(name: str, type: Type, *, required: bool) -> Converter:
    """Return what reads a field of a value, naming it where it is wrong."""
    convert = build_converter(type)

    def read(value: Any) -> Any:
        try:
            converted = convert(value)
        except BadValue as error:
            raise error.nested_in(name) from None
        if converted is None and required:
            raise BadValue("no value, and there has to be one", name)
        return converted

    return read


def _struct(type: Mapping[str, Any]) -> Converter:
    fields = {
        field["name"]: _field(field["name"], field["type"], required=bool(field.get("required")))
        for field in type["fields"]
    }

    def convert(value: Any) -> dict[str, Any]:
        row = _require_type(value, dict)
        for name in sorted(set(row) - set(fields)):
            if row[name] not in (None, [], {}):
                raise BadValue("the table has no such column", name[:100])
        return {name: read(row.get(name)) for name, read in fields.items()}

    return convert


def _require_type(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadValue(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


def _integer(bits: int) -> Converter:
    def convert(value: Any) -> int:
        number: int = _require_type(value, int)
        if not -(1 << bits) <= number < 1 << bits:
            raise BadValue(f"a number beyond {bits + 1} bits")
        return number

    return convert


def _floating(kind: str, nearest: Callable[[int | Decimal], float]) -> Converter:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise BadValue(f"expected a number, not {type(value).__name__}")
        number = nearest(value)
        if abs(number) > _MAX_MAGNITUDE[kind]:  # a decimal beyond it becomes infinite without a word
            raise BadValue(f"a number beyond a {kind}'s range")
        # A fraction is rounded to the nearest double, as every JSON reader does. A whole number has to be exact.
        if isinstance(value, int) and number != value:
            raise BadValue(f"a whole number that a {kind} doesn't hold")
        return number

    return convert


def _nearest_double(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf


def _nearest_float(value: int | Decimal) -> float:
    """Return the nearest number of 32 bits: rounded once, not to 64 bits before."""
    double = _nearest_double(value)
    if abs(double) > _MAX_MAGNITUDE["float"]:
        return double
    single = _single(double)
    if single == double or double == value:
        return single
    # Halfway between two floats only after rounding to a double: the exact value decides which is nearer.
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
        exact = number == number.quantize(Decimal(1).scaleb(-scale), context=_DECIMAL_CONTEXT)
    except (InvalidOperation, BadValue):
        exact = False
    if not exact or (number and number.adjusted() >= precision - scale):
        raise BadValue(f"no decimal of {precision} digits, {scale} of them after the point")
    return number


def _from_text(read: Callable[[str], Any]) -> Converter:
    return lambda value: read(_require_type(value, str))


_binary = _from_text(texts.read_base64)


def _fixed(value: Any, length: int) -> bytes:
    data: bytes = _binary(value)
    if len(data) != length:
        raise BadValue(f"{len(data)} bytes, and the column takes {length}")
    return data


def _text(value: Any) -> str:
    text: str = _require_type(value, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue("half of a surrogate pair") from None
    return text


def _reject_column(value: Any) -> Any:
    raise BadValue("ingestion writes no such column")


_PRIMITIVE_CONVERTERS: dict[str, Converter] = {
    "boolean": lambda value: _require_type(value, bool),
    "int": _integer(_BITS["int"]),
    "long": _integer(_BITS["long"]),
    "float": _floating("float", _nearest_float),
    "double": _floating("double", _nearest_double),
    "string": _text,
    "date": _from_text(texts.read_date),
    "time": _from_text(texts.read_time),
    "timestamp": _from_text(lambda text: texts.read_timestamp(text, zoned=False)),
    "timestamptz": _from_text(lambda text: texts.read_timestamp(text, zoned=True)),
    "uuid": _from_text(texts.read_uuid),
    "binary": _binary,
}


def _infer_type(value: Any) -> Type | None:
    """Return the type inferred from a value; a text that looks like a time is a text."""
    if value is None:
        return None
    for kind, name in ((bool, "boolean"), (int, "long"), (Decimal, "double"), (str, "string")):
        if isinstance(value, kind):
            return name
    if isinstance(value, list):
        element: Type | None = None
        for member in value:
            element = _common_type(element, _infer_type(member))
        return {"type": "list", "element": element} if element is not None else None
    fields = infer_columns([value])
    return (
        {"type": "struct", "fields": [{"name": column.name, "type": column.type} for column in fields]}
        if fields
        else None
    )


def _common_type(left: Type | None, right: Type | None) -> Type | None:
    """Return the type of which both are; the first where there is none: the rows of the other are bad then."""
    if left is None or right is None or left == right:
        return right if left is None else left
    if {str(left), str(right)} == {"long", "double"}:
        return "double"
    if isinstance(left, Mapping) and isinstance(right, Mapping) and left["type"] == right["type"]:
        if left["type"] == "list":
            return {"type": "list", "element": _common_type(left["element"], right["element"])}
        fields = {field["name"]: field["type"] for field in left["fields"]}
        for field in right["fields"]:
            fields[field["name"]] = _common_type(fields.get(field["name"]), field["type"])
        return {"type": "struct", "fields": [{"name": name, "type": type} for name, type in fields.items()]}
    return left
