"""The status of sources, a check of their settings, and resync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sterna.errors import NotRead, SternaError, UnfitSource, UsageError
from sterna.pipelines.cdc.database import LogRetention, require_named_tables
from sterna.pipelines.cdc.journal import CaptureSpec, Segment
from sterna.pipelines.cdc.run import (
    min_applied_segment,
    read_main_tables,
    required_position,
    validate_log_retention,
    validate_own_rows,
    validate_read_age,
)
from sterna.pipelines.cdc.sources import SourceContext
from sterna.pipelines.ingest.step_context import require_classic
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked_by

_NOTHING_LEFT_OUT: Mapping[str, Any] = {"left": None, "new": (), "unfit": {}}


@dataclass(frozen=True)
class SourceCheck:
    """A source that can be followed.

    Args:
        tables: by `schema.table`, its key on `main`, and the columns of its key.
    """

    name: str
    tables: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class ResyncSummary:
    """A source that is to be read again.

    Args:
        name: its name.
        capture_id: the next capture id; of one table alone, the current one.
        asked: whether it was requested; False: a dry run.
        table: the one that alone is to be read again; "": all are.
    """

    name: str
    capture_id: int = field(metadata={"json": "epoch"})
    asked: bool
    table: str = ""


def read_sources(source_contexts: Sequence[SourceContext]) -> tuple[ReconcilerStatus, ...]:
    """Return the status of sources, each before those of its tables; an error of one doesn't hide the others.

    A position is `<capture id>/<segment>`: a source's is the end of its journal, a table's is what `main` has of it. A
    source's lag is the log that its reader hasn't read, a table's the segments of the current capture that it lacks.
    """
    return tuple(status for source_context in source_contexts for status in _source_statuses(source_context))


def check(source_context: SourceContext) -> SourceCheck:
    """See whether a source can be followed; changes nothing.

    Raises:
        UnfitSource: it can't.
        NeedsClassicSpark: the Spark that is to apply its changes is a Spark Connect server.
        DatabaseUnreachable, DatabaseRefused, CredentialError: it isn't available.
    """
    require_classic(source_context.context, source_context.ingest)
    with closing(source_context.database()) as database:
        tables = database.list_tables()
        require_named_tables(source_context.source, tables)
        database.jars()
    targets = tuple((name, source_context.target(name, key).key, key) for name, key in tables.items())
    for name, into, key in targets:
        if refusal := source_context.ingest.refusal(into):
            raise UnfitSource(refusal, table=into)
        target = source_context.target(name, key)
        validate_own_rows(source_context, target, source_context.read_table_state(target))
    for error in read_main_tables(source_context, tables).conflicts.values():
        raise error
    return SourceCheck(source_context.source.name, targets)


def resync(source_context: SourceContext, *, act: bool, table: str = "") -> ResyncSummary:
    """Request that a source, or one of its tables, is read again from all rows on.

    Args:
        act: do so; otherwise only plan.
        table: its `schema.table`; "": all of them.

    Raises:
        UsageError: it isn't a table that can be read again alone.
        StoreError: the inbox doesn't answer.
    """
    journal = source_context.journal
    latest_id = journal.latest_capture_id()
    spec = journal.read_spec(latest_id) if latest_id else None
    if table:
        last_segment = journal.last_segment(latest_id) if spec is not None else None
        _validate_table_resync(source_context, spec, last_segment, table)
        if act:
            journal.request_resync(latest_id, table)
        return ResyncSummary(source_context.source.name, latest_id, act, table)
    # No segment is read: a new capture is the remedy for one that is malformed.
    number = latest_id if latest_id and spec is None else latest_id + 1
    if act:
        journal.request_capture(number)
    return ResyncSummary(source_context.source.name, number, act)


def _validate_table_resync(
    source_context: SourceContext, spec: CaptureSpec | None, last_segment: Segment | None, table: str
) -> None:
    """See that one table of a source can be read again while the others go on.

    Raises:
        UsageError: it can't.
    """
    source = source_context.source
    hint = f"sterna cdc resync {source.name}, without --table"
    if not source.can_reload_single_table:
        raise UsageError(f"a table of a {source.kind} isn't read again alone", hint=hint)
    if spec is None or last_segment is None or last_segment.offset is None:
        raise UsageError(f"the first rows of {source.name} aren't complete: no table is read again alone before")
    if table not in spec.tables:
        raise UsageError(f"{source.name} follows no table {table}: {', '.join(sorted(spec.tables))}", hint=hint)


def _source_statuses(source_context: SourceContext) -> list[ReconcilerStatus]:
    source, journal = source_context.source, source_context.journal
    status = ReconcilerStatus("cdc source", source.name, f"{source.kind} → inbox", lag_unit="bytes of log")
    try:
        capture_id, spec, last_segment = journal.latest_capture()
        spec = spec.with_keys_at(last_segment) if spec is not None else None
        tables = table_statuses(source_context, spec, last_segment)
        last_read_at = journal.last_read_at(capture_id) if capture_id else None
    except SternaError as error:
        return [replace(status, conditions=(blocked_by(error),))]
    status = _add_journal(status, capture_id, last_segment, last_read_at)
    try:
        status, retention = _add_database(status, source_context, spec, last_segment)
        if retention is not None:
            validate_log_retention(source, retention)
        validate_read_age(source, last_read_at)
    except SternaError as error:
        alarm = blocked_by(error, since=last_read_at if isinstance(error, NotRead) else None)
        status = replace(status, conditions=(*status.conditions, alarm))
    return [status, *tables]


def _add_journal(
    status: ReconcilerStatus, capture_id: int, last_segment: Segment | None, last_read_at: datetime | None
) -> ReconcilerStatus:
    number, committed_micros = (last_segment.number, last_segment.committed_micros) if last_segment else (0, 0)
    details = {"committed": committed_micros, "read": last_read_at, **_NOTHING_LEFT_OUT}
    if not capture_id:
        begin = Condition(ConditionType.PROGRESSING, "NotBegun", "not begun")
        return replace(status, conditions=(begin,), details=details)
    until = datetime.fromtimestamp(committed_micros / 1_000_000, UTC).isoformat(timespec="seconds")
    message = f"capture {capture_id}, {number} segments, up to {until if committed_micros else 'its beginning'}"
    has_all_rows = last_segment is not None and last_segment.offset is not None
    progress = (
        Condition(ConditionType.READY, "Following", message)
        if has_all_rows
        else Condition(ConditionType.PROGRESSING, "Copying", message)
    )
    return replace(status, position=f"{capture_id}/{number}", conditions=(progress,), details=details)


def _add_database(
    status: ReconcilerStatus, source_context: SourceContext, spec: CaptureSpec | None, last_segment: Segment | None
) -> tuple[ReconcilerStatus, LogRetention | None]:
    """Return a status with the tables that aren't captured and the log that wasn't read, and that log.

    Raises:
        UnfitSource: the source can't be followed, or a captured table can't any more.
    """
    captured = spec.tables if spec is not None else {}
    conflicts: dict[str, UnfitSource] = {}
    with closing(source_context.database()) as database:
        available = database.list_tables(conflicts, captured)
        new_tables = {name: key for name, key in available.items() if spec is not None and name not in captured}
        conflicts |= read_main_tables(source_context, new_tables).conflicts
        retention = None
        if spec is not None and last_segment is not None and last_segment.offset is not None:
            retention = database.log_retention(last_segment)
            followed = {table: key for table, key in captured.items() if table not in last_segment.stopped}
            database.validate_not_recreated(spec.id, list(followed))
            if unfit_captured := sorted(set(followed) & set(conflicts)):
                raise conflicts[unfit_captured[0]]
            database.identities(followed, last_segment.identities, {})
    return _add_left_out(status, sorted(new_tables.keys() - conflicts.keys()), conflicts, retention), retention


def _add_left_out(
    status: ReconcilerStatus, new: Sequence[str], conflicts: Mapping[str, UnfitSource], retention: LogRetention | None
) -> ReconcilerStatus:
    unfit = {table: conflicts[table].message for table in sorted(conflicts)}
    notes = [("NewTable", f"{table} is new: captured after sterna cdc resync {status.name}") for table in new]
    notes += [(UnfitSource.__name__, f"{table} can't be captured: {reason}") for table, reason in unfit.items()]
    seconds_left = retention.seconds_left if retention is not None else None
    left = None if seconds_left is None else int(seconds_left)
    return replace(
        status,
        lag=retention.retained_bytes if retention is not None else None,
        conditions=(*status.conditions, *(Condition(ConditionType.READY, *note) for note in notes)),
        details={**status.details, "left": left, "new": new, "unfit": unfit},
    )


def table_statuses(
    source_context: SourceContext, spec: CaptureSpec | None, last_segment: Segment | None
) -> list[ReconcilerStatus]:
    """Return the status of each table of a capture on `main`, up to the journal's last segment."""
    if spec is None:
        return []
    segments = (
        source_context.journal.segments(spec.id, min_applied_segment(source_context, spec))
        if last_segment is not None
        else []
    )
    return [_table_status(source_context, spec.id, last_segment, segments, *table) for table in spec.tables.items()]


