"""Rebuilds a transform's target at an operator's command: the same SQL over the whole source, in one snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped
from sterna.pipelines.publish.decide import is_rewound
from sterna.pipelines.publish.model import transform_channel
from sterna.pipelines.publish.protocol import LoadedTable, PublishOutcome, publish_step
from sterna.pipelines.publish.spark import JavaBase, SparkTable, change_table
from sterna.pipelines.transforms.decide import rebuild_step, rebuilding_position, with_sql_digest
from sterna.pipelines.transforms.failure import UNREAD_POSITION, rebuild_in_progress, write_failure
from sterna.pipelines.transforms.observe import read_transform_state
from sterna.pipelines.transforms.step_context import StepContext, TransformSpark
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class RebuildSummary:
    """A rebuild, planned or done.

    Args:
        transform: its name.
        source: the table that is read.
        end: its snapshot.
        into: the table whose rows are all replaced.
        position: the target's position before.
        snapshot: the target's snapshot that has the rows; None: it was only planned.
        commit: the commit of `main` that has it.
        done: whether it was done.
    """

    transform: str = field(metadata={"json": "flow"})
    source: str
    end: int
    into: str
    position: str = field(metadata={"json": "mark"})
    snapshot: int | None = None
    commit: str = ""
    done: bool = False


def rebuild(
    context: RegionContext, transform: Transform, sql: str, transform_spark: TransformSpark, *, act: bool = False
) -> RebuildSummary:
    """Replace all rows of a transform's target by the SQL's result over the whole source.

    Readers see the old rows until the new ones are published. It is safe to interrupt and to repeat.

    Args:
        context: the region, whose replica is read.
        transform_spark: opens sessions of Spark.
        act: do it; otherwise only plan.

    Raises:
        FlowStopped: the region's replica has no rows of the source yet.
        MarkMoved: another rebuild, or a step, published first.
        SternaError: as `sterna.pipelines.transforms.step.TransformReconciler`.
    """
    applied_position = UNREAD_POSITION
    try:
        transform_state = read_transform_state(context, transform)
        applied_position = transform_state.applied_position(transform)
        if transform_state.source is None or transform_state.source.current is None:
            raise FlowStopped("there are no rows to rebuild from on this region's replica", table=transform.source)
        summary = RebuildSummary(
            transform.name, transform.source, transform_state.source.current, transform.into, applied_position
        )
        if not act:
            return summary
        with (
            rebuild_in_progress(context, transform.name, applied_position) as set_position,
            transform_spark.open_step(context, transform, transform_state.metadata) as step_context,
        ):
            applied_position = _begin_rebuild(step_context.table, transform)
            if applied_position != summary.position:
                set_position(applied_position)
            outcome = _publish_rebuild(step_context, transform, sql, applied_position, summary.end)
    except BaseException as error:
        # The record is all that status has of it, as of a step.
        if act:
            write_failure(context, transform.name, applied_position, error, rebuild=True)
        raise
    return replace(summary, position=applied_position, snapshot=outcome.snapshot, commit=outcome.commit, done=True)


def _publish_rebuild(
    step_context: StepContext, transform: Transform, sql: str, applied_position: str, end: int
) -> PublishOutcome:
    from sterna.pipelines.transforms.write import TransformWriter

    step = with_sql_digest(rebuild_step(transform, applied_position, end), transform, sql)
    writer = TransformWriter(step_context, transform, sql)
    return publish_step(step_context.table, step, lambda loaded: writer.stage_rebuild(loaded, step, end))


def _begin_rebuild(table: SparkTable, transform: Transform) -> str:
    """Return the position that the rebuild starts from; a target that was rolled back is first marked as rebuilding."""
    channel = transform_channel(transform.name)

    def begin(loaded: LoadedTable[JavaBase]) -> str:
        position = loaded.state.position(channel)
        if is_rewound(loaded.state, channel):
            position = rebuilding_position(position)
            table.set_position(loaded, channel, position)
        return position

    return change_table(table, begin)
