"""Times and floats of a MariaDB or MySQL from the server's text: exactly, or not at all; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from sterna.pipelines.cdc.postgres_converter import SOURCE_COLUMN, TYPE
from sterna.pipelines.cdc.postgres_types import TextReader

FLOAT = "FLOAT"
_SINGLE_DIGITS = 24  # a FLOAT of more binary digits is a DOUBLE
_ZERO = re.compile(r"0000-00-00(?: 00:00:00(?:\.0+)?)?")


def is_log_type(parameters: Mapping[str, str]) -> bool:
    """Say whether a column's schema is one of `mysql_converter`.

    Args:
        parameters: of its schema.
    """
    return parameters.get(TYPE) in _READERS or parameters.get(TYPE) == FLOAT


def log_text_reader(parameters: Mapping[str, str]) -> TextReader:
    """Return how a column's text is read.

    Args:
        parameters: of its schema (`mysql_converter`).
    """
    if parameters[TYPE] != FLOAT:
        return _READERS[parameters[TYPE]]
    type_name = parameters.get(f"{SOURCE_COLUMN}type", "").upper().split(" ")[0]
    digits = int(parameters.get(f"{SOURCE_COLUMN}length", "0"))
    is_single = type_name == FLOAT and f"{SOURCE_COLUMN}scale" not in parameters and digits <= _SINGLE_DIGITS
    return TextReader("float" if is_single else "double", float)


def _null_if_zero(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda raw: None if _ZERO.fullmatch(raw) else parse(raw)


def _parse_time(raw: str) -> str:
    """Return a time with six digits of a fraction, or without one."""
    clock, _, fraction = raw.partition(".")
    return f"{clock}.{fraction:0<6}" if fraction.strip("0") else clock


_READERS: Mapping[str, TextReader] = {
    "DATE": TextReader("date", _null_if_zero(date.fromisoformat)),
    "DATETIME": TextReader("timestamp", _null_if_zero(datetime.fromisoformat)),
    "TIMESTAMP": TextReader("timestamptz", _null_if_zero(lambda raw: datetime.fromisoformat(raw).replace(tzinfo=UTC))),
    "TIME": TextReader("string", _parse_time),
    "YEAR": TextReader("int", int),
}
"""A date that is all zero is null; one with a zero in it, or of no calendar, has no place."""
