"""Buffers the engine's messages as the files of a segment: rows of whole transactions, by table, on local disk.

A segment ends where no transaction is open. Rows go to files as they come, so a giant transaction needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sterna.errors import BadDrop, NeedsResync, SternaError, UnfitSource, printable
from sterna.libraries import pa, pq
from sterna.pipelines.cdc.journal import LocalPart, StoppedTable
from sterna.pipelines.cdc.schema_history import apply_statement, validate_reported_columns
from sterna.pipelines.cdc.table_resync import PgSnapshot
from sterna.pipelines.cdc.types import SourceColumn, absent_columns, columns_of_schema, is_filler, read_row
from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import Column, plan_evolution

T = TypeVar("T")
SEQUENCE, OPERATION, ABSENT, COMMITTED = "_sterna_seq", "_sterna_op", "_sterna_absent", "_sterna_ts"
"""Columns of a segment's files beside the source's: the order; the operation (`u` upsert, `d` delete, `t` truncate);
columns that the change doesn't contain; and when the source committed it."""
_MAX_BUFFERED_ROWS, _MAX_BUFFERED_BYTES = 5_000, 16 << 20  # that are held before they go to a file
_PLACE_BITS = 36  # bits of a row's number in a segment
_MAX_SHOWN_CHARS = 100  # of a value in a message, which each later segment repeats
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _TableBuffer:
    """A table's rows that are in no segment yet."""

    columns: tuple[SourceColumn, ...]
    path: Path
    schema: pa.Schema
    rows: list[list[Any]] = field(default_factory=list)
    buffered_bytes: int = 0
    written_rows: int = 0
    writer: pq.ParquetWriter | None = None

    def add(self, row: list[Any], size: int) -> None:
        self.rows.append(row)
        self.buffered_bytes += size
        if len(self.rows) >= _MAX_BUFFERED_ROWS or self.buffered_bytes >= _MAX_BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, self.schema, compression="zstd")
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        self.writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema))
        self.written_rows += len(self.rows)
        self.rows, self.buffered_bytes = [], 0

    def close(self) -> None:
        self.flush()
        assert self.writer is not None
        self.writer.close()

    def discard(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.path.unlink()


class ChangeBuffer:
    """Takes the engine's messages until a segment is finished.

    Args:
        folder: for its files.
        placeholder: the engine's value for a column that a change doesn't contain.
        tables: by `schema.table`, the columns of its key.
        validate_added_columns: called with columns that were added; raises `NeedsResync` if that can't be followed.
        columns: the columns of tables, by earlier segments.
        dropped_columns: columns that they had before.
        schemas: the tables' schemas, where the log has them only as statements.
        stopped: tables whose rows are ignored, and why.
        snapshots: of tables that were read again, the transactions that their rows include.
    """

    def __init__(
        self,
        folder: Path,
        placeholder: str,
        tables: Mapping[str, Sequence[str]],
        validate_added_columns: Callable[[str, Sequence[str]], None],
        columns: Mapping[str, tuple[Column, ...]],
        dropped_columns: Mapping[str, tuple[str, ...]],
        schemas: Mapping[str, Any] | None = None,
        stopped: Mapping[str, StoppedTable] | None = None,
        snapshots: Mapping[str, PgSnapshot] | None = None,
    ) -> None:
        self.snapshots = dict(snapshots or {})
        self._folder, self._placeholder, self._tables, self._validate_added_columns = (
            folder,
            placeholder,
            tables,
            validate_added_columns,
        )
        self.columns, self.dropped_columns = dict(columns), dict(dropped_columns)
        self.schemas, self.schemas_changed = dict(schemas or {}), False
        self.stopped, self.stops_changed = dict(stopped or {}), False
        self._columns_by_schema: dict[int, tuple[SourceColumn, ...]] = {}
        self._schema_errors: dict[int, SternaError] = {}
        self._parts: list[tuple[str, _TableBuffer]] = []
        self._open_tables: dict[str, _TableBuffer] = {}
        self._row_count = 0
        self._committed_columns = dict(self.columns), dict(self.dropped_columns)
        self.in_transaction = False
        self.rows = self.bytes = 0
        self.committed_micros = 0
        self.tables_with_initial_rows: set[str] = set()
        self.uncertain_deletes: dict[str, int] = {}
        """By table, when the source committed the first deletion whose key may be incomplete (microseconds)."""

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Add a message of the engine; after `stop_table` the same message may be added again.

        Raises:
            UnfitSource: a column or a value can't be followed.
            NeedsResync: the change can't be expressed by rows.
        """
        if "define" in message:
            self._define_schema(message["define"], message["fields"])
        elif "topic" in message and message["schema"] is None:
            self._handle_transaction(message["value"])
        elif "topic" in message and "tableChanges" in message["value"]:
            self._handle_statement(message["value"])
        elif "topic" in message:
            self._handle_change(message["schema"], message["value"], message["size"])
        elif "trouble" in message:
            self._handle_trouble(message["trouble"], message["said"])

    def add_rows(
        self, table: str, columns: tuple[SourceColumn, ...], rows: Sequence[Mapping[str, Any]], read_micros: int
    ) -> None:
        """Add rows of a table that were read beside the engine.

        Args:
            table: its `schema.table`.
            columns: the table's.
            rows: their values, as the engine has them.
            read_micros: when they were read, microseconds since 1970.

        Raises:
            UnfitSource: a value can't be followed.
        """
        buffer = self._table_buffer(table, columns)
        read_at = _UNIX_EPOCH + timedelta(microseconds=read_micros)
        for row in rows:
            self._row_count += 1
            size = sum(len(value) for value in row.values() if value is not None)
            buffer.add([*self._read_values(table, buffer, row, ()), self._row_count, "u", [], read_at], size)
            self.rows, self.bytes = self.rows + 1, self.bytes + size

    def stop_table(self, table: str, error: SternaError, last_number: int = 0) -> None:
        """Ignore a table from now on, including its rows since the last segment.

        Args:
            table: its `schema.table`.
            last_number: the last segment with all of its rows; 0: there is none.
        """
        self.stopped[table] = StoppedTable.from_error(error, last_number)
        self.stops_changed = True
        _restore(self.columns, self._committed_columns[0], table)
        _restore(self.dropped_columns, self._committed_columns[1], table)
        for name, part in self._parts:
            if name == table:
                self.rows -= part.written_rows + len(part.rows)
                part.discard()
        self._parts = [numbered_part for numbered_part in self._parts if numbered_part[0] != table]
        self._open_tables.pop(table, None)
        self.uncertain_deletes.pop(table, None)

    @property
    def captured(self) -> dict[str, Sequence[str]]:
        """The tables that rows are taken of, each with the columns of its key."""
        return {name: key for name, key in self._tables.items() if name not in self.stopped}

    def finish_segment(self) -> list[LocalPart]:
        """Finish the segment; return table, file, rows and columns of each part, in the order of their first rows."""
        assert not self.in_transaction
        for _, part in self._parts:
            part.close()
        files = [(name, part.path, part.written_rows, _columns(part.columns)) for name, part in self._parts]
        self._parts, self._open_tables, self.uncertain_deletes = [], {}, {}
        self.rows = self.bytes = 0
        self.stops_changed = False
        self._committed_columns = dict(self.columns), dict(self.dropped_columns)
        return files

    def _define_schema(self, number: int, fields: Mapping[str, Any]) -> None:
        if not any(field["field"] == "after" for field in fields.get("fields", ())):
            return
        try:
            self._columns_by_schema[number] = columns_of_schema(fields)
        except UnfitSource as error:
            self._schema_errors[number] = error  # its first row names the table

    def _handle_statement(self, event: Mapping[str, Any]) -> None:
        """Take a statement that made or changed a table."""
        self.schemas = apply_statement(self.schemas, self.captured, event)
        self.schemas_changed = True
        self.in_transaction = False  # it ended whatever was open, and itself

    def _handle_trouble(self, table: str, reason: str) -> None:
        """Take that the engine can't read something of a table."""
        for captured_table in self.captured:
            if captured_table.casefold() == table.casefold():
                raise NeedsResync(reason, table=captured_table, hint="sterna cdc resync")

    def _handle_transaction(self, event: Mapping[str, Any]) -> None:
        # In a binary log each statement begins as a transaction does, without an end: there rows open one.
        self.in_transaction = event["status"] == "BEGIN" and not self.schemas

    def _handle_change(self, schema: int, event: Mapping[str, Any], size: int) -> None:
        source, operation = event.get("source") or {}, str(event.get("op"))
        if operation == "m":  # a message: of our own heartbeat, or another client's
            return
        name = f"{source.get('schema') or source['db']}.{source['table']}"
        if name in self.snapshots and self.snapshots[name].is_visible(int(source["txId"])):
            return
        if name in self.stopped:
            self.in_transaction = self.in_transaction or bool(self.schemas and operation in ("c", "u", "d"))
            return
        if schema_error := self._schema_errors.get(schema):
            raise UnfitSource(schema_error.message, table=name, hint=schema_error.hint)
        if name not in self._tables:
            return
        if operation == "r":
            self.tables_with_initial_rows.add(name)
        self.committed_micros = max(self.committed_micros, int(source["ts_us"]))
        table = self._table_buffer(name, self._columns_by_schema[schema])
        if self.schemas:
            self.in_transaction = operation in ("c", "u", "d")
        table.add(self._build_row(name, table, operation, event), size)
        self.rows, self.bytes = self.rows + 1, self.bytes + size

    def _build_row(self, name: str, table: _TableBuffer, operation: str, event: Mapping[str, Any]) -> list[Any]:
        absent: list[str] = []
        if operation == "t":
            values: list[Any] = [None] * len(table.columns)
        elif operation == "d":
            values = self._read_values(name, table, event["before"], self._non_key_columns(name, table))
            self._note_uncertain_delete(name, table, event)
        else:
            self._require_old_arrays(name, table, operation, event)
            absent = absent_columns(table.columns, event["after"], self._placeholder)
            if absent and operation != "u":
                raise NeedsResync(
                    f"a row got another key, and the change lacks its {absent[0]}", table=name, hint="sterna cdc resync"
                )
            values = self._read_values(name, table, event["after"], absent)
        if operation != "t":
            self._require_key(name, table, values, event["before" if operation == "d" else "after"])
        self._row_count += 1
        operation_code = {"c": "u", "r": "u", "u": "u"}.get(operation, operation)
        committed_at = _UNIX_EPOCH + timedelta(microseconds=int(event["source"]["ts_us"]))
        return [*values, self._row_count, operation_code, absent, committed_at]

    def _require_key(self, name: str, table: _TableBuffer, values: Sequence[Any], row: Mapping[str, Any]) -> None:
        for column, value in zip(table.columns, values, strict=False):
            if value is None and column.column.name in self._tables[name]:
                if self.schemas:  # a binary log has all columns
                    raise UnfitSource(
                        f"a zero date in column {column.column.name} of the key has no place on main; the row is "
                        f"{self._format_key(name, table, row)}",
                        table=name,
                        hint="give the row another date, or leave the table out of `tables`; then sterna cdc resync",
                    )
                # A long key that wasn't changed, or the key of a row that the log identifies by other columns.
                raise UnfitSource(
                    f"a change lacks column {column.column.name} of the key",
                    table=name,
                    hint=f"ALTER TABLE {name} REPLICA IDENTITY FULL, then sterna cdc resync",
                )

    def _require_old_arrays(self, name: str, table: _TableBuffer, operation: str, event: Mapping[str, Any]) -> None:
        # With the whole row as its identity, the old row is always in the log.
        arrays = [column.column.name for column in table.columns if column.may_change]
        if arrays and operation == "u" and event.get("before") is None:
            raise NeedsResync(
                f"a row was changed without the values of {arrays[0]}: its replica identity was not FULL",
                table=name,
                hint="sterna cdc resync",
            )

    def _note_uncertain_delete(self, name: str, table: _TableBuffer, event: Mapping[str, Any]) -> None:
        """Record a deletion whose key may be the engine's defaults, as the log identifies it by other columns."""
        key, old_row = self._tables[name], event["before"]
        fillers = {column.column.name: is_filler(column, old_row.get(column.column.name)) for column in table.columns}
        # A row that is identified by its key has no other columns.
        if any(fillers[column_name] for column_name in key) and not all(
            fillers[column_name] for column_name in fillers if column_name not in key
        ):
            self.uncertain_deletes.setdefault(name, int(event["source"]["ts_us"]))

    def _read_values(self, name: str, table: _TableBuffer, row: Mapping[str, Any], absent: Sequence[str]) -> list[Any]:
        try:
            return read_row(table.columns, row, dict.fromkeys(absent))
        except UnfitSource as error:
            key = self._format_key(name, table, row)
            raise UnfitSource(f"{error.message}; the row is {key}", table=name, hint=error.hint) from None

    def _format_key(self, name: str, table: _TableBuffer, row: Mapping[str, Any]) -> str:
        """Return a row's key for messages."""
        columns = [column for column in table.columns if column.column.name in self._tables[name]]
        values = ", ".join(_format_value(column, row) for column in columns)
        return f"({', '.join(column.column.name for column in columns)}) = ({values})"

    def _non_key_columns(self, name: str, table: _TableBuffer) -> list[str]:
        key = self._tables[name]
        return [column.column.name for column in table.columns if column.column.name not in key]

    def _table_buffer(self, name: str, columns: tuple[SourceColumn, ...]) -> _TableBuffer:
        current = self._open_tables.get(name)
        if current is not None and current.columns is columns:
            return current
        self._validate_columns(name, _columns(columns))
        if name in self.schemas:
            validate_reported_columns(name, self.schemas[name], [column.column.name for column in columns])
        fields = [pa.field(column.column.name, arrow_type(column.column.type)) for column in columns]
        path = self._folder / f"{len(self._parts)}-{self._row_count}.parquet"
        buffer = _TableBuffer(columns, path, pa.schema([*fields, *own_fields()]))
        self._open_tables[name] = buffer
        self._parts.append((name, buffer))
        return buffer

    def _validate_columns(self, name: str, columns: tuple[Column, ...]) -> None:
        """See that what became of a table's columns can be followed: some more, some gone, or wider ones."""
        old_columns, self.columns[name] = self.columns.get(name), columns
        if old_columns is None or old_columns == columns:
            return
        old_names, new_names = {column.name for column in old_columns}, {column.name for column in columns}
        hint = "sterna cdc resync"
        if missing := [key_column for key_column in self._tables[name] if key_column not in new_names]:
            raise NeedsResync(f"column {missing[0]} of its key is gone, or has another name", table=name, hint=hint)
        if old_names - new_names and new_names - old_names:
            dropped, added = sorted(old_names - new_names)[0], sorted(new_names - old_names)[0]
            raise NeedsResync(
                f"column {dropped} is gone and {added} is new: it may be a new name", table=name, hint=hint
            )
        _validate_order(
            name,
            [column.name for column in old_columns if column.name in new_names],
            [column.name for column in columns],
        )
        if readded := sorted((new_names - old_names) & set(self.dropped_columns.get(name, ()))):
            raise NeedsResync(f"column {readded[0]} was dropped and is there again, empty", table=name, hint=hint)
        self.dropped_columns[name] = (*self.dropped_columns.get(name, ()), *sorted(old_names - new_names))
        try:
            plan_evolution(old_columns, columns, "widen")
        except BadDrop as error:
            raise NeedsResync(f"its columns have changed: {error.message}", table=name, hint=hint) from None
        if new_names - old_names:
            self._validate_added_columns(name, sorted(new_names - old_names))


def _format_value(column: SourceColumn, row: Mapping[str, Any]) -> str:
    """Return a column's value for messages; the raw one if it doesn't fit its type."""
    raw = row.get(column.column.name)
    try:
        (value,) = read_row([column], row, {})
    except UnfitSource:
        value = None
    return printable(str(raw) if value is None else repr(value), _MAX_SHOWN_CHARS)


def _restore(values: dict[str, T], committed: Mapping[str, T], table: str) -> None:
    """Restore a table's value of the last segment."""
    values.pop(table, None)
    if table in committed:
        values[table] = committed[table]


def _validate_order(table: str, old_names: Sequence[str], new_names: Sequence[str]) -> None:
    # A database keeps the order of columns: one at another position was renamed, or the table was recreated.
    if list(old_names) != [column for column in new_names if column in set(old_names)]:
        raise NeedsResync(
            "columns have exchanged their names, or were recreated", table=table, hint="sterna cdc resync"
        )


def own_fields() -> list[pa.Field]:
    """Return the columns of a segment's file behind the source's own."""
    return [
        pa.field(SEQUENCE, pa.int64()),
        pa.field(OPERATION, pa.string()),
        pa.field(ABSENT, pa.list_(pa.string())),
        pa.field(COMMITTED, pa.timestamp("us", "UTC")),
    ]


def sequence(number: int, index: int) -> int:
    """Return a row's order among all rows of a capture.

    Args:
        number: of its segment.
        index: in that.
    """
    return (number << _PLACE_BITS) + index


def _columns(columns: Sequence[SourceColumn]) -> tuple[Column, ...]:
    return tuple(column.column for column in columns)
