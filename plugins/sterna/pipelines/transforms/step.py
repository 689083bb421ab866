"""One step of a transform: observe, decide, compute, stage, publish. It is idempotent, whichever region repeats it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sterna.config.sections.transforms import Transform
from sterna.errors import MarkMoved, SternaError
from sterna.pipelines.publish.model import flow_channel
from sterna.pipelines.publish.protocol import LoadedTable, PublishOutcome, publish_step
from sterna.pipelines.publish.spark import JavaBase, advance_position
from sterna.pipelines.transforms.decide import Idle, Work, with_sql_digest
from sterna.pipelines.transforms.failure import UNREAD_POSITION, clear_failure, step_in_progress, write_failure
from sterna.pipelines.transforms.observe import next_step, read_applied_position, read_flow_state
from sterna.pipelines.transforms.step_context import FlowSpark, StepContext
from sterna.pipelines.transforms.write import FlowWriter
from sterna.replication.replica.region import RegionContext

_MAX_PLANS = 5
"""How often a step is planned again after another region published first."""


@dataclass(frozen=True)
class StepSummary:
    """The outcome of a step.

    Args:
        flow: the transform's name.
        start: the source's snapshot that it starts from; None: before the first row.
        end: the source's snapshot that it ends at; None: there was nothing to do.
        snapshot: the target's snapshot that has the rows; None: no row changed, or there was nothing to do.
        commit: the commit of `main` that has it, if this call published it.
        reason: why there was nothing to do.
    """

    flow: str
    start: int | None = None
    end: int | None = None
    snapshot: int | None = None
    commit: str = ""
    reason: str = ""


def step(
    context: RegionContext,
    flow: Transform,
    sql: str,
    flow_spark: FlowSpark,
    before: Callable[[str], None] = lambda moment: None,
) -> StepSummary:
    """Bring a transform's target up to the source as the region's replica has it.

    Args:
        context: the region.
        flow: the transform.
        sql: its SQL.
        flow_spark: opens sessions of Spark.
        before: called with `stage` and `publish` before each.

    Raises:
        Gap, NotAnAncestor: the source has expired, or was rolled back.
        Rewound, FlowStopped: the target was changed by others.
        NotOnlyAdded, NotAKey, ServicesError: the source's rows, or the SQL, don't suit the transform's mode.
        MarkMoved, TableMoved: others published first each time.
        TableGone, NotStaged: the target can't be written to.
        CatalogError, StoreError, EngineError: a dependency isn't available.
    """
    applied_position = UNREAD_POSITION
    try:
        for attempt in range(_MAX_PLANS):
            flow_state = read_flow_state(context, flow)
            applied_position = flow_state.target.properties.get(flow_channel(flow.name).position_property, "")
            work = next_step(context, flow, flow_state)
            if isinstance(work, Idle):
                clear_failure(context, flow.name, applied_position)
                return StepSummary(flow.name, reason=work.reason)
            work = replace(work, step=with_sql_digest(work.step, flow, sql))
            try:
                with (
                    step_in_progress(context, flow.name, applied_position),
                    flow_spark.open_step(context, flow, flow_state.metadata) as step_context,
                ):
                    outcome = _run_step(step_context, flow, sql, work, before)
            except MarkMoved:
                if attempt == _MAX_PLANS - 1:
                    raise
                continue  # another region has progressed: the rest is planned from its position
            return StepSummary(flow.name, work.start, work.end, outcome.snapshot, outcome.commit)
        raise AssertionError("not reached")
    except BaseException as error:
        # The record is all that status has of it, also of an unexpected error or a time limit.
        write_failure(context, flow.name, applied_position, error)
        raise


def write_start_failure(context: RegionContext, flow: Transform, error: SternaError) -> None:
    """Record why a step can't start, for a status in another process.

    Args:
        context: the region.
        flow: the transform.
        error: of its definition, or of its file of SQL.
    """
    try:
        applied_position = read_applied_position(context, flow)
    except SternaError:
        applied_position = UNREAD_POSITION
    write_failure(context, flow.name, applied_position, error)


def _run_step(
    step_context: StepContext, flow: Transform, sql: str, work: Work, before: Callable[[str], None]
) -> PublishOutcome:
    writer = FlowWriter(step_context, flow, sql)
    changes = writer.plan(work)
    writer.validate_source_columns(work)
    if sum(changes.files) == 0:
        return advance_position(step_context.table, work.step)

    def stage(loaded: LoadedTable[JavaBase]) -> None:
        before("stage")
        writer.stage(loaded, work, changes)

    return publish_step(step_context.table, work.step, stage, lambda loaded, snapshot: before("publish"))
