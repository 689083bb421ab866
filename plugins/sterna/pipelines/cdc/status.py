"""The status of sources, a check of their settings, and resync."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sterna.errors import LogKept, NeedsResync, NotRead, PurgeNear, SternaError, UnfitSource, UsageError
from sterna.pipelines.cdc.database import require_named_tables
from sterna.pipelines.cdc.journal import CaptureSpec, Segment
from sterna.pipelines.cdc.plan import channel, parse_position
from sterna.pipelines.cdc.run import (
    min_applied_segment,
    read_main_tables,
    require_classic,
    required_position,
    validate_log_retention,
    validate_own_rows,
    validate_read_age,
)
from sterna.pipelines.cdc.sources import SourceContext

_ALARM_NAMES: dict[type[SternaError], str] = {
    LogKept: "log_alarm",
    PurgeNear: "purge_alarm",
    NotRead: "read_alarm",
}


@dataclass(frozen=True)
class TableStatus:
    """The status of a table.

    Args:
        table: its `schema.table`.
        into: its key on `main`.
        position: what is applied, `<capture id>/<number>`; "": none.
        behind: segments of the current capture that it lacks.
        problem: why it is stopped; "": it isn't.
    """

    table: str
    into: str
    position: str = field(metadata={"json": "mark"})
    behind: int
    problem: str = ""


@dataclass(frozen=True)
class SourceStatus:
    """The status of a source.

    Args:
        name: its name.
        capture_id: the current capture id; 0: none.
        segments: those of that capture in the journal.
        committed: when the source committed the last of them, microseconds since 1970; 0: nothing yet.
        read: when it was last read, or a capture requested; None: never.
        kept: bytes of log that the source retains for the reader; None: unknown.
        left: seconds until the source purges unread log; None: it isn't near.
        alarm: the limit that is exceeded, `log_alarm`, `purge_alarm` or `read_alarm`; "": none.
        tables: each of them.
        new: tables of the source that match the settings, and are captured from the next resync on.
        unfit: those that match and can't be followed, and why.
        problem: why it isn't followed; "": it is.
        exit_code: what a command ends with.
    """

    name: str
    capture_id: int = field(default=0, metadata={"json": "epoch"})
    segments: int = field(default=0, metadata={"json": "drops"})
    committed: int = 0
    read: datetime | None = None
    kept: int | None = None
    left: int | None = None
    alarm: str = ""
    tables: tuple[TableStatus, ...] = ()
    new: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    exit_code: int = 0


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


def read_sources(source_contexts: Sequence[SourceContext]) -> list[SourceStatus]:
    """Return the status of sources; an error of one doesn't hide the others."""
    return [_source_status(source_context) for source_context in source_contexts]


def check(source_context: SourceContext) -> SourceCheck:
    """See whether a source can be followed; changes nothing.

    Raises:
        UnfitSource: it can't.
        NeedsClassicSpark: the Spark that is to apply its changes is a Spark Connect server.
        DatabaseUnreachable, DatabaseRefused, CredentialError: it isn't available.
    """
    require_classic(source_context)
    database = source_context.database()
    try:
        tables = database.list_tables()
        require_named_tables(source_context.source, tables)
        database.jars()
    finally:
        database.close()
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
    latest_id = source_context.journal.latest_capture_id()
    spec = source_context.journal.read_spec(latest_id) if latest_id else None
    if table:
        _validate_table_resync(source_context, spec, table)
        if act:
            source_context.journal.request_resync(latest_id, table)
        return ResyncSummary(source_context.source.name, latest_id, act, table)
    number = latest_id if latest_id and spec is None else latest_id + 1
    if act:
        source_context.journal.request_capture(number)
    return ResyncSummary(source_context.source.name, number, act)


def _validate_table_resync(source_context: SourceContext, spec: CaptureSpec | None, table: str) -> None:
    """See that one table of a source can be read again while the others go on.

    Raises:
        UsageError: it can't.
    """
    source = source_context.source
    hint = f"sterna cdc resync {source.name}, without --table"
    if not source.can_reload_single_table:
        raise UsageError(f"a table of a {source.kind} isn't read again alone", hint=hint)
    last_segment = source_context.journal.last_segment(spec.id) if spec is not None else None
    if spec is None or last_segment is None or last_segment.offset is None:
        raise UsageError(f"the first rows of {source.name} aren't complete: no table is read again alone before")
    if table not in spec.tables:
        raise UsageError(f"{source.name} follows no table {table}: {', '.join(sorted(spec.tables))}", hint=hint)


