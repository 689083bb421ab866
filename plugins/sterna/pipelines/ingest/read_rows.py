"""The rows of a batch's uploads: those that the table takes, and the others with what is wrong of them.

It is a process of its own (`python -m sterna.pipelines.ingest.read_rows FOLDER`), started by `fetch.py`: an upload
may be crafted to exhaust memory, or to crash a library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, printable
from sterna.pipelines.ingest.arrow_rows import convert_array, find_invalid, true_positions, value_sizes
from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import (
    Column,
    Evolution,
    apply_evolution,
    arrow_columns,
    merge_new_fields,
    plan_evolution,
    require_readable,
)
from sterna.pipelines.ingest.json_columns import read_fast
from sterna.pipelines.ingest.json_rows import BLANK, build_converter, infer_columns, parse_line, value_bytes
from sterna.pipelines.ingest.message_lines import format_line
from sterna.pipelines.ingest.read_job import (
    CURRENT_UPLOAD_FILE,
    DEAD_ROWS_FILE,
    GOOD_ROWS_FILE,
    JOB_FILE,
    REPORT_FILE,
    WHOLE_UPLOAD,
    ReadJob,
    ReadReport,
    UploadFile,
)
from sterna.pipelines.ingest.strict_parsing import BadValue

_MAX_BATCH_ROWS = 20_000  # that are worked on at once
_MAX_RAW_CHARACTERS = 10_000  # characters of a bad row that are kept
_MAX_BATCH_BYTES = 256 << 20  # of rows that are worked on at once
_MAX_READ_BYTES = 256 << 20  # of rows that are kept from planning until they are written


@dataclass(frozen=True)
class _BadRow:
    upload: str
    offset: int
    error: str
    raw: str = ""


def read_uploads(job: ReadJob, folder: Path) -> ReadReport:
    """Read uploads, and write good rows and bad ones into files of a folder.

    Args:
        job: what to read.
        folder: where to write.
    """
    reader = _Reader(job, folder)
    evolution = reader.plan()
    return reader.read(evolution)


class _Reader:
    def __init__(self, job: ReadJob, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._refused = {upload.id: upload.error for upload in job.uploads if upload.error}
        self._refused_lines: dict[tuple[str, int], str] = {}
        self._bad_rows: list[_BadRow] = []
        self._bad_row_count = 0
        self._read_tables: dict[str, tuple[tuple[Column, ...], pa.Table]] = {}

    def plan(self) -> Evolution:
        """Return what the table has to become; an upload that doesn't fit to the ones before it is refused."""
        columns = self._job.columns
        self._job = replace(self._job, uploads=tuple(self._check_raw(upload) for upload in self._job.uploads))
        for upload in self._job.uploads:
            if upload.id in self._refused or (upload.format == "json" and self._job.evolve == "none"):
                continue
            self._record_current(upload)
            try:
                changes = self._plan_upload(upload, columns)
                require_readable(self._job.columns, changes)
            except _upload_errors() as error:
                _raise_system_error(error)
                self._refused[upload.id] = _error_text(error)
                continue
            columns = apply_evolution(columns, changes)
        # What another upload of this batch added may be wider by now.
        return plan_evolution(self._job.columns, columns, "widen", sys.maxsize)

    def _check_raw(self, upload: UploadFile) -> UploadFile:
        """Return an upload whose lines are checked as those that a gateway takes, or whose rows are read already."""
        if upload.raw_from is None or upload.id in self._refused:
            return upload
        self._record_current(upload)
        if self._read_fast(upload, self._job.columns) is not None:
            return upload
        limits = TenantLimits.model_construct(line=self._job.longest, depth=self._job.depth)
        checked = Path(f"{upload.path}.checked")
        with Path(upload.path).open("rb") as source, checked.open("wb") as target:
            for number, line in enumerate(source):
                target.write(format_line(line.removesuffix(b"\n"), upload.raw_from + number, limits))
        return replace(upload, path=str(checked), raw_from=None)

    def _read_fast(self, upload: UploadFile, columns: Sequence[Column]) -> pa.Table | None:
        """Return the rows of an upload by Arrow's own reader; None: they have to be read one by one."""
        if upload.id in self._read_tables and self._read_tables[upload.id][0] == tuple(columns):
            return self._read_tables[upload.id][1]
        table = read_fast(Path(upload.path), columns, self._job.longest)
        kept_bytes = sum(kept.nbytes for _, kept in self._read_tables.values())
        if table is not None and kept_bytes + table.nbytes <= _MAX_READ_BYTES:
            self._read_tables[upload.id] = tuple(columns), table
        return table

    def _plan_upload(self, upload: UploadFile, columns: tuple[Column, ...]) -> Evolution:
        columns_by_name = {column.name: column for column in columns}
        try:
            return plan_evolution(
                columns, self._read_columns(upload, columns_by_name), self._job.evolve, self._job.most
            )
        except BadDrop:
            if upload.format != "json":
                raise
        # A name that no column may have is its line's fault, as a value is.
        self._validate_lines(upload, columns)
        rows = (
            row
            for number, _, row in self._read_lines(upload)
            if isinstance(row, dict) and (upload.id, number) not in self._refused_lines
        )
        return plan_evolution(columns, _infer_columns(rows, columns_by_name), self._job.evolve, self._job.most)

    def _validate_lines(self, upload: UploadFile, columns: tuple[Column, ...]) -> None:
        """Record which lines have a column that the table may not get."""
        columns_by_name = {column.name: column for column in columns}
        for number, _, row in self._read_lines(upload):
            if isinstance(row, str):
                continue
            try:
                changes = plan_evolution(
                    columns, _infer_columns([row], columns_by_name), self._job.evolve, self._job.most
                )
            except BadDrop as error:
                self._refused_lines[upload.id, number] = error.message
                continue
            if changes:
                columns = apply_evolution(columns, changes)
                columns_by_name = {column.name: column for column in columns}

    def read(self, evolution: Evolution) -> ReadReport:
        columns = apply_evolution(self._job.columns, evolution)
        schema = pa.schema([pa.field(column.name, arrow_type(column.type, column.name)) for column in columns])
        rows = 0
        with pa.OSFile(str(self._folder / GOOD_ROWS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for upload in self._job.uploads:
                for batch in self._read_good(upload, columns, schema):
                    rows += batch.num_rows
                    writer.write_batch(batch)
        self._write_dead_rows()
        first = self._bad_rows[0].error if self._bad_rows else ""
        return ReadReport(columns, evolution, rows, self._bad_row_count, first)

    def _read_good(self, upload: UploadFile, columns: Sequence[Column], schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return the good rows of an upload, all or none where it can't be read to its end."""
        before = len(self._bad_rows)
        self._record_current(upload)
        try:
            if upload.id in self._refused:
                raise BadDrop(self._refused[upload.id])
            batches = list(
                self._read_json(upload, columns, schema)
                if upload.format == "json"
                else self._read_arrow(upload, columns)
            )
        except _upload_errors() as error:
            _raise_system_error(error)
            del self._bad_rows[before:]
            self._bad_rows.append(_BadRow(upload.id, WHOLE_UPLOAD, _error_text(error)))
            self._bad_row_count += max(upload.rows, 1)
            return []
        self._bad_row_count += len(self._bad_rows) - before
        return batches

    def _read_columns(self, upload: UploadFile, columns_by_name: Mapping[str, Column]) -> tuple[Column, ...]:
        if upload.format != "json":
            return arrow_columns(*read_schema(upload))
        if columns_by_name and self._read_fast(upload, tuple(columns_by_name.values())) is not None:
            return ()  # each value fits its column as that is
        return _infer_columns((row for _, _, row in self._read_lines(upload) if isinstance(row, dict)), columns_by_name)

    def _read_lines(self, upload: UploadFile) -> Iterator[tuple[int, bytes, dict[str, Any] | str]]:
        """Yield each row with its number: its text, and its value, or what is wrong with it."""
        with Path(upload.path).open("rb") as file:
            for number, line in enumerate(file):
                if not line.strip(BLANK):
                    continue
                try:
                    yield number, line, parse_line(line)
                except BadValue as error:
                    yield number, line, str(error)

    def _read_json(self, upload: UploadFile, columns: Sequence[Column], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        table = self._read_fast(upload, columns)
        self._read_tables.pop(upload.id, None)
        if table is not None:
            yield from table.to_batches()
            return
        converters = {column.name: (build_converter(column.type), column.required) for column in columns}
        rows: list[dict[str, Any]] = []
        for number, line, row in self._read_lines(upload):
            try:
                if isinstance(row, str):
                    raise BadValue(row)
                if reason := self._refused_lines.get((upload.id, number)):
                    raise BadValue(reason)
                rows.append(self._convert_row(row, converters, len(line)))
            except BadValue as error:
                self._bad_rows.append(
                    _BadRow(upload.id, number, str(error), line.decode("utf-8", "replace")[:_MAX_RAW_CHARACTERS])
                )
            if len(rows) == _MAX_BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _convert_row(
        self, row: Mapping[str, Any], converters: Mapping[str, tuple[Any, bool]], length: int
    ) -> dict[str, Any]:
        for name in sorted(set(row) - set(converters)):
            if row[name] not in (None, [], {}):
                raise BadValue(f"the table has no column {name[:100]!r}")
        values = {}
        for name, (convert, required) in converters.items():
            try:
                value = values[name] = convert(row.get(name))
            except BadValue as error:
                raise BadValue(f"column {error.nested_in(name).path!r}: {error}") from None
            if value is None and required:
                raise BadValue(f"column {name!r} has no value, and has to have one")
            if length > self._job.longest and value_bytes(value) > self._job.longest:
                raise BadValue(_too_long(name, self._job.longest))
        return values

    def _read_arrow(self, upload: UploadFile, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        offset = 0
        for batch, read_errors in _read_batches(upload):
            errors = read_errors | _find_invalid(batch)
            lengths = self._measure_rows(batch, errors)
            for start, stop in _runs(lengths, errors):
                rows, conversion_errors = self._convert_batch(batch.slice(start, stop - start), columns)
                errors |= {start + position: reason for position, reason in conversion_errors.items()}
                yield rows
            for position in sorted(errors):
                self._bad_rows.append(
                    _BadRow(
                        upload.id,
                        offset + position,
                        errors[position],
                        _format_row(batch, position)[:_MAX_RAW_CHARACTERS],
                    )
                )
            offset += batch.num_rows

    def _measure_rows(self, batch: pa.RecordBatch, errors: dict[int, str]) -> list[int]:
        """Return how long the rows are, and note which have a value that is too long."""
        totals = np.zeros(batch.num_rows, np.int64)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            lengths = value_sizes(values)
            totals += lengths
            too_long = (lengths > self._job.longest).nonzero()[0].tolist()
            errors |= dict.fromkeys(too_long, _too_long(name, self._job.longest))
        row_lengths: list[int] = totals.tolist()
        return row_lengths

    def _convert_batch(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows that the table takes, with its columns and of its types, and what is wrong of the others."""
        values, errors = [], self._find_missing(batch)
        for column in columns:
            index = batch.schema.get_field_index(column.name)
            incoming = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows)
            array, column_errors = convert_array(incoming, column.type, column.name)
            values.append(array)
            errors |= column_errors
        rows = pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])
        if not errors:
            return rows, errors
        return rows.filter(pa.array([position not in errors for position in range(batch.num_rows)], pa.bool_())), errors

    def _find_missing(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return which rows lack a value that they have to have."""
        errors: dict[int, str] = {}
        for column in (column for column in self._job.columns if column.required):
            if column.name not in batch.schema.names:
                raise BadDrop(f"there is no column {column.name!r}, and each row has to have a value there")
            mask = batch.column(column.name).is_null()
            errors |= dict.fromkeys(true_positions(mask), f"column {column.name!r} has no value, and has to have one")
        return errors

    def _record_current(self, upload: UploadFile) -> None:
        """Record which upload is being read, for the case that this process dies."""
        (self._folder / CURRENT_UPLOAD_FILE).write_text(upload.id)

    def _write_dead_rows(self) -> None:
        if self._bad_rows:
            rows = zip(
                *((bad_row.upload, bad_row.offset, bad_row.error, bad_row.raw) for bad_row in self._bad_rows),
                strict=True,
            )
            columns = [pa.array(values, kind) for values, kind in zip(rows, dead_schema().types, strict=True)]
            dead_rows = pa.table(columns, schema=dead_schema())
            parquet.write_table(dead_rows, self._folder / DEAD_ROWS_FILE, compression="zstd")


def _infer_columns(rows: Iterable[dict[str, Any]], columns_by_name: Mapping[str, Column]) -> tuple[Column, ...]:
    """Return the columns that rows of JSON add to a table."""
    return tuple(_merge_column(column, columns_by_name.get(column.name)) for column in infer_columns(rows))


def _merge_column(column: Column, existing: Column | None) -> Column:
    """Return what a column of JSON has that the table lacks.

    Values of existing columns are checked when they are read: one row may be wrong, and the others not. JSON has one
    type of numbers, so no value requires a wider column.
    """
    return column if existing is None else Column(column.name, merge_new_fields(column.type, existing.type))


def dead_schema() -> pa.Schema:
    """Return the columns of a batch's dead rows: people and other tools read them."""
    return pa.schema({"drop": pa.string(), "offset": pa.int64(), "error": pa.string(), "raw": pa.string()})


def read_schema(upload: UploadFile) -> tuple[pa.Schema, Any]:
    """Return an upload's schema, and beside it the one that its Parquet has."""
    if upload.format == "parquet":
        with parquet.ParquetFile(upload.path) as file:
            return file.schema_arrow, file.schema
    with pa.OSFile(upload.path) as source, pa.ipc.open_stream(source) as reader:
        return reader.schema, None


def _read_batches(upload: UploadFile) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    """Yield an upload's rows, and the errors of rows that are known from reading them."""
    if upload.format == "parquet":
        yield from _read_parquet_batches(upload.path)
        return
    with pa.OSFile(upload.path) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            for start in range(0, batch.num_rows, _MAX_BATCH_ROWS):
                yield batch.slice(start, _MAX_BATCH_ROWS), {}


def _read_parquet_batches(path: str) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    with parquet.ParquetFile(path) as file:
        columns = (file.schema.column(number) for number in range(len(file.schema.names)))
        names = [column.name for column in columns if column.physical_type == "INT96"]
        if not names:
            yield from ((batch, {}) for batch in file.iter_batches(_MAX_BATCH_ROWS))
            return
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as coarse:
            for fine, micros in zip(
                file.iter_batches(_MAX_BATCH_ROWS), coarse.iter_batches(_MAX_BATCH_ROWS), strict=True
            ):
                yield micros, _find_nanoseconds(fine, micros, names)


def _find_nanoseconds(fine: pa.RecordBatch, micros: pa.RecordBatch, names: Sequence[str]) -> dict[int, str]:
    """Return which rows have more than microseconds in a time of 96 bits.

    Nanoseconds of 64 bits wrap around after 262 years, so what is left over is theirs less the microseconds', as wraps.
    """
    errors: dict[int, str] = {}
    for name in names:
        timestamps = [np.asarray(compute.fill_null(batch.column(name).cast(pa.int64()), 0)) for batch in (fine, micros)]
        remainder = timestamps[0].view(np.uint64) - timestamps[1].view(np.uint64) * np.uint64(1_000)
        errors |= dict.fromkeys(remainder.nonzero()[0].tolist(), f"column {name!r}: more than microseconds")
    return errors


def _find_invalid(batch: pa.RecordBatch) -> dict[int, str]:
    """Return which rows have a value that is none of its type, such as a text that isn't UTF-8: Parquet may hold it.

    Raises:
        pa.ArrowException: the batch is broken otherwise.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        errors: dict[int, str] = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            errors |= {position: f"column {name!r}: {reason}" for position, reason in find_invalid(values).items()}
        if not errors:
            raise
        return errors
    return {}


def _runs(lengths: Sequence[int], errors: Mapping[int, str]) -> list[tuple[int, int]]:
    """Return ranges of consecutive good rows, of so many bytes at most.

    A dictionary may have a value once, and every row may refer to it: this bounds what is unpacked at once.
    """
    if not errors and sum(lengths) <= _MAX_BATCH_BYTES:
        return [(0, len(lengths))]
    runs: list[tuple[int, int]] = []
    start = total_bytes = 0
    for position, length in enumerate(lengths):
        if position in errors or total_bytes + length > _MAX_BATCH_BYTES:
            runs.append((start, position))
            start, total_bytes = position + (position in errors), 0
        total_bytes += 0 if position in errors else length
    return [run for run in (*runs, (start, len(lengths))) if run[0] < run[1]]


def _format_row(batch: pa.RecordBatch, position: int) -> str:
    """Return a row as text; a value for which Python has none is shown as Arrow does."""
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[position].as_py()
        except (ValueError, ArithmeticError):
            row[name] = str(column.slice(position, 1))
    return str(row)


def _too_long(name: str, max_value_bytes: int) -> str:
    return f"column {name!r} has a value of more than {max_value_bytes} bytes (limits.line)"


def _upload_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions by which an upload turns out to be unreadable."""
    # Whatever else a value leads to is its upload's trouble: as this process's it would hold the batch for ever.
    return (BadDrop, pa.ArrowException, OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError)


def _raise_system_error(error: Exception) -> None:
    """Raise errors of this machine again: Arrow's errors for a broken file have no errno."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _error_text(error: Exception) -> str:
    return error.message if isinstance(error, BadDrop) else f"can't be read: {printable(str(error), 300)}"


def main(folder: Path) -> None:
    """Do the job of a folder."""
    request = json.loads((folder / JOB_FILE).read_text())
    job = ReadJob(
        tuple(Column(**column) for column in request["columns"]),
        request["evolve"],
        request["longest"],
        tuple(UploadFile(**upload) for upload in request["uploads"]),
        request["most"],
        request["depth"],
    )
    report = read_uploads(job, folder)
    (folder / REPORT_FILE).write_text(json.dumps(asdict(report)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
