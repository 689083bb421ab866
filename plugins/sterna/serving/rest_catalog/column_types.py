"""Types of columns by their names: what is a type, from which format version on, and what a default may be.

Source: Iceberg specification, "Schemas and Data Types", "Default values" and appendix D, "Single-value serialization".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from sterna.errors import BadUpdate

_INSTANTS = frozenset({"date", "time", "timestamp", "timestamptz"})
_V1_SIMPLE = frozenset({"boolean", "int", "long", "float", "double", "string", "uuid", "binary"}) | _INSTANTS
_V3_TYPES = frozenset({"timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"})
_SIMPLE = _V1_SIMPLE | _V3_TYPES
_NO_DEFAULT = frozenset({"unknown", "variant", "geometry", "geography"})
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_GEOMETRY = re.compile(r"(geometry)\s*\(\s*[^)]+\)", re.IGNORECASE)
_GEOGRAPHY = re.compile(
    r"(geography)\s*\(\s*[^,)]+(?:,\s*(?:spherical|vincenty|thomas|andoyer|karney)\s*)?\)", re.IGNORECASE
)
_FRACTION = re.compile(r"\.\d+")
_MAX_PRECISION = 38
_INT_BITS, _LONG_BITS = 32, 64
_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?"
_HEX = r"(?:[0-9a-fA-F]{2})*"


def canonical_type(text: str) -> str:
    """Return the name of a type as Iceberg writes it: `decimal(10, 2)`, `fixed[16]`.

    Args:
        text: the type of a column that isn't nested.

    Raises:
        BadUpdate: there is no such type.
    """
    lower = text.lower()
    if lower in _SIMPLE:
        return lower
    if match := _FIXED.fullmatch(lower):
        return f"fixed[{int(match[1])}]"
    if match := _DECIMAL.fullmatch(lower):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise BadUpdate(f"the type {text} has a precision or scale that no decimal has")
        return f"decimal({precision}, {scale})"
    if match := _GEOMETRY.fullmatch(text) or _GEOGRAPHY.fullmatch(text):
        return match[1].lower() + text[len(match[1]) :]
    raise BadUpdate(f"there is no type {text}")


def base_name(type_name: str) -> str:
    """Return a type's name without its parameters: `decimal` of `decimal(10, 2)`."""
    return re.split(r"[\[(\s]", type_name, maxsplit=1)[0]


def minimum_format_version(type_name: str) -> int:
    """Return the first format version that has a type."""
    return 3 if base_name(type_name) in _V3_TYPES else 1


def check_default(type_name: str, default: object, name: str) -> None:
    """Look at a column's initial or write default.

    Args:
        type_name: the column's type; `struct`, `list` and `map` for a nested one.
        default: as the schema has it; not null.
        name: what it is called in an error.

    Raises:
        BadUpdate: it is no value of that type, or the type has no defaults.
    """
    base = base_name(type_name)
    if base in _NO_DEFAULT or base not in _DEFAULTS:
        raise BadUpdate(f"{name}: a column of type {base} has null as its default")
    if not _DEFAULTS[base](type_name, default):
        raise BadUpdate(f"{name} is no value of type {type_name}")


_Check = Callable[[str, object], bool]


def _is_integer(bits: int) -> _Check:
    limit = 1 << (bits - 1)
    return lambda _type, default: (
        isinstance(default, int) and not isinstance(default, bool) and -limit <= default < limit
    )


def _is_float(_type: str, default: object) -> bool:
    # Java's reader refuses 1 where 1.0 is meant, and with it the whole table.
    return isinstance(default, float)


def _is_decimal(type_name: str, default: object) -> bool:
    scale = int(type_name.rpartition(",")[2].rstrip(")"))
    match = re.fullmatch(r"-?\d{1,38}(?:\.(\d+))?", default) if isinstance(default, str) else None
    return match is not None and len(match[1] or "") == scale


def _is_text(pattern: str) -> _Check:
    return lambda _type, default: isinstance(default, str) and re.fullmatch(pattern, default) is not None


def _is_moment(pattern: str, day: str = "") -> _Check:
    def check(_type: str, default: object) -> bool:
        if not isinstance(default, str) or re.fullmatch(pattern, default) is None:
            return False
        try:
            datetime.fromisoformat(day + _FRACTION.sub("", default))
        except ValueError:
            return False
        return True

    return check


def _is_fixed(type_name: str, default: object) -> bool:
    length = int(type_name[len("fixed[") : -1])
    return _is_text(_HEX)(type_name, default) and len(str(default)) == 2 * length


_LOCAL, _ZONED = _is_moment(f"{_DATE}T{_TIME}"), _is_moment(rf"{_DATE}T{_TIME}\+00:00")
_DEFAULTS: dict[str, _Check] = {
    "boolean": lambda _type, default: isinstance(default, bool),
    "int": _is_integer(_INT_BITS),
    "long": _is_integer(_LONG_BITS),
    "float": _is_float,
    "double": _is_float,
    "decimal": _is_decimal,
    "string": lambda _type, default: isinstance(default, str),
    "uuid": _is_text(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "date": _is_moment(_DATE),
    "time": _is_moment(_TIME, "1970-01-01T"),
    "timestamp": _LOCAL,
    "timestamptz": _ZONED,
    "timestamp_ns": _LOCAL,
    "timestamptz_ns": _ZONED,
    "fixed": _is_fixed,
    "binary": _is_text(_HEX),
}
