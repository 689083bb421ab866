"""Runs the sources of a region: each is read continuously, and what was read is applied table by table, in turns."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sterna.config.sections.cdc import CdcSource
from sterna.errors import (
    LogKept,
    NotRead,
    PurgeNear,
    Remedy,
    SourceUnreachable,
    SternaError,
    UnfitSource,
)
from sterna.pipelines.cdc.capture import Capture, MainTables
from sterna.pipelines.cdc.database import LogRetention, SourceDatabase, collect_unfit
from sterna.pipelines.cdc.journal import CaptureSpec, Segment
from sterna.pipelines.cdc.plan import Target, Work, next_work
from sterna.pipelines.cdc.sources import SourceContext
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.step_context import open_catalog
from sterna.pipelines.publish.model import Channel, SnapshotState, TableState
from sterna.pipelines.publish.protocol import PublishOutcome
from sterna.runtime.failures import Failures, unexpected_error
from sterna.runtime.reconciler import Idle, Reconciler, reconcile
from sterna.runtime.runner import MAX_STEPS, RunSummary
from sterna.storage.objects import Objects

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_MAX_COMPACTION_BACKOFF = 6  # doublings of the steps between two attempts that fail
_MAX_REPEATED_ENDS = 3  # failures of an engine with the same message, after which it isn't started again


@dataclass(frozen=True)
class TableStep:
    """A step that was published on `main`.

    Args:
        source: the source's name.
        table: the table's key on `main`.
        position: of the table since then.
        snapshot: that has its rows; None: no row changed.
        origin: the table's name at the source, `schema.table`.
    """

    source: str
    table: str
    position: str
    snapshot: int | None
    origin: str = ""


@dataclass(frozen=True)
class CaptureSummary(RunSummary[TableStep]):
    """What a run did.

    Args:
        segments: how many were committed to the journals.
    """

    segments: int = 0

    def fields(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {"segments": self.segments, **super().fields()}


class TableReconciler(Reconciler["TableState | None", Work, TableStep]):
    """Brings one table on `main` up to the journal of its source.

    Args:
        source_context: the source.
        target: the table.
        spec: the source's capture.
        segments: those of the journal that some table lacks.
        publish: applies work to the table.
    """

    def __init__(
        self,
        source_context: SourceContext,
        target: Target,
        spec: CaptureSpec,
        segments: Sequence[Segment],
        publish: Callable[[Target, Work], PublishOutcome],
    ) -> None:
        self.name = f"{source_context.source.name}: {target.name}"
        self.stopped_table = segments[-1].stopped.get(target.name) if segments else None
        self._source_context, self._target, self._spec, self._publish = source_context, target, spec, publish
        self._resync = segments[-1].resyncs.get(target.name) if segments else None
        stopped = self.stopped_table
        self._segments = [segment for segment in segments if stopped is None or segment.number <= stopped.last]
        self.is_ended = stopped is not None and not self._segments

    def observe(self, previous: TableState | None = None) -> TableState | None:
        """Return the table's state on `main`; None: it doesn't exist.

        Raises:
            CatalogError, StoreError: a dependency isn't available.
        """
        return self._source_context.read_table_state(self._target)

    def decide(self, state: TableState | None) -> Work | Idle:
        """Return the table's next step.

        Raises:
            UnfitSource: the region may not write to it, or it has rows of others.
        """
        source_context, target = self._source_context, self._target
        if refusal := source_context.ingest.refusal(target.key):
            raise UnfitSource(refusal, table=target.key)
        validate_own_rows(source_context, target, state)
        validate_writer(source_context, target, state)
        work = next_work(
            source_context.channel,
            target.name,
            source_context.applied_position(state),
            self._spec.id,
            self._segments,
            is_empty=state is None or state.current is None,
            is_stopped=self.stopped_table is not None,
            resync=self._resync,
        )
        return work or Idle("up to date")

    def apply(self, state: TableState | None, work: Work) -> TableStep:
        """Publish the step's changes on `main`.

        Raises:
            SternaError: as `sterna.pipelines.cdc.apply.apply`.
        """
        outcome = self._publish(self._target, work)
        source, target = self._source_context.source, self._target
        return TableStep(source.name, target.key, work.step.position, outcome.snapshot, target.name)

    def summarize(self, result: TableStep) -> str:
        """Return how far the table is."""
        return f"{result.source}: {result.table} is at {result.position}, snapshot {result.snapshot}"


def _apply(catalog: RegionalIcebergCatalog, objects: Objects, target: Target, work: Work) -> PublishOutcome:
    from sterna.pipelines.cdc.apply import apply

    return apply(catalog, objects, target, work)


def _compact(catalog: RegionalIcebergCatalog, target: Target) -> None:
    from sterna.pipelines.cdc.apply import compact

    compact(catalog, target)


@dataclass
class CompactionQueue:
    """The tables that have had a step since they were looked at for compaction.

    One whose compaction failed is looked at after twice as many steps each time, up to 64.
    """

    _waiting: dict[str, Target] = field(default_factory=dict)
    _steps: Counter[str] = field(default_factory=Counter)
    _failures: Counter[str] = field(default_factory=Counter)

    def add_step(self, target: Target) -> None:
        """Count a step of a table."""
        self._steps[target.key] += 1
        if self._steps[target.key] >= 2 ** min(self._failures[target.key], _MAX_COMPACTION_BACKOFF):
            self._waiting.setdefault(target.key, target)

    def compact_next(self, compact: Callable[[Target], object]) -> None:
        """Compact the table that has waited longest, if that is due; where it fails, the log says why."""
        if not self._waiting:
            return
        target = self._waiting.pop(next(iter(self._waiting)))
        del self._steps[target.key]
        try:
            compact(target)
        except SternaError as error:
            self._failures[target.key] += 1
            log.warning("%s isn't compacted: %s", target.key, error)
        else:
            del self._failures[target.key]


@dataclass
class CaptureRunner:
    """Follows sources.

    Args:
        sources: those to follow.
        report_progress: called with lines of text.
        open_capture: opens a reader of a source, as `Capture` does.
        apply_work: applies work to a table, as `apply` does.
        compact_table: compacts a table if that is due, as `compact` does.
        pause_seconds: before a source that failed is read again.
        max_cached_segments: above which those that all tables have are evicted.

    Attributes:
        failures: the last error, by source and activity.
    """

    sources: Sequence[SourceContext]
    report_progress: Callable[[str], object]
    open_capture: Callable[..., Capture] = Capture
    apply_work: Callable[..., PublishOutcome] = _apply
    compact_table: Callable[[RegionalIcebergCatalog, Target], object] = _compact
    pause_seconds: float = 5.0
    max_cached_segments: int = 1_000
    _segment_count: int = 0
    _steps: deque[TableStep] = field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    _counts: Counter[str] = field(default_factory=Counter)
    _compactions: CompactionQueue = field(default_factory=CompactionQueue)
    _engine_failures: dict[str, tuple[str, int]] = field(default_factory=dict)
    _segment_cache: dict[str, tuple[int, list[Segment]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _due: threading.Event = field(default_factory=threading.Event)
    _finishing: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Begin without an error."""
        self.failures = Failures(self.report_progress)

    def run(self, seconds: float) -> CaptureSummary:
        """Read and apply for some seconds; then apply the rest of the journal, except where that fails.

        Initial rows are read to their end, however long that takes: otherwise they would start over.
        """
        readers = [
            threading.Thread(target=self.read, args=(source_context,), daemon=True) for source_context in self.sources
        ]
        end = time.monotonic() + seconds
        try:
            for reader in readers:
                reader.start()
            with _open_catalog(self.sources) as catalog:
                while time.monotonic() < end and not self._finishing.is_set():
                    self._due.clear()
                    if not self.apply(catalog):
                        self._due.wait(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
                self.finish()
                for reader in readers:
                    reader.join()
                while not self._stopped.is_set() and self.apply(catalog):
                    pass
            for source_context in self.sources:
                if self.failures.get(f"{source_context.source.name}: reading") is None:
                    self._check_log_retention(source_context)
        finally:
            self.stop()
            for reader in readers:
                reader.join()
        errors = self.failures.snapshot()
        return CaptureSummary(tuple(self._steps), {}, errors, self._counts, segments=self._segment_count)

    def finish(self) -> None:
        """Let `run` end once pending initial rows are read and everything is applied."""
        self._finishing.set()
        self._due.set()

    def stop(self) -> None:
        """Let `run` end now."""
        self._stopped.set()
        self.finish()

    def read(self, source_context: SourceContext) -> None:
        """Read one source into its journal until the run ends, or until an error that no retry cures."""
        activity = f"{source_context.source.name}: reading"
        while not self._finishing.is_set():
            try:
                self._read(source_context, activity)
            except SternaError as error:
                self.failures.record(activity, error)
                if error.remedy is not Remedy.RETRY:
                    return
            except Exception as error:
                log.exception("source %s can't be read", source_context.source.name)
                self.failures.record(activity, unexpected_error(error))
                return
            self._finishing.wait(self.pause_seconds)

    def _read(self, source_context: SourceContext, activity: str) -> None:
        name, read_tables = source_context.source.name, partial(read_main_tables, source_context)
        with closing(source_context.database()) as database, ExitStack() as opened:
            capture = self.open_capture(source_context.source, database, source_context.journal, read_tables)
            opened.callback(capture.close)
            try:
                self._read_segments(name, capture, activity)
            except SternaError as error:
                raise self._escalate_if_repeated(name, database, error) from error

    def _read_segments(self, name: str, capture: Capture, activity: str) -> None:
        while not self._finishing.is_set() or (capture.is_beginning and not self._stopped.is_set()):
            written = capture.step(_POLL_SECONDS)
            if capture.has_output:  # an engine that fails right after its start has not recovered
                self.failures.clear(activity)
            if written:
                self._engine_failures.pop(name, None)
                with self._lock:
                    self._segment_count += written
                self._due.set()

    def _escalate_if_repeated(self, name: str, database: SourceDatabase, error: SternaError) -> SternaError:
        """Return the error, or UnfitSource where the engine fails repeatedly although the source answers."""
        if not isinstance(error, SourceUnreachable):
            return error
        message = re.sub(r"[0-9]+", "#", error.message)  # positions, ports and times differ
        last_message, count = self._engine_failures.get(name, ("", 0))
        count = count + 1 if last_message == message else 1
        self._engine_failures[name] = message, count
        if count < _MAX_REPEATED_ENDS:
            return error
        try:
            tables = database.list_tables({})  # a table that can't be followed isn't the cause
        except SternaError as reason:
            return reason if reason.remedy is not Remedy.RETRY else error
        named_tables = [
            table for table in tables if re.search(rf"(?<![\w$]){re.escape(table)}(?![\w$])", error.message)
        ]
        return UnfitSource(
            f"the source answers, and the engine has ended {count} times at the same place: {error.message}",
            table=(named_tables or [""])[0],
            hint=f"leave out of `tables` what it names, then sterna cdc resync {name}",
        )

    def apply(self, catalog: RegionalIcebergCatalog) -> bool:
        """Take one step for each table that has one, and compact one at most; return whether there was a step."""
        stepped = sum(self._apply_source(catalog, source_context) for source_context in self.sources) > 0
        # Behind all tables' steps: it takes a second, which adds to the lag of what comes after it.
        self._compactions.compact_next(partial(self.compact_table, catalog))
        return stepped

    def _apply_source(self, catalog: RegionalIcebergCatalog, source_context: SourceContext) -> bool:
        name, stepped = source_context.source.name, False
        with self.failures.recorded(f"{name}: applying"):
            spec, segments = self.load_segments(source_context)
            last_segment = segments[-1] if segments else None
            for table, key in spec.with_keys_at(last_segment).tables.items() if spec else ():
                assert spec is not None
                target = source_context.target(table, key)
                reconciler = TableReconciler(
                    source_context,
                    target,
                    spec,
                    segments,
                    partial(self.apply_work, catalog, source_context.ingest.objects),
                )
                with self.failures.recorded(reconciler.name):
                    if self._apply_next(reconciler):
                        stepped = True
                        self._compactions.add_step(target)
                    if (stopped := reconciler.stopped_table) is not None:
                        raise stopped.to_error(table, name, alone=source_context.source.can_reload_single_table)
        return stepped

    def _apply_next(self, reconciler: TableReconciler) -> bool:
        if reconciler.is_ended:
            return False
        try:
            outcome = reconcile(reconciler)
        except SternaError as error:
            if reconciler.stopped_table is None:
                raise
            log.warning("%s: %s", reconciler.name, error)  # its stop needs an operator, and goes first
            return False
        if isinstance(outcome, Idle):
            return False
        self._steps.append(outcome)
        self._counts[reconciler.name] += 1
        self.report_progress(reconciler.summarize(outcome))
        return True

    def load_segments(self, source_context: SourceContext) -> tuple[CaptureSpec | None, list[Segment]]:
        """Return a source's current capture, and its segments that some table lacks."""
        capture_id = source_context.journal.latest_capture_id()
        spec = source_context.journal.read_spec(capture_id) if capture_id else None
        if spec is None:
            return None, []
        cached_id, segments = self._segment_cache.get(source_context.source.name, (0, []))
        if cached_id != capture_id:
            segments = []
        if len(segments) > self.max_cached_segments:
            segments = _required_segments(segments, min_applied_segment(source_context, spec))
        # Includes the last one that all tables have: its columns show which tables had no row until then.
        after = segments[-1].number if segments else max(0, min_applied_segment(source_context, spec) - 1)
        segments = [*segments, *source_context.journal.segments(capture_id, after)]
        if segments and segments[0].number > 1 and any(segment.complete for segment in segments[1:]):
            segments = source_context.journal.segments(capture_id)  # some table has a part of its initial rows
        self._segment_cache[source_context.source.name] = capture_id, segments
        return spec, segments

    def _check_log_retention(self, source_context: SourceContext) -> None:
        """Record an alarm where the source retains too much log: its disk is at stake."""
        source = source_context.source
        try:
            _, _, last_segment = source_context.journal.latest_capture()
            if last_segment is not None and last_segment.offset is not None:
                with closing(source_context.database()) as database:
                    validate_log_retention(source, database.log_retention(last_segment))
        except SternaError as error:
            self.failures.record(f"{source.name}: log", error)


def validate_log_retention(source: CdcSource, retention: LogRetention) -> None:
    """Validate that a source neither retains too much unread log, nor purges it soon.

    Raises:
        LogKept, PurgeNear: it does.
    """
    if retention.seconds_left is not None and retention.seconds_left < source.purge_alarm:
        reason = f"the source purges log that was not read in {max(0, int(retention.seconds_left))} s"
        raise PurgeNear(f"{reason}, and purge_alarm is {source.purge_alarm} s", hint="see PurgeNear in the run book")
    if retention.retained_bytes > source.log_alarm:
        reason = f"the source keeps {retention.retained_bytes} bytes of log for its reader"
        raise LogKept(f"{reason}, and log_alarm is {source.log_alarm}", hint="see LogKept in the run book")


def validate_read_age(source: CdcSource, last_read_at: datetime | None) -> None:
    """Validate that a source was read recently.

    Args:
        last_read_at: when it was last read; None: never.

    Raises:
        NotRead: it wasn't.
    """
    if last_read_at is None:
        raise NotRead("no reader has begun to read the source", hint="see NotRead in the run book")
    if (age := (datetime.now(UTC) - last_read_at).total_seconds()) > source.read_alarm:
        reason = f"not read since {last_read_at:%Y-%m-%dT%H:%M:%SZ}, {int(age)} s ago, and read_alarm is"
        raise NotRead(f"{reason} {source.read_alarm} s", hint="see NotRead in the run book")


def min_applied_segment(source_context: SourceContext, spec: CaptureSpec) -> int:
    """Return the number of the last segment of a capture that all tables have, except those that need no more.

    A table without a row yet lacks none.
    """
    last_segment = source_context.journal.last_segment(spec.id)
    positions = {
        name: source_context.applied_segment(source_context.read_table_state(source_context.target(name, key)))
        for name, key in spec.tables.items()
    }
    if last_segment is not None:
        positions = {
            name: position
            for name, position in positions.items()
            if not _is_applied_to_stop(last_segment, name, position)
        }
        if not positions:
            return last_segment.number
        positions = {name: required_position(last_segment, name, position) for name, position in positions.items()}
    unapplied = [name for name, position in positions.items() if position == (0, 0)]
    applied = min(
        (number if capture_id == spec.id else 0 for capture_id, number in positions.values() if capture_id), default=0
    )
    if not unapplied:
        return applied
    applied_segment = source_context.journal.segment(spec.id, applied) if applied else None
    has_rows = applied_segment is None or any(name in applied_segment.columns for name in unapplied)
    return 0 if has_rows else applied


def _is_applied_to_stop(last_segment: Segment, table: str, position: tuple[int, int]) -> bool:
    """Return whether a table is stopped, and all segments before its stop are applied.

    Args:
        last_segment: of the capture.
        table: its `schema.table`.
        position: of the table.
    """
    stopped_table = last_segment.stopped.get(table)
    if stopped_table is None:
        return False
    capture_id, number = position
    if not capture_id and table not in last_segment.columns:
        return True  # it never had a row
    return (number if capture_id == last_segment.capture_id else 0) >= stopped_table.last


def required_position(last_segment: Segment, table: str, position: tuple[int, int]) -> tuple[int, int]:
    """Return the position behind which a table needs segments: after a resync, those since then."""
    resync = last_segment.resyncs.get(table)
    if resync is None or (position[0] == last_segment.capture_id and position[1] >= resync.last):
        return position
    return last_segment.capture_id, resync.first - 1


def read_main_tables(source_context: SourceContext, tables: Mapping[str, Sequence[str]]) -> MainTables:
    """Return the state of a source's tables on `main` before a capture begins.

    Args:
        tables: by `schema.table`, the columns of its key.
    """
    latest_capture_id, conflicts = 0, dict[str, UnfitSource]()
    for name, key in tables.items():
        target = source_context.target(name, key)
        state = source_context.read_table_state(target)
        latest_capture_id = max(latest_capture_id, source_context.applied_segment(state)[0])
        with collect_unfit(conflicts, name):
            validate_writer(source_context, target, state)
    return MainTables(latest_capture_id, conflicts)


def validate_own_rows(source_context: SourceContext, target: Target, state: TableState | None) -> None:
    """Validate that a table on `main` that has rows has a position of the source.

    Raises:
        UnfitSource: its rows were written by others.
    """
    if state is not None and state.current is not None and not source_context.applied_position(state):
        raise UnfitSource(
            f"the table has rows, and they aren't those of source {source_context.source.name}",
            table=target.key,
            hint="name another namespace, or drop the table",
        )


def validate_writer(source_context: SourceContext, target: Target, state: TableState | None) -> None:
    """Validate that the rows on `main` are of the same table of the source, not of one in another schema.

    The source's newest snapshot names the table that wrote it. If all of them are expired, the journal has the tables
    of the capture that the position names. Where both are gone, only a source of one schema is unambiguous.

    Raises:
        UnfitSource: another table wrote them, or the writer is unknown.
    """
    if state is None or not source_context.applied_position(state):
        return
    writers = (_writing_table(snapshot, source_context.channel) for snapshot in state.ancestors)
    writer = next(filter(None, writers), "")
    if not writer:
        spec = source_context.journal.read_spec(source_context.applied_segment(state)[0])
        same_name = [table for table in spec.tables if _table_name(table) == _table_name(target.name)] if spec else []
        is_one_schema = len({pattern.partition(".")[0] for pattern in source_context.source.tables}) == 1
        writer = (same_name or [target.name if is_one_schema else "a table that is no longer recorded"])[0]
    if writer != target.name:
        source_name = source_context.source.name
        raise UnfitSource(
            f"the rows of {target.key} on main are of {writer}, which has the same name in another schema",
            table=target.name,
            hint=f"leave it out of `tables`; or drop {target.key} on main, then sterna cdc resync {source_name}",
        )


def _writing_table(snapshot: SnapshotState, source_channel: Channel) -> str:
    """Return the source's table that wrote a snapshot; "": none."""
    id = snapshot.wap_id or snapshot.published_wap_id
    return id.removeprefix(f"{source_channel}/").rpartition("/")[0] if id.startswith(f"{source_channel}/") else ""


def _table_name(table: str) -> str:
    return table.partition(".")[2]


def _required_segments(segments: list[Segment], applied: int) -> list[Segment]:
    """Return the segments that are still required once all tables have applied one of them.

    Those with initial rows are required until every table has all of them: rows that they lack are deleted then.
    """
    complete = next((segment.number for segment in segments if segment.complete), 0)
    return segments if applied < complete else [segment for segment in segments if segment.number >= applied]


@contextmanager
def _open_catalog(source_contexts: Sequence[SourceContext]) -> Iterator[RegionalIcebergCatalog]:
    from sterna.pipelines.cdc.apply import CATALOG

    first_source = source_contexts[0]
    with open_catalog(first_source.context, first_source.ingest, "sterna-cdc") as catalog:
        catalog.register_in_sql(CATALOG)
        yield catalog
