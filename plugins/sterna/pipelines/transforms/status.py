"""The status of transforms, and a check of their definitions; both only read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sterna.config.sections.transforms import Transform
from sterna.errors import EngineError, SternaError, TableGone
from sterna.pipelines.transforms.decide import Work, is_sql_changed
from sterna.pipelines.transforms.failure import failure_condition, failure_text, format_reason, read_failure
from sterna.pipelines.transforms.observe import TransformState, next_step, read_source, read_transform_state
from sterna.pipelines.transforms.run import read_sql
from sterna.pipelines.transforms.sql_plan import validate_sql
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.replication.replica.region import RegionContext
from sterna.runtime.failures import describe_error
from sterna.runtime.reconciler import Idle
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked_by
from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    from sterna.pipelines.transforms.write import TransformWriter

log = logging.getLogger(__name__)
_SQL_CHANGED: Final = "; its SQL was changed since its last rows: sterna transforms rebuild makes all by the new one"


@dataclass(frozen=True)
class TransformCheck:
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


def read_transform_statuses(
    context: RegionContext, transforms: Sequence[Transform], folder: Path, *, now: datetime | None = None
) -> tuple[ReconcilerStatus, ...]:
    """Return the status of transforms, without Spark; an error of one is a condition of it.

    A position is that of the target, and a lag the number of snapshots of the source that the target lacks.

    Args:
        folder: of the services file.
        now: the time; by default the clock's.
    """
    return tuple(_status(context, transform, folder, now or datetime.now(UTC)) for transform in transforms)


def _status(context: RegionContext, transform: Transform, folder: Path, now: datetime) -> ReconcilerStatus:
    details = {"source": transform.source, "into": transform.into, "mode": str(transform.mode)}
    subject = f"{transform.source} → {transform.into}, {transform.mode}"
    status = ReconcilerStatus("transform", transform.name, subject, lag_unit="snapshots", details=details)
    try:
        transform_state = read_transform_state(context, transform)
        current = transform_state.source.current if transform_state.source else None
        status = replace(
            status, position=transform_state.applied_position(transform), details={**details, "current": current}
        )
        return _add_progress(context, transform, folder, now, transform_state, status)
    except SternaError as error:
        note = _rebuild_note(context, transform, status.position, now)
        return replace(status, conditions=(blocked_by(error, f"{describe_error(error)}{note}"),))
    except Exception as error:
        # An unexpected error of one transform must not hide the others.
        log.exception("the status of transform %s is unknown", transform.name)
        message = f"{type(error).__name__}: {format_reason(error)}"
        return replace(status, conditions=(blocked_by(EngineError(type(error).__name__), message),))


def _add_progress(
    context: RegionContext,
    transform: Transform,
    folder: Path,
    now: datetime,
    transform_state: TransformState,
    status: ReconcilerStatus,
) -> ReconcilerStatus:
    """Return a status with the transform's lag, and its failure; if it is up to date, only a rebuild's failure.

    Raises:
        SternaError: it is stopped, or its SQL or its failure can't be read.
    """
    work, sql = next_step(context, transform, transform_state), read_sql(transform, folder)
    changed = _SQL_CHANGED if is_sql_changed(transform, transform_state.target, sql) else ""
    if isinstance(work, Idle):
        progress, lag = Condition(ConditionType.READY, "Idle", work.reason), 0
    else:
        progress, lag = Condition(ConditionType.PROGRESSING, "Behind", "behind"), _count_behind(transform_state, work)
    failure = read_failure(context, transform.name, status.position)
    if failure is None or (isinstance(work, Idle) and not failure.rebuild):
        conditions: tuple[Condition, ...] = (progress,)
    elif isinstance(work, Idle):
        conditions = (progress, failure_condition(failure, now))
    else:
        conditions = (failure_condition(failure, now),)
    last = replace(conditions[-1], message=f"{conditions[-1].message}{changed}")
    return replace(status, lag=lag, conditions=(*conditions[:-1], last))


def _rebuild_note(context: RegionContext, transform: Transform, applied_position: str, now: datetime) -> str:
    """Return a note about a rebuild of a stopped transform."""
    try:
        failure = read_failure(context, transform.name, applied_position)
    except SternaError:
        return ""  # the transform is reported as an alarm in any case
    return f"; {failure_text(failure, now)}" if failure is not None and failure.rebuild else ""


def _count_behind(transform_state: TransformState, work: Work) -> int:
    lineage = [snapshot.id for snapshot in transform_state.source.ancestors] if transform_state.source else []
    return len(lineage) if work.start is None else lineage.index(work.start)


def check_transforms(
    context: RegionContext, transforms: Sequence[Transform], folder: Path
) -> tuple[TransformCheck, ...]:
    """Check transforms by their SQL, their source and their target, without changes.

    Args:
        folder: of the services file.
    """
    transform_spark = TransformSpark()
    try:
        return tuple(_check_transform(context, transform, folder, transform_spark) for transform in transforms)
    finally:
        transform_spark.close()


def _check_transform(
    context: RegionContext, transform: Transform, folder: Path, transform_spark: TransformSpark
) -> TransformCheck:
    try:
        create = _check_sql(context, transform, read_sql(transform, folder), transform_spark)
    except SternaError as error:
        return TransformCheck(transform.name, describe_error(error), exit_code=error.exit_code)
    except Exception as error:
        # An unexpected error of one must not end the check of the other transforms.
        log.exception("transform %s can't be checked", transform.name)
        fault = f"{type(error).__name__}: {format_reason(error)}"
        return TransformCheck(transform.name, fault, exit_code=EngineError.exit_code)
    if not create:
        return TransformCheck(transform.name)
    return TransformCheck(
        transform.name, f"there is no table {transform.into} on main yet", create, TableGone.exit_code
    )


def _check_sql(context: RegionContext, transform: Transform, sql: str, transform_spark: TransformSpark) -> str:
    try:
        transform_state, has_target = read_transform_state(context, transform), True
        source, metadata = transform_state.source, transform_state.metadata
    except TableGone as error:
        if error.table != transform.into:
            raise
        source, metadata = read_source(context, transform)
        has_target = False
    if source is None or source.current is None:
        raise TableGone("this region's replica has no rows of the source yet", table=transform.source)
    with transform_spark.open_step(context, transform, metadata) as step_context:
        from sterna.pipelines.transforms.write import TransformWriter

        if has_target:
            _check_step(
                context, transform, transform_state, TransformWriter(step_context, transform, sql), source.current
            )
            return ""
        columns = validate_sql(
            step_context.spark, transform, sql, step_context.read_source(source.current).schema, None
        )
    return create_statement(transform, [(column.name, column.dataType.simpleString()) for column in columns.fields])


def _check_step(
    context: RegionContext, transform: Transform, transform_state: TransformState, writer: TransformWriter, end: int
) -> None:
    """Validate all that a step validates, except what depends on the changed rows."""
    loaded = writer.step_context.table.refresh()
    writer.validate(loaded, end)
    work = next_step(context, transform, transform_state)
    if isinstance(work, Work):
        writer.validate_partition_files(loaded, work)
        writer.plan(work)
        writer.validate_source_columns(work)


def create_statement(transform: Transform, columns: Sequence[tuple[str, str]]) -> str:
    """Return the statement that creates a transform's target.

    Args:
        columns: names and types, as Spark spells them.
    """
    column_list = ", ".join(f"{quote_backtick(name)} {kind}" for name, kind in columns)
    partitioning = f" PARTITIONED BY ({transform.mode.columns[0]})" if transform.mode.kind == "replace" else ""
    return (
        f"CREATE TABLE {transform.into} ({column_list}) USING iceberg{partitioning} TBLPROPERTIES "
        "('write.wap.enabled'='true')"
    )
