"""JSON lines through Arrow's own reader, where that provably comes to the same as row by row; else not at all.

Why it is the same. Each line begins with `{` and ends with `}`, so no value goes over the end of a line: within one no
`}` is followed by `{`. There are as many rows as lines, so there is one on each. Arrow refuses duplicate names,
names that no column has, NaN, halves of surrogate pairs, and values of another type or beyond their column's range. It
doesn't look at UTF-8, takes what is beyond a double for infinite and a whole number for the nearest double, and keeps
the sign of `-0`, which is a whole number: all are looked at here. Both round a fraction to the nearest double once.
Where anything is refused, reading row by row finds the bad row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, json

from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import Column

# A float would be rounded twice, row by row. For others Arrow's reading of texts differs.
_FAST_TYPES = frozenset({"boolean", "int", "long", "double", "string"})
_MAX_FILE_BYTES = 1 << 30
_MAX_EXACT_DOUBLE = float(1 << 53)  # up to which a double holds each


def read_fast(path: Path, columns: Sequence[Column], max_value_bytes: int) -> pa.Table | None:
    """Return the rows of a file of JSON lines; None where they have to be read one by one.

    Args:
        columns: a table's.
        max_value_bytes: bytes of one text.
    """
    is_supported = all(isinstance(column.type, str) and column.type in _FAST_TYPES for column in columns)
    if not columns or not is_supported or path.stat().st_size > _MAX_FILE_BYTES:
        return None
    content = path.read_bytes()
    if (line_count := _count_lines(content)) is None:
        return None
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
    try:
        rows = json.read_json(
            pa.BufferReader(content),
            read_options=json.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
        rows.validate(full=True)
    except (pa.ArrowException, ValueError):
        return None
    return (
        rows
        if rows.schema == schema and rows.num_rows == line_count and _fits(rows, columns, max_value_bytes)
        else None
    )


def _are_exact_doubles(values: pa.ChunkedArray) -> bool:
    negative = compute.equal(compute.divide(1.0, values), -inf)
    # Only some whole numbers beyond are exact doubles: this one may not be what the text has.
    is_exact = compute.all(compute.less(compute.abs(values), _MAX_EXACT_DOUBLE), min_count=0).as_py()
    return bool(is_exact) and not compute.any(negative, min_count=0).as_py()


def _count_lines(content: bytes) -> int | None:
    """Return how many lines there are, None where one isn't a single object's by its ends."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return len(lines) if lines and all(line[:1] == b"{" and line[-1:] == b"}" for line in lines) else None


def _fits(rows: pa.Table, columns: Sequence[Column], max_value_bytes: int) -> bool:
    for column in columns:
        values = rows.column(column.name)
        if column.required and values.null_count:
            return False
        if column.type == "double" and not _are_exact_doubles(values):
            return False
        if column.type == "string":
            length = compute.max(compute.binary_length(values)).as_py()
            if length is not None and length > max_value_bytes:
                return False
    return True
