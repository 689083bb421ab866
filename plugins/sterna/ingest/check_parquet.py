"""A Parquet file, as it came in: whole, and no more than it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sterna.errors import BadDrop, DropOverLimit, printable
from sterna.ingest.check_apart import check_apart
from sterna.ingest.columns import columns_brought
from sterna.services.ingest import TenantLimits

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_LARGE = 256 << 10  # bytes of a footer which is read in a process of its own: most have less by far
_LEAST = 12  # magic, length of the footer, magic


def check_parquet(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has.

    Nothing but the footer is read; whether its pages can be is seen where they are used.

    Raises:
        BadDrop: it is cut, encrypted, or none.
        DropOverLimit: its footer, its rows or what it would become is over a limit.
    """
    size = path.stat().st_size
    footer = _footer(path, size)
    if footer > limits.footer:
        raise DropOverLimit(f"the footer has {footer} bytes, {limits.footer} are allowed (limits.footer)")
    return check_footer(path, limits) if footer <= _LARGE else check_apart(path, limits)


def check_footer(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has, by its footer, in this very process.

    Raises:
        BadDrop, DropOverLimit: as `check_parquet`.
    """
    size = path.stat().st_size
    footer = _footer(path, size)
    metadata, schema = _opened(path, limits)
    if metadata.num_rows > limits.rows:
        raise DropOverLimit(f"{metadata.num_rows} rows, {limits.rows} are allowed (limits.rows)")
    if not metadata.num_rows:
        raise BadDrop("there are no rows")
    if _depth(metadata) > limits.depth:
        raise DropOverLimit(f"a column is nested deeper than {limits.depth} (limits.depth)")
    whole = whole_size(metadata, size - footer - _LEAST + len(_MAGIC))
    if whole > limits.ratio * size:
        raise DropOverLimit(
            f"it says that it becomes {whole} bytes, {limits.ratio} times its {size} are allowed (limits.ratio)"
        )
    columns_brought(schema, metadata.schema)
    return int(metadata.num_rows)


def _footer(path: Path, size: int) -> int:
    with path.open("rb") as file:
        first = file.read(4)
        if size < _LEAST or first not in (_MAGIC, _ENCRYPTED):
            raise BadDrop("this is no Parquet file: it doesn't begin with PAR1")
        file.seek(-8, os.SEEK_END)
        last = file.read(8)
    if _ENCRYPTED in (first, last[4:]):
        raise BadDrop("encrypted Parquet files are not taken")
    if last[4:] != _MAGIC:
        raise BadDrop("the Parquet file is cut: it doesn't end with PAR1")
    length = int.from_bytes(last[:4], "little")
    if not 0 < length <= size - _LEAST:
        raise BadDrop("the Parquet file is cut: its footer is longer than the file")
    return length


def _opened(path: Path, limits: TenantLimits) -> tuple[Any, Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(
            path, thrift_string_size_limit=limits.footer, thrift_container_size_limit=limits.footer
        ) as file:
            return file.metadata, file.schema_arrow  # types that nobody can read are told here
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDrop(f"the footer of the Parquet file can't be read: {printable(str(error), 200)}") from None


def _depth(metadata: Any) -> int:
    return max(
        (metadata.schema.column(number).path.count(".") + 1 for number in range(len(metadata.schema.names))), default=0
    )


def whole_size(metadata: Any, end: int) -> int:
    """Return what all columns together say that they become; each has to lie within the file, and the rows fit."""
    whole = rows = 0
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        rows += group.num_rows
        for column in (group.column(number) for number in range(group.num_columns)):
            start, size = _start(column), column.total_compressed_size
            if start < len(_MAGIC) or size < 0 or column.total_uncompressed_size < 0 or start + size > end:
                raise BadDrop("the Parquet file is cut or broken: a column lies outside of it")
            if column.num_values < 0:
                raise BadDrop("the Parquet file is broken: a column has less than no values")
            whole += column.total_uncompressed_size
    if rows != metadata.num_rows:
        raise BadDrop(f"the Parquet file is broken: it says {metadata.num_rows} rows, and its groups have {rows}")
    return whole


def _start(column: Any) -> int:
    data = int(column.data_page_offset)
    dictionary = column.dictionary_page_offset
    return min(data, int(dictionary)) if column.has_dictionary_page and dictionary is not None else data
