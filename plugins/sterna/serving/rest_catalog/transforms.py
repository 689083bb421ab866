"""Transforms of partition and sort fields: their names, and which columns each can be made of.

Source: Iceberg specification, "Partition Transforms"; Java's `Transforms`.
"""

from __future__ import annotations

import re

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog.column_types import base_name
from sterna.serving.rest_catalog.schemas import Column

VOID = "void"
_WITH_WIDTH = re.compile(r"(\w+)\[(\d{1,10})\]")
_WIDTHS = frozenset({"bucket", "truncate"})
_MAX_WIDTH = (1 << 31) - 1
_TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DAYS = _TIMESTAMPS | {"date"}
_TRUNCATED = frozenset({"int", "long", "string", "binary", "decimal"})
_SOURCES = {
    "year": _DAYS,
    "month": _DAYS,
    "day": _DAYS,
    "hour": _TIMESTAMPS,
    "truncate": _TRUNCATED,
    "bucket": _TRUNCATED | _DAYS | {"time", "fixed", "uuid"},
}
_NO_IDENTITY = frozenset({"variant", "geometry", "geography"})


def canonical_transform(text: str) -> str:
    """Return a transform's name as Iceberg writes it; one that the specification doesn't have stays as it is.

    Args:
        text: as a client sent it.

    Raises:
        BadUpdate: its width is none.
    """
    lower = text.lower()
    if lower in _SOURCES or lower in ("identity", VOID):
        return lower
    match = _WITH_WIDTH.fullmatch(lower)
    if match is None or match[1] not in _WIDTHS:
        return text
    if not 1 <= int(match[2]) <= _MAX_WIDTH:
        raise BadUpdate(f"the transform {text} has no width above 0")
    return f"{match[1]}[{int(match[2])}]"


def check_source(transform: str, column: Column, purpose: str) -> None:
    """Look whether a column can be transformed.

    Args:
        transform: its canonical name; one that the specification doesn't have takes any single value.
        column: the source.
        purpose: what it is for, in an error: `partition` or `sort`.

    Raises:
        BadUpdate: it can't.
    """
    if not column.is_primitive:
        raise BadUpdate(f"column {column.name} is a {column.type_name}: a {purpose} field is made of single values")
    kind, source = base_name(transform), base_name(column.type_name)
    refused = source in _NO_IDENTITY if kind == "identity" else kind in _SOURCES and source not in _SOURCES[kind]
    if refused:
        raise BadUpdate(f"column {column.name} of type {column.type_name} has no transform {transform}")
