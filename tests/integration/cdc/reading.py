"""A source that is read into its journal, without a Spark and a `main`: what came is folded here, row by row."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.change_buffer import ABSENT, OPERATION
from sterna.pipelines.cdc.journal import Journal, Segment, TableResync
from sterna.pipelines.cdc.sources import open_database
from tests.support.small_world import make_world

_TIMEOUT_SECONDS = 150.0  # seconds
# Rows that are looked for when a drop is written may have come before it, with a table that was read again: it isn't
# waited for as long as sources that nobody writes to are.
_IDLE_SECONDS = 2.0
Rows = dict[Any, dict[str, Any]]


@dataclass
class _Folded:
    """The rows of a journal up to a drop: all of them anew at each look would cost its square."""

    capture_id: int = 0
    resyncs: Mapping[str, TableResync] = field(default_factory=dict)
    number: int = 0
    tables: dict[str, Rows] = field(default_factory=dict)


@dataclass
class SourceReader:
    """A source, read by an engine of its own.

    Args:
        source: its settings.
        folder: where its journal is.
        stops: tables that may be stopped: another that is raises.
        max_restarts: as of `Capture`.
    """

    source: CdcSource
    folder: Path
    stops: tuple[str, ...] = ()
    max_restarts: int = 5
    journal: Journal = field(init=False)
    _capture: Capture | None = None
    _folded: _Folded = field(default_factory=_Folded)

    def __post_init__(self) -> None:
        objects = make_world(self.folder).context().objects
        self.journal = Journal(objects, f"file://{self.folder}/eu/lake/inbox", self.source.name)
        self.objects = objects

    def until(self, done: Callable[[Mapping[str, Rows]], bool]) -> Mapping[str, Rows]:
        """Read until the rows are so; the engine goes on in the next call."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < end:
            if self._capture is None:
                database = open_database(self.source, environment_secrets())
                self._capture = Capture(
                    self.source, database, self.journal, idle_seconds=_IDLE_SECONDS, max_restarts=self.max_restarts
                )
            has_written = self._capture.step(0.5)
            last = self.journal.last_segment(self.journal.latest_capture_id()) if has_written else None
            for table, stop in last.stopped.items() if last else ():
                if table not in self.stops:
                    raise stop.to_error(table, self.source.name)
            if has_written and done(rows := self.rows()):
                return rows
        raise AssertionError(f"not so after {_TIMEOUT_SECONDS} s: {self.rows()}")

    def last(self) -> Segment:
        """The last drop."""
        drop = self.journal.last_segment(self.journal.latest_capture_id())
        assert drop is not None
        return drop

    @property
    def engine_pid(self) -> int | None:
        """The engine's process."""
        return self._capture.pid if self._capture is not None else None

    def restart(self) -> None:
        """End the engine; the next call starts another behind the last drop."""
        if self._capture is not None:
            self._capture.close()
            self._capture.database.close()
            self._capture = None

    def rows(self) -> Mapping[str, Rows]:
        """What the journal says of each table, by its column `id`."""
        newest = self.journal.latest_capture_id()
        folded = self._folded if self._folded.capture_id == newest else _Folded(newest)
        drops = self.journal.segments(newest, folded.number) if newest else []
        if drops and drops[-1].resyncs != folded.resyncs:
            folded, drops = _Folded(newest, drops[-1].resyncs), self.journal.segments(newest)
        self._folded = folded
        for drop in drops:
            self._fold(folded, drop)
        return {table: dict(rows) for table, rows in folded.tables.items()}

    def _fold(self, folded: _Folded, drop: Segment) -> None:
        folded.number = drop.number
        for table, parts in drop.tables.items():
            rows = folded.tables.setdefault(table, {})
            if table in folded.resyncs and drop.number < folded.resyncs[table].first:
                continue  # all of its rows come again
            for part in parts:
                for row in pq.read_table(io.BytesIO(self.objects.read(part.uri))).to_pylist():
                    _apply_row(rows, row)


def _apply_row(rows: Rows, row: dict[str, Any]) -> None:
    columns = {name: value for name, value in row.items() if not name.startswith("_sterna_")}
    if row[OPERATION] == "u":
        rows[row["id"]] = {**rows.get(row["id"], {}), **{k: v for k, v in columns.items() if k not in row[ABSENT]}}
    elif row[OPERATION] == "d":
        rows.pop(row["id"], None)
    else:
        rows.clear()
