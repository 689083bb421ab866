"""Reads a source into its journal: whole transactions, each exactly once, whichever reader is killed, and whenever.

Only what is durable in the journal is confirmed to the source. A reader starts behind the last segment.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sterna.config.sections.cdc import CdcSource
from sterna.errors import Busy, DatabaseRefused, NeedsResync, ObjectMissing, SourceUnreachable, SternaError, UnfitSource
from sterna.pipelines.cdc.change_buffer import ChangeBuffer
from sterna.pipelines.cdc.database import (
    SourceDatabase,
    require_named_tables,
    validate_exclusions,
    with_dropped_columns,
)
from sterna.pipelines.cdc.engine import Engine
from sterna.pipelines.cdc.journal import CaptureSpec, Journal, Segment, StoppedTable, TableResync
from sterna.pipelines.cdc.table_resync import PgSnapshot

T = TypeVar("T")
MAX_SEGMENT_ROWS, _MAX_SEGMENT_BYTES = 100_000, 256 << 20  # larger transactions exceed them
_POLL_SECONDS = 0.2
_RESYNC_RETRY_SECONDS = 60.0  # before a table's resync that failed is tried again
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MainTables:
    """The tables on `main` before a capture begins.

    Args:
        latest_capture_id: the newest capture that some of them have rows of; 0: none.
        conflicts: those that have rows of another table, and the error of each.
    """

    latest_capture_id: int = 0
    conflicts: Mapping[str, UnfitSource] = field(default_factory=dict)


@dataclass
class Capture:
    """A reader of one source.

    Args:
        journal: of the source.
        read_main_tables: returns the state of tables on `main`.
        clock: seconds.
        idle_seconds: after which the position is committed though nothing changed.
        max_restarts: how often a capture begins again where a table was rewritten before the engine's locks.
    """

    source: CdcSource
    database: SourceDatabase
    journal: Journal
    read_main_tables: Callable[[Mapping[str, tuple[str, ...]]], MainTables] = lambda tables: MainTables()
    clock: Callable[[], float] = time.monotonic
    idle_seconds: float = 60.0
    max_restarts: int = 5
    _engine: Engine | None = None
    _folder: Path | None = None
    _buffer: ChangeBuffer | None = None
    _spec: CaptureSpec = field(default_factory=lambda: CaptureSpec(0))
    _last_segment: Segment | None = None
    _buffered_since: float = 0.0
    _written_at: float = 0.0
    _position: dict[str, Any] | None = None
    _identities: Mapping[str, Any] = field(default_factory=dict)
    _rewritten: Collection[str] = ()
    _restarts: int = 0
    _retry_at: float = 0.0
    has_output: bool = False
    """Whether the engine has sent a message since it was started."""

    def step(self, seconds: float) -> int:
        """Read for some seconds, or until a segment is committed; return how many were.

        Raises:
            SourceUnreachable: the engine ended, or the source doesn't answer.
            UnfitSource, SlotLost, PositionLost, NeedsResync: the source can't be followed, or none of its tables can.
            Busy: another reader is active.
            DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: a dependency isn't available.
        """
        written, end = 0, self.clock() + seconds
        try:
            engine, buffer = self._ensure_open()
            while not written and self.clock() < end:
                for message in engine.poll(_POLL_SECONDS):
                    if self.is_beginning and not self.has_output:  # the engine has locked all tables
                        self._rewritten = self.database.list_rewritten(self._spec.id, self._identities)
                        if self._rewritten and self._restarts < self.max_restarts:
                            self._restarts += 1
                            self.close()
                            return 0  # before a row is read: the next snapshot has what was rewritten
                    self.has_output = True
                    if "n" in message:
                        self._position = message
                    else:
                        self._position = None  # it precedes this message
                        self._handle_message(buffer, message)
                        continue
                    written = self._flush_if_due(engine, buffer)
                    if written or self.clock() >= end:
                        break
                written = written or self._flush_if_due(engine, buffer)
            if written and self._pending_resyncs():
                self.close()  # an engine that restarts includes the table
            return written
        except SourceUnreachable as error:
            self.close()
            self.database.raise_for_engine_error(error.message)
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the engine; what isn't in a segment is read again."""
        if self._engine is not None:
            self._engine.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._engine = self._folder = self._buffer = self._position = None
        self.has_output = False

    @property
    def is_beginning(self) -> bool:
        """Whether the initial rows are being read: a reader that stops now has to start over."""
        return self._engine is not None and self._is_initial_snapshot()

    @property
    def pid(self) -> int | None:
        """The engine's process."""
        return self._engine.pid if self._engine is not None else None

    def _ensure_open(self) -> tuple[Engine, ChangeBuffer]:
        if self._engine is not None and self._buffer is not None:
            return self._engine, self._buffer
        self._spec, self._last_segment = self.begin_capture()
        for request, table in self._pending_resyncs():
            if not self._resync_table(request, table):
                break  # later requests wait, too: a segment has one number up to which all requests are handled
        capture_id, last_segment, position = self._spec.id, self._last_segment, None
        errors: dict[str, SternaError] = {}
        stopped = last_segment.stopped if last_segment is not None else {}
        if last_segment is not None and last_segment.offset is not None and last_segment.partition is not None:
            self._check_tables(
                stopped, errors, lambda tables: self.database.validate_position(last_segment, list(tables))
            )
            self._check_tables(stopped, errors, lambda tables: self.database.validate_tables(list(tables)))
            # The identities of the last segment stay the baseline: rows that come now may precede these.
            identities = self._check_tables(
                stopped, errors, lambda tables: self.database.identities(tables, last_segment.identities, {})
            )
            self._identities = last_segment.identities or identities
            position = last_segment.partition, last_segment.offset
        tables = [name for name in self._spec.tables if name not in stopped and name not in errors]
        if not tables:
            raise _first_error(stopped, errors, self.source.name)
        placeholder = f"sterna-{secrets.token_hex(16)}"
        self._folder = Path(tempfile.mkdtemp(prefix="sterna-cdc-"))
        properties = self.database.properties(capture_id, tables, placeholder, self._folder)
        columns, dropped_columns, schemas = self._previous_columns(self._last_segment)
        if position is not None:
            self.database.write_schema_history(self._folder, schemas, position[1])
        engine = Engine(properties, position, self._folder, self.database.jars())
        validate_added_columns = self.database.validate_added_columns
        buffer = ChangeBuffer(
            self._folder,
            placeholder,
            self._spec.tables,
            validate_added_columns,
            columns,
            dropped_columns,
            schemas,
            stopped,
            _active_snapshots(last_segment),
        )
        self.resume(engine, buffer, self._spec, last_segment)
        self._stop_tables(buffer, errors)
        return engine, buffer

    def resume(self, engine: Engine, buffer: ChangeBuffer, spec: CaptureSpec, last_segment: Segment | None) -> None:
        """Continue with a running engine.

        Args:
            engine: sends the changes behind the last segment.
            last_segment: of the capture; None: there is none yet.
        """
        self._engine, self._buffer, self._spec, self._last_segment = engine, buffer, spec, last_segment
        self._buffered_since = self._written_at = self.clock()

    def _check_tables(
        self,
        stopped: Mapping[str, object],
        errors: dict[str, SternaError],
        check: Callable[[Mapping[str, tuple[str, ...]]], T],
    ) -> T:
        """Check tables that aren't stopped, until no check fails.

        Args:
            stopped: tables that were stopped before.
            errors: receives the error of each table that fails.
            check: called with the rest.

        Raises:
            NeedsResync, UnfitSource: an error of no single table.
        """
        while True:
            tables = {
                name: key for name, key in self._spec.tables.items() if name not in stopped and name not in errors
            }
            try:
                return check(tables)
            except (NeedsResync, UnfitSource) as error:
                if error.table not in tables:
                    raise
                errors[error.table] = error

    def _previous_columns(self, last_segment: Segment | None) -> tuple[Any, Any, Any]:
        if last_segment is None:
            return {}, self.journal.earlier_columns(self._spec.id), {}
        try:
            return last_segment.columns, last_segment.dropped_columns, self.journal.read_schemas(last_segment)
        except ObjectMissing:
            raise NeedsResync(
                f"the journal of {self.source.name} has lost what its tables are like",
                file=last_segment.layouts,
                hint=f"sterna cdc resync {self.source.name}",
            ) from None

    def begin_capture(self) -> tuple[CaptureSpec, Segment | None]:
        """Return the capture to continue, or a new one if the initial rows of the last were never complete.

        Raises:
            UnfitSource: the source, or a table that can't be excluded, can't be followed.
            Busy: another reader begins one, or a table changes meanwhile.
        """
        latest_id, spec, last_segment = self.journal.latest_capture()
        if spec is not None and last_segment is not None and last_segment.offset is not None:
            return spec.with_keys_at(last_segment), last_segment
        unfit: dict[str, UnfitSource] = {}
        captured = self._previously_captured(latest_id) if spec is None else spec.tables
        tables = self._select_tables(unfit, captured)
        on_main = self.read_main_tables(tables)
        unfit.update(on_main.conflicts)
        tables = {name: key for name, key in tables.items() if name not in on_main.conflicts}
        validate_exclusions(self.source, tables, unfit, captured)
        require_named_tables(self.source, tables)
        # Positions on main outlive a journal that was lost: their capture ids must not be used again.
        new_spec = CaptureSpec(
            max(latest_id if latest_id and spec is None else latest_id + 1, on_main.latest_capture_id + 1), tables
        )
        self._identities = with_dropped_columns(self._identities, self.journal.earlier_columns(new_spec.id))
        self.database.prepare(new_spec.id, list(new_spec.tables))
        if not self.journal.create_spec(new_spec):
            raise Busy(f"another reader begins to read the source {self.source.name}")
        return new_spec, None

    def _select_tables(self, unfit: dict[str, UnfitSource], captured: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the tables of a new capture, and record their identities.

        Args:
            unfit: receives those that can't be followed.
            captured: those that were captured before.

        Raises:
            Busy: one was dropped, or its key changed, since the tables were listed.
        """
        self._spec, errors = CaptureSpec(0, self.database.list_tables(unfit, captured)), dict[str, SternaError]()
        self._identities = self._check_tables({}, errors, lambda tables: self.database.identities(tables, {}, {}))
        if changed := [
            name for name, error in errors.items() if name in captured and not isinstance(error, UnfitSource)
        ]:
            raise Busy(
                f"a table of the source {self.source.name} is being changed while a new capture begins",
                table=changed[0],
                hint="the next attempt lists the tables again",
            ) from errors[changed[0]]
        unfit.update({name: error for name, error in errors.items() if isinstance(error, UnfitSource)})
        return {name: key for name, key in self._spec.tables.items() if name not in errors}

    def _previously_captured(self, latest_id: int) -> Collection[str]:
        """Return the tables of the last capture before one: rows of them are on `main`."""
        specs = filter(None, map(self.journal.read_spec, range(latest_id - 1, 0, -1)))
        last_spec = next(specs, None)
        return last_spec.tables if last_spec is not None else ()

    def _handle_message(self, buffer: ChangeBuffer, message: dict[str, Any]) -> None:
        if not buffer.rows:
            self._buffered_since = self.clock()
        self._buffer_message(buffer, message)
        if (
            message.get("schema", "") is None
        ):  # the next message has its position: with the last one the segment would have too much
            self._position = None
        if self._is_initial_snapshot() and _is_full(buffer) and not buffer.in_transaction:
            self._write_segment(buffer, Segment(self._spec.id, self._next_number()))

    def _buffer_message(self, buffer: ChangeBuffer, message: Mapping[str, Any]) -> None:
        """Add a message to the buffer; a table whose message can't be read is stopped, and the others continue."""
        while True:
            try:
                return buffer.add_message(message)
            except (NeedsResync, UnfitSource) as error:
                if error.table not in buffer.captured:
                    raise
                self._stop_tables(buffer, {error.table: error})

    def _stop_tables(self, buffer: ChangeBuffer, errors: Mapping[str, SternaError]) -> None:
        """Stop tables at the end of the last segment, or at 0 if their initial rows aren't complete."""
        last_number = (
            self._last_segment.number if self._last_segment is not None and not self._is_initial_snapshot() else 0
        )
        for name, error in errors.items():
            buffer.stop_table(name, error, last_number)

    def _is_initial_snapshot(self) -> bool:
        """Return whether the initial rows are still being read."""
        return self._last_segment is None or self._last_segment.offset is None

    def _is_flush_due(self, buffer: ChangeBuffer, position: dict[str, Any]) -> bool:
        if "snapshot" in position["offset"]:
            return False  # the first rows are still coming
        if self._is_initial_snapshot() or _is_full(buffer):
            return True
        now = self.clock()
        if buffer.rows or buffer.stops_changed:
            return now - self._buffered_since >= self.source.every
        return now - self._written_at >= self.idle_seconds

    def _flush_if_due(self, engine: Engine, buffer: ChangeBuffer) -> int:
        """Commit a segment if one is due; return how many were committed."""
        position = self._position
        if position is None or buffer.in_transaction or not self._is_flush_due(buffer, position):
            return 0
        self._write_segment(
            buffer,
            Segment(
                self._spec.id,
                self._next_number(),
                position["partition"],
                position["offset"],
                complete=self._is_initial_snapshot(),
            ),
        )
        engine.confirm(position["n"])
        buffer.snapshots = _active_snapshots(self._last_segment)  # transaction ids wrap around
        self._position, self._written_at = None, self.clock()
        return 1

    def _write_segment(self, buffer: ChangeBuffer, segment: Segment) -> None:
        # Identities are read after the rows, and before they are durable.
        errors: dict[str, SternaError] = {}
        identities = self._check_tables(
            buffer.stopped,
            errors,
            lambda tables: self.database.identities(tables, self._identities, buffer.uncertain_deletes),
        )
        if segment.complete:
            self._reject_missing_rows(buffer, errors)
        if buffer.schemas_changed:
            self._check_tables(buffer.stopped, errors, lambda tables: self.database.validate_tables(list(tables)))
        self._stop_tables(buffer, errors)
        files = buffer.finish_segment()
        tables = self.journal.write_parts(segment.capture_id, segment.number, files)
        for _, path, _, _ in files:
            path.unlink()
        new_segment = replace(
            segment,
            tables=tables,
            committed_micros=buffer.committed_micros,
            columns=dict(buffer.columns),
            dropped_columns=dict(buffer.dropped_columns),
            identities=identities,
            stopped=dict(buffer.stopped),
            resyncs=self._last_segment.resyncs if self._last_segment is not None else {},
            handled_requests=self._last_segment.handled_requests if self._last_segment is not None else 0,
        )
        if segment.offset is not None:
            new_segment = replace(new_segment, **self._log_position(buffer, segment.offset))
        self._commit_segment(new_segment)
        self._identities = identities

    def _reject_missing_rows(self, buffer: ChangeBuffer, errors: dict[str, SternaError]) -> None:
        """Reject tables whose initial rows may be missing: a rewrite takes all of them out of the snapshot, or none.

        Args:
            errors: receives the error of each such table.
        """
        empty = set(self._rewritten) & buffer.captured.keys() - buffer.tables_with_initial_rows
        for table in empty - buffer.stopped.keys() - errors.keys():
            errors[table] = NeedsResync(
                "none of its rows came, and it was rewritten or truncated as their reading began: some may be missing",
                table=table,
                hint=f"sterna cdc resync {self.source.name}",
            )

    def _log_position(self, buffer: ChangeBuffer, offset: Mapping[str, Any]) -> dict[str, Any]:
        """Return the log of an offset, and the URI of the tables' schemas at it."""
        last_segment = self._last_segment
        schemas_uri = last_segment.layouts if last_segment is not None else ""
        if buffer.schemas and (buffer.schemas_changed or not schemas_uri):
            schemas_uri = self.journal.write_schemas(self._spec.id, buffer.schemas)
            buffer.schemas_changed = False
        return {
            "layouts": schemas_uri,
            "origin": self.database.origin(offset, last_segment.origin if last_segment is not None else {}),
        }

    def _pending_resyncs(self) -> list[tuple[int, str]]:
        """Return the resync requests that aren't handled, each with its number."""
        if self._last_segment is None or self._last_segment.offset is None or not self.source.can_reload_single_table:
            return []
        if self.clock() < self._retry_at:
            return []
        return self.journal.resync_requests(self._spec.id, self._last_segment.handled_requests)

    def _resync_table(self, request: int, table: str) -> bool:
        """Read all rows of one table at the position of the last segment, while the others continue.

        Later changes that the rows include already are skipped.

        Returns:
            Whether the request is handled or refused; otherwise it is tried again later.
        """
        last_segment = self._last_segment
        assert last_segment is not None
        previous_stop = last_segment.stopped.get(table) or StoppedTable.from_error(
            NeedsResync("it is being read again"), last_segment.number
        )
        base_segment = replace(
            last_segment, tables={}, complete=False, stopped={**last_segment.stopped, table: previous_stop}
        )
        unfit: dict[str, UnfitSource] = {}
        tables = self.database.list_tables(unfit, self._spec.tables)
        with tempfile.TemporaryDirectory(prefix="sterna-cdc-again-") as folder:
            try:
                if table not in self._spec.tables or table in unfit:
                    raise unfit.get(table) or UnfitSource("it isn't among the tables of the source", table=table)
                if table not in tables:
                    raise NeedsResync("the table was dropped, or renamed, in the source", table=table)
                if not self.database.publish_table(base_segment.capture_id, table):
                    log.warning(
                        "%s is read again later: it is locked, or a transaction that writes is open for long", table
                    )
                    self._retry_at = self.clock() + _RESYNC_RETRY_SECONDS  # the other tables continue
                    return False
                new_segment = self._write_table_snapshot(table, tables[table], base_segment, Path(folder))
            except (NeedsResync, UnfitSource, DatabaseRefused) as error:  # an error of this table alone
                stopped = {**last_segment.stopped, table: StoppedTable.from_error(error, previous_stop.last)}
                new_segment = replace(base_segment, number=self._next_number(), stopped=stopped)
            self._commit_segment(replace(new_segment, handled_requests=request))
        return True

    def _write_table_snapshot(self, table: str, key: tuple[str, ...], base_segment: Segment, folder: Path) -> Segment:
        """Write a table's rows in as many segments as they need; return the last one, which isn't committed yet."""
        first_number = self._next_number()
        with self.database.read_table(base_segment.capture_id, table) as rows:
            identities = self.database.identities({table: key}, {}, {})
            buffer = ChangeBuffer(folder, "", {table: key}, lambda *_: None, {}, {})
            for page in rows.pages:
                buffer.add_rows(table, rows.columns, page, rows.read_micros)
                if _is_full(buffer):
                    self._commit_segment(self._segment_with_rows(buffer, base_segment))
            last_segment = self._segment_with_rows(buffer, base_segment)
        resync = TableResync(first_number, last_segment.number, key, rows.snapshot, rows.end_lsn)
        columns = tuple(source_column.column for source_column in rows.columns)
        # Dropped columns are still on main: one that is added again has other values there than in the source.
        earlier_names = {
            *base_segment.dropped_columns.get(table, ()),
            *(column.name for column in base_segment.columns.get(table, ())),
        }
        dropped_columns = tuple(sorted(earlier_names - {column.name for column in columns}))
        return replace(
            last_segment,
            columns={**base_segment.columns, table: columns},
            dropped_columns={**base_segment.dropped_columns, table: dropped_columns},
            identities={**base_segment.identities, **with_dropped_columns(identities, {table: dropped_columns})},
            stopped={name: stop for name, stop in base_segment.stopped.items() if name != table},
            resyncs={**base_segment.resyncs, table: resync},
        )

    def _segment_with_rows(self, buffer: ChangeBuffer, base_segment: Segment) -> Segment:
        """Return the next segment, with the rows of the buffer."""
        files, number = buffer.finish_segment(), self._next_number()
        tables = self.journal.write_parts(base_segment.capture_id, number, files)
        for _, path, _, _ in files:
            path.unlink()
        return replace(base_segment, number=number, tables=tables)

    def _commit_segment(self, segment: Segment) -> None:
        """Commit a segment, and continue behind it."""
        # Checked before each segment: a reader must not continue a capture that was superseded.
        if self.journal.latest_capture_id() != segment.capture_id or not self.journal.commit_segment(segment):
            raise Busy(f"another reader reads the source {self.source.name}, or a new capture was requested")
        self._last_segment, self._spec = segment, self._spec.with_keys_at(segment)

    def _next_number(self) -> int:
        return self._last_segment.number + 1 if self._last_segment is not None else 1


def _first_error(stopped: Mapping[str, StoppedTable], errors: Mapping[str, SternaError], source: str) -> SternaError:
    """Return why the first table is stopped, where all of them are."""
    return next(iter(errors.values()), None) or next(
        stopped_table.to_error(name, source) for name, stopped_table in stopped.items()
    )


def _active_snapshots(last_segment: Segment | None) -> dict[str, PgSnapshot]:
    """Return the snapshots of tables that were read again, where earlier changes may still come."""
    if last_segment is None or last_segment.offset is None:
        return {}
    lsn = int(last_segment.offset.get("lsn_proc") or 0)
    return {
        name: PgSnapshot.parse(resync.snapshot)
        for name, resync in last_segment.resyncs.items()
        if lsn <= resync.end_lsn
    }


def _is_full(buffer: ChangeBuffer) -> bool:
    return buffer.rows >= MAX_SEGMENT_ROWS or buffer.bytes >= _MAX_SEGMENT_BYTES
