"""The status of transforms, and a check of their definitions; both only read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sterna.config.sections.transforms import Transform
from sterna.errors import EngineError, SternaError, TableGone
from sterna.pipelines.transforms.decide import Work, is_sql_changed
from sterna.pipelines.transforms.failure import failure_condition, failure_text, format_reason, read_failure
from sterna.pipelines.transforms.observe import FlowState, next_step, read_flow_state, read_source
from sterna.pipelines.transforms.run import read_sql
from sterna.pipelines.transforms.sql_plan import validate_sql
from sterna.pipelines.transforms.step_context import FlowSpark
from sterna.pipelines.transforms.write import FlowWriter
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked_by
from sterna.sql_identifiers import quote_backtick

log = logging.getLogger(__name__)
_SQL_CHANGED: Final = "; its SQL was changed since its last rows: sterna transforms rebuild makes all by the new one"


@dataclass(frozen=True)
class FlowCheck:
    """The result of a transform's check.

    Args:
        transform: its name.
        fault: why it can't run; "": it can.
        create: a statement that creates the target, if it doesn't exist.
        exit_code: of the command.
    """

    transform: str = field(metadata={"json": "flow"})
    fault: str = ""
    create: str = ""
    exit_code: int = 0


def read_flows(
    context: RegionContext, flows: Sequence[Transform], folder: Path, *, now: datetime | None = None
) -> tuple[ReconcilerStatus, ...]:
    """Return the status of transforms, without Spark; an error of one is a condition of it.

    A position is that of the target, and a lag the number of snapshots of the source that the target lacks.

    Args:
        folder: of the services file.
        now: the time; by default the clock's.
    """
    return tuple(_status(context, flow, folder, now or datetime.now(UTC)) for flow in flows)


def _status(context: RegionContext, flow: Transform, folder: Path, now: datetime) -> ReconcilerStatus:
    details = {"source": flow.source, "into": flow.into, "mode": str(flow.mode)}
    subject = f"{flow.source} → {flow.into}, {flow.mode}"
    status = ReconcilerStatus("transform", flow.name, subject, lag_unit="snapshots", details=details)
    try:
        flow_state = read_flow_state(context, flow)
        current = flow_state.source.current if flow_state.source else None
        status = replace(status, position=flow_state.applied_position(flow), details={**details, "current": current})
        return _add_progress(context, flow, folder, now, flow_state, status)
    except SternaError as error:
        note = _rebuild_note(context, flow, status.position, now)
        return replace(status, conditions=(blocked_by(error, f"{type(error).__name__}: {error}{note}"),))
    except Exception as error:
        # An unexpected error of one transform must not hide the others.
        log.exception("the status of transform %s is unknown", flow.name)
        message = f"{type(error).__name__}: {format_reason(error)}"
        return replace(status, conditions=(blocked_by(EngineError(type(error).__name__), message),))


def _add_progress(
    context: RegionContext,
    flow: Transform,
    folder: Path,
    now: datetime,
    flow_state: FlowState,
    status: ReconcilerStatus,
) -> ReconcilerStatus:
    """Return a status with the transform's lag, and its failure; if it is up to date, only a rebuild's failure.

    Raises:
        SternaError: it is stopped, or its SQL or its failure can't be read.
    """
    work, sql = next_step(context, flow, flow_state), read_sql(flow, folder)
    changed = _SQL_CHANGED if is_sql_changed(flow, flow_state.target, sql) else ""
    if isinstance(work, Idle):
        progress, lag = Condition(ConditionType.READY, "Idle", work.reason), 0
    else:
        progress, lag = Condition(ConditionType.PROGRESSING, "Behind", "behind"), _count_behind(flow_state, work)
    failure = read_failure(context, flow.name, status.position)
    if failure is None or (isinstance(work, Idle) and not failure.rebuild):
        conditions: tuple[Condition, ...] = (progress,)
    elif isinstance(work, Idle):
        conditions = (progress, failure_condition(failure, now))
    else:
        conditions = (failure_condition(failure, now),)
    last = replace(conditions[-1], message=f"{conditions[-1].message}{changed}")
    return replace(status, lag=lag, conditions=(*conditions[:-1], last))


def _rebuild_note(context: RegionContext, flow: Transform, applied_position: str, now: datetime) -> str:
    """Return a note about a rebuild of a stopped transform."""
    try:
        failure = read_failure(context, flow.name, applied_position)
    except SternaError:
        return ""  # the transform is reported as an alarm in any case
    return f"; {failure_text(failure, now)}" if failure is not None and failure.rebuild else ""


def _count_behind(flow_state: FlowState, work: Work) -> int:
    lineage = [snapshot.id for snapshot in flow_state.source.ancestors] if flow_state.source else []
    return len(lineage) if work.start is None else lineage.index(work.start)


def check_flows(context: RegionContext, flows: Sequence[Transform], folder: Path) -> tuple[FlowCheck, ...]:
    """Check transforms by their SQL, their source and their target, without changes.

    Args:
        folder: of the services file.
    """
    flow_spark = FlowSpark()
    try:
        return tuple(_check_flow(context, flow, folder, flow_spark) for flow in flows)
    finally:
        flow_spark.close()


def _check_flow(context: RegionContext, flow: Transform, folder: Path, flow_spark: FlowSpark) -> FlowCheck:
    try:
        create = _check_sql(context, flow, read_sql(flow, folder), flow_spark)
    except SternaError as error:
        return FlowCheck(flow.name, f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    except Exception as error:
        # An unexpected error of one must not end the check of the other transforms.
        log.exception("transform %s can't be checked", flow.name)
        return FlowCheck(flow.name, f"{type(error).__name__}: {format_reason(error)}", exit_code=EngineError.exit_code)
    if create:
        return FlowCheck(flow.name, f"there is no table {flow.into} on main yet", create, TableGone.exit_code)
    return FlowCheck(flow.name)


def _check_sql(context: RegionContext, flow: Transform, sql: str, flow_spark: FlowSpark) -> str:
    try:
        flow_state, has_target = read_flow_state(context, flow), True
        source, metadata = flow_state.source, flow_state.metadata
    except TableGone as error:
        if error.table != flow.into:
            raise
        source, metadata = read_source(context, flow)
        has_target = False
    if source is None or source.current is None:
        raise TableGone("this region's replica has no rows of the source yet", table=flow.source)
    with flow_spark.open_step(context, flow, metadata) as step_context:
        if has_target:
            _check_step(context, flow, flow_state, FlowWriter(step_context, flow, sql), source.current)
            return ""
        columns = validate_sql(step_context.spark, flow, sql, step_context.read_source(source.current).schema, None)
    return create_statement(flow, [(column.name, column.dataType.simpleString()) for column in columns.fields])


def _check_step(context: RegionContext, flow: Transform, flow_state: FlowState, writer: FlowWriter, end: int) -> None:
    """Validate all that a step validates, except what depends on the changed rows."""
    loaded = writer.bench.table.refresh()
    writer.validate(loaded, end)
    work = next_step(context, flow, flow_state)
    if isinstance(work, Work):
        writer.validate_partition_files(loaded, work)
        writer.plan(work)
        writer.validate_source_columns(work)


def create_statement(flow: Transform, columns: Sequence[tuple[str, str]]) -> str:
    """Return the statement that creates a transform's target.

    Args:
        columns: names and types, as Spark spells them.
    """
    column_list = ", ".join(f"{quote_backtick(name)} {kind}" for name, kind in columns)
    partitioning = f" PARTITIONED BY ({flow.mode.columns[0]})" if flow.mode.kind == "replace" else ""
    return (
        f"CREATE TABLE {flow.into} ({column_list}) USING iceberg{partitioning} TBLPROPERTIES "
        "('write.wap.enabled'='true')"
    )
