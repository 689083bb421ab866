"""The rows of a batch's drops: those that the table takes, and the others with what is wrong of them.

It is a process of its own (`python -m sterna.ingest.reading FOLDER`), started by `reading_apart.py`: what somebody sent
may be made to take all memory, or to end a library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.errors import BadDrop, printable
from sterna.ingest.arrow_rows import exact, misfits, places, sizes
from sterna.ingest.column_types import arrow_type
from sterna.ingest.columns import (
    MOST_COLUMNS,
    Column,
    Evolution,
    columns_brought,
    evolution,
    evolved,
    news,
    refuse_unreadable,
)
from sterna.ingest.json_fast import fast_rows
from sterna.ingest.json_rows import BLANK, BadValue, brought, converter, parse_line, size

if TYPE_CHECKING:
    import pyarrow as pa

JOB, REPORT, GOOD, DEAD, AT = "job.json", "report.json", "good.arrow", "dead.parquet", "at"
_ROWS = 20_000  # that are worked on at once
WHOLE_DROP = -1
"""The offset in the dead letters of a drop that is refused whole."""
_RAW = 10_000  # characters of a bad row that are kept
_BYTES = 256 << 20  # of rows that are worked on at once


@dataclass(frozen=True)
class DropFile:
    """A drop's content on this machine.

    Args:
        id: the drop's.
        path: where it lies.
        format: `json`, `arrow` or `parquet`.
        rows: how many it is said to have.
        error: why it isn't read at all; "": it is.
    """

    id: str
    path: str
    format: str
    rows: int
    error: str = ""


@dataclass(frozen=True)
class ReadJob:
    """What to read, and for which table.

    Args:
        columns: the table's; none: it is to be made.
        evolve: what its schema may become: `none`, `add`, `widen`.
        longest: bytes of one value.
        drops: what to read, in their order.
        most: columns that the table may get.
    """

    columns: tuple[Column, ...]
    evolve: str
    longest: int
    drops: tuple[DropFile, ...]
    most: int = MOST_COLUMNS


@dataclass(frozen=True)
class ReadReport:
    """What was read.

    Args:
        columns: of the rows, as the table is to have them.
        evolution: what the table has to become for them.
        rows: good ones, in GOOD.
        bad: rows that the table doesn't take, in DEAD; a drop that can't be read counts with all that it was said to
            have.
        first: what is wrong of the first of them, "" for none.
    """

    columns: tuple[Column, ...]
    evolution: Evolution
    rows: int
    bad: int
    first: str = ""


@dataclass(frozen=True)
class _Bad:
    drop: str
    offset: int
    error: str
    raw: str = ""


def read_drops(job: ReadJob, folder: Path) -> ReadReport:
    """Read drops, and write good rows and bad ones into files of a folder.

    Args:
        job: what to read.
        folder: where to write.
    """
    reader = _Reader(job, folder)
    found = reader.look()
    return reader.read(found)


class _Reader:
    def __init__(self, job: ReadJob, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._refused = {drop.id: drop.error for drop in job.drops if drop.error}
        self._refused_lines: dict[tuple[str, int], str] = {}
        self._bad: list[_Bad] = []
        self._bad_rows = 0

    def look(self) -> Evolution:
        """Return what the table has to become; a drop that doesn't fit to the ones before it is refused."""
        columns = self._job.columns
        for drop in self._job.drops:
            if drop.id in self._refused or (drop.format == "json" and self._job.evolve == "none"):
                continue
            self._at(drop)
            try:
                more = self._evolution(drop, columns)
                refuse_unreadable(self._job.columns, more)
            except _refusals() as error:
                _raise_own(error)
                self._refused[drop.id] = _said(error)
                continue
            columns = evolved(columns, more)
        # What another drop of this batch added may be wider by now.
        return evolution(self._job.columns, columns, "widen", sys.maxsize)

    def _evolution(self, drop: DropFile, columns: tuple[Column, ...]) -> Evolution:
        known = {column.name: column for column in columns}
        try:
            return evolution(columns, self._columns(drop, known), self._job.evolve, self._job.most)
        except BadDrop:
            if drop.format != "json":
                raise
        # A name that no column may have is its line's fault, as a value is.
        self._refuse_lines(drop, columns)
        rows = (
            row
            for number, _, row in self._lines(drop)
            if isinstance(row, dict) and (drop.id, number) not in self._refused_lines
        )
        return evolution(columns, _brought(rows, known), self._job.evolve, self._job.most)

    def _refuse_lines(self, drop: DropFile, columns: tuple[Column, ...]) -> None:
        """Note which lines bring a column that the table may not get."""
        known = {column.name: column for column in columns}
        for number, _, row in self._lines(drop):
            if isinstance(row, str):
                continue
            try:
                more = evolution(columns, _brought([row], known), self._job.evolve, self._job.most)
            except BadDrop as error:
                self._refused_lines[drop.id, number] = error.message
                continue
            if more:
                columns = evolved(columns, more)
                known = {column.name: column for column in columns}

    def read(self, more: Evolution) -> ReadReport:
        import pyarrow as pa

        columns = evolved(self._job.columns, more)
        schema = pa.schema([pa.field(column.name, arrow_type(column.type, column.name)) for column in columns])
        rows = 0
        with pa.OSFile(str(self._folder / GOOD), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for drop in self._job.drops:
                for batch in self._good(drop, columns, schema):
                    rows += batch.num_rows
                    writer.write_batch(batch)
        self._write_dead()
        first = self._bad[0].error if self._bad else ""
        return ReadReport(columns, more, rows, self._bad_rows, first)

    def _good(self, drop: DropFile, columns: Sequence[Column], schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return the good rows of a drop, all or none where it can't be read to its end."""
        before = len(self._bad)
        self._at(drop)
        try:
            if drop.id in self._refused:
                raise BadDrop(self._refused[drop.id])
            made = list(self._json(drop, columns, schema) if drop.format == "json" else self._arrow(drop, columns))
        except _refusals() as error:
            _raise_own(error)
            del self._bad[before:]
            self._bad.append(_Bad(drop.id, WHOLE_DROP, _said(error)))
            self._bad_rows += max(drop.rows, 1)
            return []
        self._bad_rows += len(self._bad) - before
        return made

    def _columns(self, drop: DropFile, known: Mapping[str, Column]) -> tuple[Column, ...]:
        if drop.format != "json":
            return columns_brought(*schema_of(drop))
        if known and fast_rows(Path(drop.path), tuple(known.values()), self._job.longest) is not None:
            return ()  # each value fits its column as that is
        return _brought((row for _, _, row in self._lines(drop) if isinstance(row, dict)), known)

    def _lines(self, drop: DropFile) -> Iterator[tuple[int, bytes, dict[str, Any] | str]]:
        """Yield each row with its number: as it stands there, and what it is, or what is wrong of it."""
        with Path(drop.path).open("rb") as file:
            for number, line in enumerate(file):
                if not line.strip(BLANK):
                    continue
                try:
                    yield number, line, parse_line(line)
                except BadValue as error:
                    yield number, line, str(error)

    def _json(self, drop: DropFile, columns: Sequence[Column], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if (table := fast_rows(Path(drop.path), columns, self._job.longest)) is not None:
            yield from table.to_batches()
            return
        takers = {column.name: (converter(column.type), column.required) for column in columns}
        found: list[dict[str, Any]] = []
        for number, line, row in self._lines(drop):
            try:
                if isinstance(row, str):
                    raise BadValue(row)
                if reason := self._refused_lines.get((drop.id, number)):
                    raise BadValue(reason)
                found.append(self._row(row, takers, len(line)))
            except BadValue as error:
                self._bad.append(_Bad(drop.id, number, str(error), line.decode("utf-8", "replace")[:_RAW]))
            if len(found) == _ROWS:
                yield pa.RecordBatch.from_pylist(found, schema=schema)
                found = []
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=schema)

    def _row(self, row: Mapping[str, Any], takers: Mapping[str, tuple[Any, bool]], length: int) -> dict[str, Any]:
        for name in sorted(set(row) - set(takers)):
            if row[name] not in (None, [], {}):
                raise BadValue(f"the table has no column {name[:100]!r}")
        values = {}
        for name, (take, required) in takers.items():
            try:
                value = values[name] = take(row.get(name))
            except BadValue as error:
                raise BadValue(f"column {error.inside(name).path!r}: {error}") from None
            if value is None and required:
                raise BadValue(f"column {name!r} has no value, and has to have one")
            if length > self._job.longest and size(value) > self._job.longest:
                raise BadValue(_too_long(name, self._job.longest))
        return values

    def _arrow(self, drop: DropFile, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        offset = 0
        for batch, inexact in _batches(drop):
            wrong = inexact | _misfits(batch)
            lengths = self._lengths(batch, wrong)
            for start, stop in _runs(lengths, wrong):
                rows, more = self._exact(batch.slice(start, stop - start), columns)
                wrong |= {start + place: reason for place, reason in more.items()}
                yield rows
            for place in sorted(wrong):
                self._bad.append(_Bad(drop.id, offset + place, wrong[place], _raw(batch, place)[:_RAW]))
            offset += batch.num_rows

    def _lengths(self, batch: pa.RecordBatch, wrong: dict[int, str]) -> list[int]:
        """Return how long the rows are, and note which have a value that is too long."""
        import numpy as np

        whole = np.zeros(batch.num_rows, np.int64)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            lengths = sizes(values)
            whole += lengths
            beyond = (lengths > self._job.longest).nonzero()[0].tolist()
            wrong |= dict.fromkeys(beyond, _too_long(name, self._job.longest))
        lengths_of_rows: list[int] = whole.tolist()
        return lengths_of_rows

    def _exact(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows that the table takes, with its columns and of its types, and what is wrong of the others."""
        import pyarrow as pa

        values, wrong = [], self._missing(batch)
        for column in columns:
            at = batch.schema.get_field_index(column.name)
            brought = batch.column(at) if at >= 0 else pa.nulls(batch.num_rows)
            array, inexact = exact(brought, column.type, column.name)
            values.append(array)
            wrong |= inexact
        rows = pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])
        if not wrong:
            return rows, wrong
        return rows.filter(pa.array([place not in wrong for place in range(batch.num_rows)], pa.bool_())), wrong

    def _missing(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return which rows lack a value that they have to have."""
        wrong: dict[int, str] = {}
        for column in (column for column in self._job.columns if column.required):
            if column.name not in batch.schema.names:
                raise BadDrop(f"there is no column {column.name!r}, and each row has to have a value there")
            mask = batch.column(column.name).is_null()
            wrong |= dict.fromkeys(places(mask), f"column {column.name!r} has no value, and has to have one")
        return wrong

    def _at(self, drop: DropFile) -> None:
        """Write down what is being read: whoever finds this process dead knows why."""
        (self._folder / AT).write_text(drop.id)

    def _write_dead(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._bad:
            rows = zip(*((bad.drop, bad.offset, bad.error, bad.raw) for bad in self._bad), strict=True)
            columns = [pa.array(values, kind) for values, kind in zip(rows, dead_schema().types, strict=True)]
            dead = pa.table(columns, schema=dead_schema())
            parquet.write_table(dead, self._folder / DEAD, compression="zstd")


def _brought(rows: Iterable[dict[str, Any]], known: Mapping[str, Column]) -> tuple[Column, ...]:
    """Return the columns that rows of JSON bring to a table."""
    return tuple(_as_known(each, known.get(each.name)) for each in brought(rows))


def _as_known(column: Column, known: Column | None) -> Column:
    """Return what a column of JSON brings that the table lacks.

    Of what is there each value is looked at when it is read: a row may be wrong, and the others not. JSON has one
    type of numbers, so that none of its values says that a column has to be wider.
    """
    return column if known is None else Column(column.name, news(column.type, known.type))


def dead_schema() -> pa.Schema:
    """Return the columns of a batch's dead rows: people and other tools read them."""
    import pyarrow as pa

    return pa.schema({"drop": pa.string(), "offset": pa.int64(), "error": pa.string(), "raw": pa.string()})


def schema_of(drop: DropFile) -> tuple[pa.Schema, Any]:
    """Return a drop's schema, and beside it the one that its Parquet has."""
    import pyarrow as pa
    from pyarrow import parquet

    if drop.format == "parquet":
        with parquet.ParquetFile(drop.path) as file:
            return file.schema_arrow, file.schema
    with pa.OSFile(drop.path) as source, pa.ipc.open_stream(source) as reader:
        return reader.schema, None


def _batches(drop: DropFile) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    """Yield a drop's rows, and what reading them as they are told already is wrong of them."""
    import pyarrow as pa

    if drop.format == "parquet":
        yield from _parquet_batches(drop.path)
        return
    with pa.OSFile(drop.path) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS), {}


def _parquet_batches(path: str) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        columns = (file.schema.column(number) for number in range(len(file.schema.names)))
        names = [column.name for column in columns if column.physical_type == "INT96"]
        if not names:
            yield from ((batch, {}) for batch in file.iter_batches(_ROWS))
            return
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as coarse:
            for fine, micros in zip(file.iter_batches(_ROWS), coarse.iter_batches(_ROWS), strict=True):
                yield micros, _nanoseconds(fine, micros, names)


def _nanoseconds(fine: pa.RecordBatch, micros: pa.RecordBatch, names: Sequence[str]) -> dict[int, str]:
    """Return which rows have more than microseconds in a time of 96 bits.

    Nanoseconds of 64 bits wrap around after 262 years, so what is left over is theirs less the microseconds', as wraps.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    wrong: dict[int, str] = {}
    for name in names:
        both = [np.asarray(compute.fill_null(each.column(name).cast(pa.int64()), 0)) for each in (fine, micros)]
        rest = both[0].view(np.uint64) - both[1].view(np.uint64) * np.uint64(1_000)
        wrong |= dict.fromkeys(rest.nonzero()[0].tolist(), f"column {name!r}: more than microseconds")
    return wrong


def _misfits(batch: pa.RecordBatch) -> dict[int, str]:
    """Return which rows have a value that is none of its type, such as a text that isn't UTF-8: Parquet may hold it.

    Raises:
        pa.ArrowException: the batch is broken otherwise.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        wrong: dict[int, str] = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            wrong |= {place: f"column {name!r}: {reason}" for place, reason in misfits(values).items()}
        if not wrong:
            raise
        return wrong
    return {}


def _runs(lengths: Sequence[int], wrong: Mapping[int, str]) -> list[tuple[int, int]]:
    """Return where rows that aren't wrong stand in a row, of so many bytes at the most.

    One value may stand once in a dictionary, and in each row after: what is unpacked at once is bounded by this.
    """
    if not wrong and sum(lengths) <= _BYTES:
        return [(0, len(lengths))]
    runs: list[tuple[int, int]] = []
    start = whole = 0
    for place, length in enumerate(lengths):
        if place in wrong or whole + length > _BYTES:
            runs.append((start, place))
            start, whole = place + (place in wrong), 0
        whole += 0 if place in wrong else length
    return [run for run in (*runs, (start, len(lengths))) if run[0] < run[1]]


def _raw(batch: pa.RecordBatch, place: int) -> str:
    """Return a row as text; a value for which Python has none is shown as Arrow does."""
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[place].as_py()
        except (ValueError, ArithmeticError):
            row[name] = str(column.slice(place, 1))
    return str(row)


def _too_long(name: str, longest: int) -> str:
    return f"column {name!r} has a value of more than {longest} bytes (limits.line)"


def _refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions by which a drop turns out to be unreadable."""
    import pyarrow as pa

    # Whatever else a value leads to is its drop's trouble: as this process's it would hold the batch for ever.
    return (BadDrop, pa.ArrowException, OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError)


def _raise_own(error: Exception) -> None:
    """Raise what is this machine's trouble: Arrow says of a broken file that it can't be read, without a number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _said(error: Exception) -> str:
    return error.message if isinstance(error, BadDrop) else f"can't be read: {printable(str(error), 300)}"


def main(folder: Path) -> None:
    """Do the job that stands in a folder."""
    told = json.loads((folder / JOB).read_text())
    job = ReadJob(
        tuple(Column(**column) for column in told["columns"]),
        told["evolve"],
        told["longest"],
        tuple(DropFile(**drop) for drop in told["drops"]),
        told["most"],
    )
    report = read_drops(job, folder)
    (folder / REPORT).write_text(json.dumps(asdict(report)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
