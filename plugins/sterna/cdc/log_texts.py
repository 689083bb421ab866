"""Times and floats of a MariaDB or MySQL from the server's text: exactly, or not at all; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from sterna.cdc.texts import Text
from sterna.cdc.verbatim import TYPE

FLOAT = "FLOAT"
_SOURCE = "__debezium.source.column."
_SINGLE_DIGITS = 24  # a FLOAT of more binary digits is a DOUBLE
_ZERO = re.compile(r"0000-00-00(?: 00:00:00(?:\.0+)?)?")


def is_of_log(parameters: Mapping[str, str]) -> bool:
    """Say whether a column's schema is one of `verbatim_binlog`.

    Args:
        parameters: of its schema.
    """
    return parameters.get(TYPE) in _KINDS or parameters.get(TYPE) == FLOAT


def text_of_log(parameters: Mapping[str, str]) -> Text:
    """Return how a column's text is read.

    Args:
        parameters: of its schema (`verbatim_binlog`).
    """
    if parameters[TYPE] != FLOAT:
        return _KINDS[parameters[TYPE]]
    word = parameters.get(f"{_SOURCE}type", "").upper().split(" ")[0]
    digits = int(parameters.get(f"{_SOURCE}length", "0"))
    is_single = word == FLOAT and f"{_SOURCE}scale" not in parameters and digits <= _SINGLE_DIGITS
    return Text("float" if is_single else "double", float)


def _unless_zero(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda raw: None if _ZERO.fullmatch(raw) else read(raw)


def _clock(raw: str) -> str:
    """Return a time with six digits of a fraction, or without one."""
    whole, _, part = raw.partition(".")
    return f"{whole}.{part:0<6}" if part.strip("0") else whole


_KINDS: Mapping[str, Text] = {
    "DATE": Text("date", _unless_zero(date.fromisoformat)),
    "DATETIME": Text("timestamp", _unless_zero(datetime.fromisoformat)),
    "TIMESTAMP": Text("timestamptz", _unless_zero(lambda raw: datetime.fromisoformat(raw).replace(tzinfo=UTC))),
    "TIME": Text("string", _clock),
    "YEAR": Text("int", int),
}
"""A date that is all zero is null; one with a zero in it, or of no calendar, has no place."""
