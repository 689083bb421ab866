"""Validation of an uploaded Parquet file by its footer.

A large footer is read in a process of its own, with a limit of memory and of time: its few bytes may become two hundred
times as many in memory, and seconds in which nothing else is answered.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from sterna.concurrency.fork_server import ForkServer
from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit, EngineError, printable
from sterna.libraries import pa, pq
from sterna.pipelines.ingest.columns import arrow_columns

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_MAX_INLINE_FOOTER_BYTES = 256 << 10  # a longer footer is read in a process of its own; few are
_MIN_FILE_BYTES = 12  # magic, length of the footer, magic
_PROCESS_SLOTS = BoundedSemaphore(2)
_JOB_FILE, _REPORT_FILE = "job.json", "report.json"
FORK_SERVER = ForkServer(__name__, "reads a footer", ("pyarrow.parquet",))


def check_parquet(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has.

    Nothing but the footer is read; whether its pages can be is seen where they are used.

    Raises:
        BadDrop: it is cut, encrypted, or none.
        DropOverLimit: its footer, its rows or what it would become is over a limit.
    """
    size = path.stat().st_size
    footer = _footer_length(path, size)
    if footer > limits.footer:
        raise DropOverLimit(f"the footer has {footer} bytes, {limits.footer} are allowed (limits.footer)")
    return check_footer(path, limits) if footer <= _MAX_INLINE_FOOTER_BYTES else check_in_subprocess(path, limits)


def check_footer(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has, by its footer, in this very process.

    Raises:
        BadDrop, DropOverLimit: as `check_parquet`.
    """
    size = path.stat().st_size
    footer = _footer_length(path, size)
    metadata, schema = _read_metadata(path, limits)
    if metadata.num_rows > limits.rows:
        raise DropOverLimit(f"{metadata.num_rows} rows, {limits.rows} are allowed (limits.rows)")
    if not metadata.num_rows:
        raise BadDrop("there are no rows")
    if _depth(metadata) > limits.depth:
        raise DropOverLimit(f"a column is nested deeper than {limits.depth} (limits.depth)")
    total_bytes = uncompressed_bytes(metadata, size - footer - _MIN_FILE_BYTES + len(_MAGIC))
    if total_bytes > limits.ratio * size:
        raise DropOverLimit(
            f"its footer declares {total_bytes} bytes, {limits.ratio} times its {size} are allowed (limits.ratio)"
        )
    arrow_columns(schema, metadata.schema)
    return int(metadata.num_rows)


def check_in_subprocess(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has, by its footer, which a child process reads.

    Raises:
        BadDrop: it isn't one.
        DropOverLimit: it is more than may be sent, or reading the footer takes too much memory or time.
        EngineError: no process can be made, or it failed for another reason than the file.
    """
    try:
        with _PROCESS_SLOTS, tempfile.TemporaryDirectory(prefix="sterna-footer-") as name:
            folder = Path(name)
            (folder / _JOB_FILE).write_text(json.dumps([str(path), limits.model_dump()]))
            failure = FORK_SERVER.run(folder, limits.footer_memory, limits.footer_time)
            if failure is not None:
                limit = "footer_time" if failure.is_late else "footer_memory"
                reason = f"the process that reads it {failure.text} (limits.{limit})"
                raise DropOverLimit(f"the footer of the Parquet file can't be read: {reason}")
            rows, refusal, is_over_limit = json.loads((folder / _REPORT_FILE).read_text())
    except OSError as error:  # of this machine, and not of the file
        raise EngineError(f"the footer can't be read in a process: {error.strerror}") from error
    if refusal:
        raise (DropOverLimit if is_over_limit else BadDrop)(refusal)
    return int(rows)


def main(folder: Path) -> None:
    """Check the footer of a folder's job."""
    path, limits = json.loads((folder / _JOB_FILE).read_text())
    try:
        report = check_footer(Path(path), TenantLimits.model_construct(**limits)), "", False
    except (BadDrop, DropOverLimit) as error:
        report = 0, error.message, isinstance(error, DropOverLimit)
    (folder / _REPORT_FILE).write_text(json.dumps(report))


def _footer_length(path: Path, size: int) -> int:
    with path.open("rb") as file:
        first = file.read(4)
        if size < _MIN_FILE_BYTES or first not in (_MAGIC, _ENCRYPTED):
            raise BadDrop("this is no Parquet file: it doesn't begin with PAR1")
        file.seek(-8, os.SEEK_END)
        last = file.read(8)
    if _ENCRYPTED in (first, last[4:]):
        raise BadDrop("encrypted Parquet files are not taken")
    if last[4:] != _MAGIC:
        raise BadDrop("the Parquet file is cut: it doesn't end with PAR1")
    length = int.from_bytes(last[:4], "little")
    if not 0 < length <= size - _MIN_FILE_BYTES:
        raise BadDrop("the Parquet file is cut: its footer is longer than the file")
    return length


def _read_metadata(path: Path, limits: TenantLimits) -> tuple[Any, Any]:
    try:
        with pq.ParquetFile(
            path, thrift_string_size_limit=limits.footer, thrift_container_size_limit=limits.footer
        ) as file:
            return file.metadata, file.schema_arrow  # raises for types that can't be read
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDrop(f"the footer of the Parquet file can't be read: {printable(str(error), 200)}") from None


def _depth(metadata: Any) -> int:
    return max(
        (metadata.schema.column(number).path.count(".") + 1 for number in range(len(metadata.schema.names))), default=0
    )


def uncompressed_bytes(metadata: Any, end: int) -> int:
    """Return the uncompressed size of all columns by the footer.

    Raises:
        BadDrop: a column is outside of the file, or the numbers of rows contradict one another.
    """
    total_bytes = rows = 0
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        rows += group.num_rows
        for column in (group.column(number) for number in range(group.num_columns)):
            start, size = _column_offset(column), column.total_compressed_size
            if start < len(_MAGIC) or size < 0 or column.total_uncompressed_size < 0 or start + size > end:
                raise BadDrop("the Parquet file is cut or broken: a column is outside of it")
            if column.num_values < 0:
                raise BadDrop("the Parquet file is broken: a column has less than no values")
            total_bytes += column.total_uncompressed_size
    if rows != metadata.num_rows:
        raise BadDrop(f"the Parquet file is broken: it declares {metadata.num_rows} rows, and its groups have {rows}")
    return total_bytes


def _column_offset(column: Any) -> int:
    data = int(column.data_page_offset)
    dictionary = column.dictionary_page_offset
    return min(data, int(dictionary)) if column.has_dictionary_page and dictionary is not None else data