def _table_status(
    source_context: SourceContext,
    capture_id: int,
    last_segment: Segment | None,
    segments: Sequence[Segment],
    name: str,
    key: tuple[str, ...],
) -> ReconcilerStatus:
    source, target = source_context.source, source_context.target(name, key)
    state = source_context.read_table_state(target)
    position, (applied_id, number) = source_context.applied_position(state), source_context.applied_segment(state)
    if last_segment is not None:
        applied_id, number = required_position(last_segment, name, (applied_id, number))
    after = number if applied_id == capture_id else 0
    stopped = last_segment.stopped.get(name) if last_segment is not None else None
    # Rows after its stop are never applied, nor are those of a capture whose initial rows were never complete.
    last_reachable = stopped.last if stopped is not None else segments[-1].number if segments else 0
    behind = sum(1 for segment in segments if after < segment.number <= last_reachable and name in segment.tables)
    if stopped is not None:
        condition = blocked_by(stopped.to_error(name, source.name, alone=source.can_reload_single_table))
    elif not position:
        condition = Condition(ConditionType.PROGRESSING, "Empty", "no row yet")
    elif behind:
        condition = Condition(ConditionType.PROGRESSING, "Behind", "behind")
    else:
        condition = Condition(ConditionType.READY, "Idle", "up to date")
    details = {"source": source.name, "table": name, "into": target.key}
    full_name, subject = f"{source.name}/{name}", f"{name} → {target.key}"
    return ReconcilerStatus("cdc table", full_name, subject, position, behind, "segments", (condition,), details)
