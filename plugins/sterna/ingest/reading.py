"""The rows of a batch's drops: those that the table takes, and the others with what is wrong of them.

It is a process of its own (`python -m sterna.ingest.reading FOLDER`), started by `reading_apart.py`: what somebody sent
may be made to take all memory, or to end a library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.errors import BadDrop, printable
from sterna.ingest.columns import (
    MOST_COLUMNS,
    Column,
    Evolution,
    arrow_type,
    evolution,
    iceberg_type,
    refuse_twice,
    wider,
)
from sterna.ingest.json_fast import fast_rows
from sterna.ingest.json_rows import BadValue, brought, converter, parse_line

if TYPE_CHECKING:
    import pyarrow as pa

JOB, REPORT, GOOD, DEAD, AT = "job.json", "report.json", "good.arrow", "dead.parquet", "at"
_ROWS = 20_000  # that are worked on at once
_RAW = 10_000  # characters of a bad row that are kept
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


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
        self._bad: list[_Bad] = []
        self._bad_rows = 0

    def look(self) -> Evolution:
        """Return what the table has to become; a drop that doesn't fit to the ones before it is refused."""
        columns = {column.name: column for column in self._job.columns}
        add: dict[str, Column] = {}
        widen: dict[str, Column] = {}
        for drop in self._job.drops:
            if drop.id in self._refused or (drop.format == "json" and self._job.evolve == "none"):
                continue
            self._at(drop)
            try:
                more = evolution(list(columns.values()), self._columns(drop, columns), self._job.evolve, self._job.most)
            except _refusals() as error:
                _raise_own(error)
                self._refused[drop.id] = _said(error)
                continue
            for column in (*more.add, *more.widen):
                # What another drop of this batch added is made wider before it is there at all.
                (add if column.name in add or column in more.add else widen)[column.name] = column
                columns[column.name] = Column(column.name, column.type, columns.get(column.name, column).required)
        return Evolution(tuple(add.values()), tuple(widen.values()))

    def read(self, more: Evolution) -> ReadReport:
        import pyarrow as pa

        widened = {column.name: column.type for column in more.widen}
        have = [Column(each.name, widened.get(each.name, each.type), each.required) for each in self._job.columns]
        columns = (*have, *more.add)
        schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
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
            made = list(self._json(drop, columns, schema) if drop.format == "json" else self._arrow(drop, schema))
        except _refusals() as error:
            _raise_own(error)
            del self._bad[before:]
            self._bad.append(_Bad(drop.id, -1, _said(error)))
            self._bad_rows += max(drop.rows, 1)
            return []
        self._bad_rows += len(self._bad) - before
        return made

    def _columns(self, drop: DropFile, known: Mapping[str, Column]) -> tuple[Column, ...]:
        if drop.format != "json":
            import pyarrow as pa

            refuse_twice((schema := _schema(drop)).names)
            fields = [field for field in schema if not pa.types.is_null(field.type)]
            return tuple(Column(field.name, iceberg_type(field.type)) for field in fields)
        if known and fast_rows(Path(drop.path), tuple(known.values()), self._job.longest) is not None:
            return ()  # each value fits its column as that is
        rows = (row for _, _, row in self._lines(drop) if isinstance(row, dict))
        found = brought(rows)
        # Of a column that is there each value is looked at when it is read: a row may be wrong, and the others not.
        return tuple(each for each in found if each.name not in known or self._is_wider(each, known[each.name]))

    def _is_wider(self, column: Column, known: Column) -> bool:
        return known.type != "int" and wider(known.type, column.type) and self._job.evolve == "widen"

    def _lines(self, drop: DropFile) -> Iterator[tuple[int, bytes, dict[str, Any] | str]]:
        """Yield each row with its number: as it stands there, and what it is, or what is wrong of it."""
        with Path(drop.path).open("rb") as file:
            for number, line in enumerate(file):
                if not line.strip():
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
                found.append(self._row(row, takers))
            except BadValue as error:
                self._bad.append(_Bad(drop.id, number, str(error), line.decode("utf-8", "replace")[:_RAW]))
            if len(found) == _ROWS:
                yield pa.RecordBatch.from_pylist(found, schema=schema)
                found = []
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=schema)

    def _row(self, row: Mapping[str, Any], takers: Mapping[str, tuple[Any, bool]]) -> dict[str, Any]:
        if more := sorted(set(row) - set(takers)):
            if all(row[name] is None or row[name] in ([], {}) for name in more):
                row = {name: value for name, value in row.items() if name in takers}
            else:
                raise BadValue(f"the table has no column {more[0][:100]!r}")
        made = {}
        for name, (take, required) in takers.items():
            try:
                made[name] = take(row.get(name))
            except BadValue as error:
                raise BadValue(f"column {name!r}: {error}") from None
            if made[name] is None and required:
                raise BadValue(f"column {name!r} has no value, and has to have one")
            if isinstance(made[name], str | bytes) and len(made[name]) > self._job.longest:
                raise BadValue(f"column {name!r} has a value of more than {self._job.longest} bytes (limits.line)")
        return made

    def _arrow(self, drop: DropFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        offset = 0
        for batch in _batches(drop):
            batch.validate(full=True)
            wrong = self._wrong(batch)
            good = self._split(drop, batch, wrong, offset)
            offset += batch.num_rows
            yield _shaped(good, schema)

    def _wrong(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return what is wrong of which rows."""
        import pyarrow as pa
        from pyarrow import compute

        found: dict[int, str] = {}
        for column in (column for column in self._job.columns if column.required):
            if column.name not in batch.schema.names:
                raise BadDrop(f"there is no column {column.name!r}, and each row has to have a value there")
            mask = compute.is_null(batch.column(column.name))
            found |= dict.fromkeys(_places(mask), f"column {column.name!r} has no value, and has to have one")
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            flat = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
            if any(getattr(pa.types, f"is_{kind}")(flat.type) for kind in ("string", "binary", "large_string")):
                mask = compute.greater(compute.binary_length(flat), self._job.longest)
                said = f"column {name!r} has a value of more than {self._job.longest} bytes (limits.line)"
                found |= dict.fromkeys(_places(mask), said)
        for column in (column for column in self._job.columns if column.type == "uuid"):
            if column.name in batch.schema.names:
                values = batch.column(column.name).cast(pa.string())
                mask = compute.invert(compute.match_substring_regex(values, _UUID))
                found |= dict.fromkeys(_places(mask), f"column {column.name!r} is no UUID")
        return found

    def _split(self, drop: DropFile, batch: pa.RecordBatch, wrong: Mapping[int, str], offset: int) -> pa.RecordBatch:
        import pyarrow as pa

        if not wrong:
            return batch
        for place in sorted(wrong):
            raw = str(batch.slice(place, 1).to_pylist()[0])[:_RAW]
            self._bad.append(_Bad(drop.id, offset + place, wrong[place], raw))
        return batch.filter(pa.array([place not in wrong for place in range(batch.num_rows)], pa.bool_()))

    def _at(self, drop: DropFile) -> None:
        """Write down what is being read: whoever finds this process dead knows why."""
        (self._folder / AT).write_text(drop.id)

    def _write_dead(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._bad:
            names = ("drop", "offset", "error", "raw")
            kinds = (pa.string(), pa.int64(), pa.string(), pa.string())
            columns = [
                pa.array([getattr(bad, name) for bad in self._bad], kind)
                for name, kind in zip(names, kinds, strict=True)
            ]
            parquet.write_table(pa.table(columns, names=list(names)), self._folder / DEAD, compression="zstd")


def _schema(drop: DropFile) -> pa.Schema:
    import pyarrow as pa
    from pyarrow import parquet

    if drop.format == "parquet":
        return parquet.read_schema(drop.path)
    with pa.OSFile(drop.path) as source, pa.ipc.open_stream(source) as reader:
        return reader.schema


def _batches(drop: DropFile) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import parquet

    if drop.format == "parquet":
        with parquet.ParquetFile(drop.path) as file:
            yield from file.iter_batches(_ROWS)
        return
    with pa.OSFile(drop.path) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS)


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the table's columns, in its order and of its types, exactly."""
    import pyarrow as pa

    columns = []
    for field in schema:
        there = batch.schema.get_field_index(field.name)
        if there < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            values = batch.column(there)
            decoded = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
            columns.append(decoded.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _places(mask: Any) -> list[int]:
    return [place for place, wrong in enumerate(mask.to_pylist()) if wrong]


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
