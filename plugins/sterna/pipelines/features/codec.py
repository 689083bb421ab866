"""Values of tables as the store and answers hold them: exact, and the same as in named queries.

Booleans, `int`, `float`, `double` and strings are JSON's own. `long` and `decimal` are text, since JSON loses digits of
them. Times have microseconds, `date` is ISO's, and `binary` is Base64. NaN and the infinities are text. A list has its
elements as they would stand alone.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sterna.errors import UnfitView
from sterna.libraries import pa, pc
from sterna.pipelines.features.model import Column

_PLAIN = frozenset(
    {"boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary"}
)
_LIST = re.compile(r"list<(.*)>")
_WITH_SIZE = re.compile(r"decimal\([0-9]+, ?[0-9]+\)|fixed\[[0-9]+\]")
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def validate_types(columns: Sequence[Column], table: str) -> None:
    """See that columns can be kept.

    Raises:
        UnfitView: one has a type that can't.
    """
    for column in columns:
        kind = element_of(column.type) or column.type
        if kind not in _PLAIN and not _WITH_SIZE.fullmatch(kind):
            raise UnfitView(
                f"column {column.name} has the type {column.type}, which no feature can have", table=table,
                hint="cast it in the table that features are made of",
            )  # fmt: skip


def element_of(kind: str) -> str | None:
    """Return the type of a list's elements; None for a type that is no list."""
    match = _LIST.fullmatch(kind)
    return match[1] if match else None


def row_bytes(row: Sequence[Any]) -> bytes:
    """Return a row as values hold it."""
    return _JSON.encode(row).encode()


def iter_rows(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch, in the order of its columns.

    Args:
        batch: as Spark hands it over.

    Raises:
        UnfitView: a time lies outside the years 1 to 9999.
    """
    column_values = [_convert_column(batch.column(index), column) for index, column in enumerate(columns)]
    yield from zip(*column_values, strict=True) if column_values else ()


def _convert_column(array: pa.Array, column: Column) -> list[Any]:
    kind = column.type
    if element := element_of(kind):
        elements = iter(_convert_column(array.flatten(), Column(column.name, column.id, element)))
        lengths = pc.list_value_length(array).to_pylist()
        return [None if length is None else list(islice(elements, length)) for length in lengths]
    if kind.startswith("timestamp"):
        micros = array.cast(pa.timestamp("us", "UTC" if kind == "timestamptz" else None)).cast(pa.int64())
        return [
            None if time_us is None else format_time(time_us, kind == "timestamptz", column.name)
            for time_us in micros.to_pylist()
        ]
    convert = _CONVERTERS.get(kind.partition("(")[0].partition("[")[0])
    values = array.to_pylist()
    return values if convert is None else [None if cell is None else convert(cell) for cell in values]


def format_time(micros: int, zoned: bool, column: str = "") -> str:
    """Return a time as text.

    Args:
        micros: microseconds since 1970.
        zoned: it is an instant, else a time without a zone.
        column: what errors call it.

    Raises:
        UnfitView: it lies outside the years 1 to 9999.
    """
    seconds, fraction = divmod(micros, 1_000_000)
    try:
        text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    except OverflowError:
        raise UnfitView(f"column {column} has a time outside the years 1 to 9999") from None
    return f"{text:0>19}{f'.{fraction:06d}' if fraction else ''}{'Z' if zoned else ''}"


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else _NOT_FINITE[str(value)]


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "long": str,
    "decimal": lambda value: format(value, "f"),
    "float": _finite,
    "double": _finite,
    "date": lambda value: value.isoformat(),
    "binary": lambda value: base64.b64encode(value).decode(),
    "fixed": lambda value: base64.b64encode(value).decode(),
}
