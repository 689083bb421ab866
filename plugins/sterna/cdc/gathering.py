"""From what the engine tells to the files of a drop: rows of whole transactions, by table, on this machine's disk.

A drop is cut where no transaction is open. Rows go to files as they come, so that a giant transaction needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sterna.cdc.again import Snapshot
from sterna.cdc.journal import File, Stop
from sterna.cdc.layouts import changed, refuse_untold
from sterna.cdc.values import SourceColumn, absent_columns, columns_of_schema, is_filler, read_row
from sterna.errors import BadDrop, NeedsResync, SternaError, UnfitSource, printable
from sterna.ingest.column_types import arrow_type
from sterna.ingest.columns import Column, evolution

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")
SEQUENCE, OPERATION, ABSENT, COMMITTED = "_sterna_seq", "_sterna_op", "_sterna_absent", "_sterna_ts"
"""Columns of a drop's files beside the source's: the order, `u` for what the row is now, `d` for gone, `t` for all
gone; columns whose values aren't told; and when the source committed it."""
_ROWS, _BYTES = 5_000, 16 << 20  # that are held before they go to a file
_SHIFT = 36  # bits of a place in a drop
_MOST_SHOWN = 100  # characters of a value in a message, which stands in each later drop
_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _Table:
    """A table's rows that are in no drop yet."""

    columns: tuple[SourceColumn, ...]
    path: Path
    schema: pa.Schema
    rows: list[list[Any]] = field(default_factory=list)
    held: int = 0
    written: int = 0
    writer: pq.ParquetWriter | None = None

    def add(self, row: list[Any], size: int) -> None:
        self.rows.append(row)
        self.held += size
        if len(self.rows) >= _ROWS or self.held >= _BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, self.schema, compression="zstd")
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.schema)
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, self.schema, strict=True)]
        self.writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema))
        self.written += len(self.rows)
        self.rows, self.held = [], 0

    def close(self) -> None:
        self.flush()
        assert self.writer is not None
        self.writer.close()

    def discard(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.path.unlink()


class Gatherer:
    """Takes what the engine tells, until a drop is cut.

    Args:
        folder: where files are made.
        placeholder: what stands for a value that isn't told.
        tables: by `schema.table`, the columns of its key.
        filled: told of columns that were added; raises `NeedsResync` where that can't be followed.
        known: the columns of tables, by what stands in earlier drops.
        gone: columns that they had before.
        layouts: what they were like, where the source tells by statements alone.
        stopped: tables of which nothing is taken any more, and why.
        seen: of tables whose rows were read again, the transactions that these have already.
    """

    def __init__(
        self,
        folder: Path,
        placeholder: str,
        tables: Mapping[str, Sequence[str]],
        filled: Callable[[str, Sequence[str]], None],
        known: Mapping[str, tuple[Column, ...]],
        gone: Mapping[str, tuple[str, ...]],
        layouts: Mapping[str, Any] | None = None,
        stopped: Mapping[str, Stop] | None = None,
        seen: Mapping[str, Snapshot] | None = None,
    ) -> None:
        self.seen = dict(seen or {})
        self._folder, self._placeholder, self._tables, self._filled = folder, placeholder, tables, filled
        self.known, self.gone = dict(known), dict(gone)
        self.layouts, self.has_other_layouts = dict(layouts or {}), False
        self.stopped, self.has_other_stops = dict(stopped or {}), False
        self._schemas: dict[int, tuple[SourceColumn, ...]] = {}
        self._problems: dict[int, SternaError] = {}
        self._parts: list[tuple[str, _Table]] = []
        self._open: dict[str, _Table] = {}
        self._made = 0
        self._cut = dict(self.known), dict(self.gone)
        self.is_open = False
        self.rows = self.bytes = 0
        self.committed = 0
        self.doubtful: dict[str, int] = {}
        """By table, when the source committed the first deletion whose key may not have been told (microseconds)."""

    def take(self, said: Mapping[str, Any]) -> None:
        """Take a line of the engine's; after `stop` the same line may be taken again.

        Raises:
            UnfitSource: a column or a value can't be followed.
            NeedsResync: what happened can't be told by changes of rows.
        """
        if "define" in said:
            self._define(said["define"], said["fields"])
        elif "topic" in said and said["schema"] is None:
            self._transaction(said["value"])
        elif "topic" in said and "tableChanges" in said["value"]:
            self._statement(said["value"])
        elif "topic" in said:
            self._change(said["schema"], said["value"], said["size"])
        elif "trouble" in said:
            self._trouble(said["trouble"], said["said"])

    def put(self, table: str, columns: tuple[SourceColumn, ...], rows: Sequence[Mapping[str, Any]], when: int) -> None:
        """Take rows of a table as they are, beside what the engine tells.

        Args:
            table: its `schema.table`.
            columns: the table's.
            rows: their values, as the engine has them.
            when: they were read, microseconds since 1970.

        Raises:
            UnfitSource: a value can't be followed.
        """
        into = self._table(table, columns)
        at = _START + timedelta(microseconds=when)
        for row in rows:
            self._made += 1
            size = sum(len(value) for value in row.values() if value is not None)
            into.add([*self._values(table, into, row, ()), self._made, "u", [], at], size)
            self.rows, self.bytes = self.rows + 1, self.bytes + size

    def stop(self, table: str, error: SternaError, last: int = 0) -> None:
        """Take nothing of a table any more, nor what no drop has yet: it stays at the end of the last one.

        Args:
            table: its `schema.table`.
            error: why.
            last: the last drop with all of its rows; 0: there is none.
        """
        self.stopped[table] = Stop.of(error, last)
        self.has_other_stops = True
        _restore(self.known, self._cut[0], table)
        _restore(self.gone, self._cut[1], table)
        for name, part in self._parts:
            if name == table:
                self.rows -= part.written + len(part.rows)
                part.discard()
        self._parts = [each for each in self._parts if each[0] != table]
        self._open.pop(table, None)
        self.doubtful.pop(table, None)

    @property
    def followed(self) -> dict[str, Sequence[str]]:
        """The tables that rows are taken of, each with the columns of its key."""
        return {name: key for name, key in self._tables.items() if name not in self.stopped}

    def cut(self) -> list[File]:
        """End the drop; return table, file, rows and columns of each part, in the order in which they began."""
        assert not self.is_open
        for _, part in self._parts:
            part.close()
        made = [(name, part.path, part.written, _columns(part.columns)) for name, part in self._parts]
        self._parts, self._open, self.doubtful = [], {}, {}
        self.rows = self.bytes = 0
        self.has_other_stops = False
        self._cut = dict(self.known), dict(self.gone)
        return made

    def _define(self, number: int, fields: Mapping[str, Any]) -> None:
        if not any(field["field"] == "after" for field in fields.get("fields", ())):
            return
        try:
            self._schemas[number] = columns_of_schema(fields)
        except UnfitSource as error:
            self._problems[number] = error  # the first row of it says which table it is of

    def _statement(self, told: Mapping[str, Any]) -> None:
        """Take a statement that made or changed a table."""
        self.layouts = changed(self.layouts, self.followed, told)
        self.has_other_layouts = True
        self.is_open = False  # it ended whatever was open, and itself

    def _trouble(self, table: str, said: str) -> None:
        """Take that the engine can't read something of a table."""
        for each in self.followed:
            if each.casefold() == table.casefold():
                raise NeedsResync(said, table=each, hint="sterna cdc resync")

    def _transaction(self, told: Mapping[str, Any]) -> None:
        # In a binary log each statement begins as a transaction does, and no end of it is told: there rows open one.
        self.is_open = told["status"] == "BEGIN" and not self.layouts

    def _change(self, schema: int, told: Mapping[str, Any], size: int) -> None:
        source, operation = told.get("source") or {}, str(told.get("op"))
        if operation == "m":  # a message: of our own heartbeat, or somebody else's
            return
        name = f"{source.get('schema') or source['db']}.{source['table']}"
        if name in self.seen and self.seen[name].sees(int(source["txId"])):
            return
        if name in self.stopped:
            self.is_open = self.is_open or bool(self.layouts and operation in ("c", "u", "d"))
            return
        if problem := self._problems.get(schema):
            raise UnfitSource(problem.message, table=name, hint=problem.hint)
        if name not in self._tables:
            return
        self.committed = max(self.committed, int(source["ts_us"]))
        table = self._table(name, self._schemas[schema])
        if self.layouts:
            self.is_open = operation in ("c", "u", "d")
        table.add(self._row(name, table, operation, told), size)
        self.rows, self.bytes = self.rows + 1, self.bytes + size

    def _row(self, name: str, table: _Table, operation: str, told: Mapping[str, Any]) -> list[Any]:
        absent: list[str] = []
        if operation == "t":
            values: list[Any] = [None] * len(table.columns)
        elif operation == "d":
            values = self._values(name, table, told["before"], self._beyond_key(name, table))
            self._doubt(name, table, told)
        else:
            self._refuse_untold_arrays(name, table, operation, told)
            absent = absent_columns(table.columns, told["after"], self._placeholder)
            if absent and operation != "u":
                raise NeedsResync(
                    f"a row got another key, and its {absent[0]} isn't told", table=name, hint="sterna cdc resync"
                )
            values = self._values(name, table, told["after"], absent)
        if operation != "t":
            self._refuse_no_key(name, table, values, told["before" if operation == "d" else "after"])
        self._made += 1
        said = {"c": "u", "r": "u", "u": "u"}.get(operation, operation)
        when = _START + timedelta(microseconds=int(told["source"]["ts_us"]))
        return [*values, self._made, said, absent, when]

    def _refuse_no_key(self, name: str, table: _Table, values: Sequence[Any], row: Mapping[str, Any]) -> None:
        for each, value in zip(table.columns, values, strict=False):
            if value is None and each.column.name in self._tables[name]:
                if self.layouts:  # a binary log tells all columns
                    raise UnfitSource(
                        f"a zero date in column {each.column.name} of the key has no place on main; the row is "
                        f"{self._key(name, table, row)}",
                        table=name,
                        hint="give the row another date, or leave the table out of `tables`; then sterna cdc resync",
                    )
                # A key that is long and wasn't changed, or a row's that is told by other columns than the key's.
                raise UnfitSource(
                    f"a change doesn't tell column {each.column.name} of the key",
                    table=name,
                    hint=f"ALTER TABLE {name} REPLICA IDENTITY FULL, then sterna cdc resync",
                )

    def _refuse_untold_arrays(self, name: str, table: _Table, operation: str, told: Mapping[str, Any]) -> None:
        # With the whole row as its identity, what it was before is always told.
        arrays = [each.column.name for each in table.columns if each.array]
        if arrays and operation == "u" and told.get("before") is None:
            raise NeedsResync(
                f"a row was changed while the values of {arrays[0]} weren't told: its replica identity was not FULL",
                table=name,
                hint="sterna cdc resync",
            )

    def _doubt(self, name: str, table: _Table, told: Mapping[str, Any]) -> None:
        """Take note of a deletion whose key the engine may have filled in, since it was told by other columns."""
        key, before = self._tables[name], told["before"]
        filled = {each.column.name: is_filler(each, before.get(each.column.name)) for each in table.columns}
        # Told by its key, a row's other columns aren't told.
        if any(filled[each] for each in key) and not all(filled[each] for each in filled if each not in key):
            self.doubtful.setdefault(name, int(told["source"]["ts_us"]))

    def _values(self, name: str, table: _Table, row: Mapping[str, Any], absent: Sequence[str]) -> list[Any]:
        try:
            return read_row(table.columns, row, dict.fromkeys(absent))
        except UnfitSource as error:
            key = self._key(name, table, row)
            raise UnfitSource(f"{error.message}; the row is {key}", table=name, hint=error.hint) from None

    def _key(self, name: str, table: _Table, row: Mapping[str, Any]) -> str:
        """Return a row's key for people."""
        columns = [each for each in table.columns if each.column.name in self._tables[name]]
        values = ", ".join(_shown(each, row) for each in columns)
        return f"({', '.join(each.column.name for each in columns)}) = ({values})"

    def _beyond_key(self, name: str, table: _Table) -> list[str]:
        key = self._tables[name]
        return [each.column.name for each in table.columns if each.column.name not in key]

    def _table(self, name: str, columns: tuple[SourceColumn, ...]) -> _Table:
        found = self._open.get(name)
        if found is not None and found.columns is columns:
            return found
        self._refuse_change(name, _columns(columns))
        if name in self.layouts:
            refuse_untold(name, self.layouts[name], [each.column.name for each in columns])
        import pyarrow as pa

        fields = [pa.field(each.column.name, arrow_type(each.column.type)) for each in columns]
        path = self._folder / f"{len(self._parts)}-{self._made}.parquet"
        made = _Table(columns, path, pa.schema([*fields, *own_fields()]))
        self._open[name] = made
        self._parts.append((name, made))
        return made

    def _refuse_change(self, name: str, columns: tuple[Column, ...]) -> None:
        """See that what became of a table's columns can be followed: some more, some gone, or wider ones."""
        before, self.known[name] = self.known.get(name), columns
        if before is None or before == columns:
            return
        had, has = {each.name for each in before}, {each.name for each in columns}
        hint = "sterna cdc resync"
        if missing := [each for each in self._tables[name] if each not in has]:
            raise NeedsResync(f"column {missing[0]} of its key is gone, or has another name", table=name, hint=hint)
        if had - has and has - had:
            gone, new = sorted(had - has)[0], sorted(has - had)[0]
            raise NeedsResync(f"column {gone} is gone and {new} is new: it may be a new name", table=name, hint=hint)
        _refuse_moved(name, [each.name for each in before if each.name in has], [each.name for each in columns])
        if back := sorted((has - had) & set(self.gone.get(name, ()))):
            raise NeedsResync(f"column {back[0]} was dropped and is there again, empty", table=name, hint=hint)
        self.gone[name] = (*self.gone.get(name, ()), *sorted(had - has))
        try:
            evolution(before, columns, "widen")
        except BadDrop as error:
            raise NeedsResync(f"its columns have changed: {error.message}", table=name, hint=hint) from None
        if has - had:
            self._filled(name, sorted(has - had))


def _shown(column: SourceColumn, row: Mapping[str, Any]) -> str:
    """Return a column's value for people; as the engine tells it where it has no place in its type."""
    raw = row.get(column.column.name)
    try:
        (value,) = read_row([column], row, {})
    except UnfitSource:
        value = None
    return printable(str(raw) if value is None else repr(value), _MOST_SHOWN)


def _restore(values: dict[str, T], before: Mapping[str, T], table: str) -> None:
    """Give a table's value back as the last drop has it."""
    values.pop(table, None)
    if table in before:
        values[table] = before[table]


def _refuse_moved(table: str, had: Sequence[str], has: Sequence[str]) -> None:
    # A database keeps the order of columns: one that has another place has another one's name, or was made anew.
    if list(had) != [each for each in has if each in set(had)]:
        raise NeedsResync(
            "columns have exchanged their names, or were made anew", table=table, hint="sterna cdc resync"
        )


def own_fields() -> list[pa.Field]:
    """Return the columns of a drop's file that stand behind the source's own."""
    import pyarrow as pa

    return [
        pa.field(SEQUENCE, pa.int64()),
        pa.field(OPERATION, pa.string()),
        pa.field(ABSENT, pa.list_(pa.string())),
        pa.field(COMMITTED, pa.timestamp("us", "UTC")),
    ]


def sequence(number: int, place: int) -> int:
    """Return a row's place among all rows of an epoch.

    Args:
        number: its drop's.
        place: in that.
    """
    return (number << _SHIFT) + place


def _columns(columns: Sequence[SourceColumn]) -> tuple[Column, ...]:
    return tuple(each.column for each in columns)