def _source_status(source_context: SourceContext) -> SourceStatus:
    name = source_context.source.name
    try:
        capture_id = source_context.journal.latest_capture_id()
        spec = source_context.journal.read_spec(capture_id) if capture_id else None
        last_segment = source_context.journal.last_segment(capture_id) if spec is not None else None
        spec = spec.with_keys_at(last_segment) if spec is not None else None
        tables = table_statuses(source_context, spec, last_segment)
        last_read_at = source_context.journal.last_read_at(capture_id) if capture_id else None
    except SternaError as error:
        return SourceStatus(name, problem=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    progress = (last_segment.number, last_segment.committed_micros) if last_segment else (0, 0)
    code = NeedsResync.exit_code if any(table.problem for table in tables) else 0
    status = SourceStatus(name, capture_id, *progress, last_read_at, tables=tables, exit_code=code)
    database = source_context.database()
    try:
        conflicts: dict[str, UnfitSource] = {}
        available = database.list_tables(conflicts, spec.tables if spec is not None else ())
        new_tables = {name: key for name, key in available.items() if spec is not None and name not in spec.tables}
        conflicts |= read_main_tables(source_context, new_tables).conflicts
        new = tuple(sorted(new_tables.keys() - conflicts.keys()))
        unfit = tuple(sorted((table, error.message) for table, error in conflicts.items()))
        retention = None
        if spec is not None and last_segment is not None and last_segment.offset is not None:
            retention = database.log_retention(last_segment)
            captured = {table: key for table, key in spec.tables.items() if table not in last_segment.stopped}
            database.validate_not_recreated(capture_id, list(captured))
            if unfit_captured := sorted(set(captured) & set(conflicts)):
                raise conflicts[unfit_captured[0]]
            database.identities(captured, last_segment.identities, {})
    except SternaError as error:
        return replace(status, problem=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    finally:
        database.close()
    status = replace(status, new=new, unfit=unfit)
    if retention is not None:
        status = replace(
            status,
            kept=retention.retained_bytes,
            left=None if retention.seconds_left is None else int(retention.seconds_left),
        )
    try:
        if retention is not None:
            validate_log_retention(source_context.source, retention)
        validate_read_age(source_context.source, last_read_at)
    except (LogKept, PurgeNear, NotRead) as error:
        return replace(status, alarm=_ALARM_NAMES[type(error)], exit_code=error.exit_code)
    return status


def table_statuses(
    source_context: SourceContext, spec: CaptureSpec | None, last_segment: Segment | None
) -> tuple[TableStatus, ...]:
    """Return the position of each table of a capture on `main`, up to the journal's last segment."""
    if spec is None:
        return ()
    source_channel, statuses = channel(source_context.source.region, source_context.source.name), []
    segments = (
        source_context.journal.segments(spec.id, min_applied_segment(source_context, spec))
        if last_segment is not None
        else []
    )
    for name, key in spec.tables.items():
        target = source_context.target(name, key)
        applied_position = source_context.applied_position(source_context.read_table_state(target))
        applied_id, number = parse_position(applied_position, source_channel.name)
        if last_segment is not None:
            applied_id, number = required_position(last_segment, name, (applied_id, number))
        after = number if applied_id == spec.id else 0
        stopped_table = last_segment.stopped.get(name) if last_segment is not None else None
        # Rows after its stop are never applied, nor are those of a capture whose initial rows were never complete.
        last_reachable = stopped_table.last if stopped_table is not None else segments[-1].number if segments else 0
        behind = sum(1 for segment in segments if after < segment.number <= last_reachable and name in segment.tables)
        error = (
            stopped_table.to_error(name, source_channel.name, alone=source_context.source.can_reload_single_table)
            if stopped_table is not None
            else None
        )
        problem = f"{type(error).__name__}: {error}" if error is not None else ""
        statuses.append(TableStatus(name, target.key, applied_position, behind, problem))
    return tuple(statuses)
