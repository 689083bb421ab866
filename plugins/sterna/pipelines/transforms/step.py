"""A transform as a consumer of its source: observe, decide, compute, stage, publish."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sterna.config.sections.transforms import Transform
from sterna.errors import SternaError
from sterna.pipelines.publish.protocol import LoadedTable, PublishOutcome, publish_step
from sterna.pipelines.publish.spark import JavaBase, advance_position
from sterna.pipelines.transforms.decide import Work, with_sql_digest
from sterna.pipelines.transforms.failure import UNREAD_POSITION, clear_failure, step_in_progress, write_failure
from sterna.pipelines.transforms.observe import TransformState, next_step, read_applied_position, read_transform_state
from sterna.pipelines.transforms.step_context import StepContext, TransformSpark
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle, Reconciler


@dataclass(frozen=True)
class Observation:
    """What a decision on a transform's next step needs.

    Args:
        context: the region.
        sql: the transform's SQL.
        transform_state: its source and its target.
    """

    context: RegionContext
    sql: str
    transform_state: TransformState


@dataclass(frozen=True)
class StepSummary:
    """The outcome of a step.

    Args:
        transform: its name.
        start: the source's snapshot that it starts from; None: before the first row.
        end: the source's snapshot that it ends at.
        snapshot: the target's snapshot that has the rows; None: no row changed.
        commit: the commit of `main` that has it, if this call published it.
    """

    transform: str = field(metadata={"json": "flow"})
    start: int | None
    end: int
    snapshot: int | None
    commit: str


@dataclass
class TransformReconciler(Reconciler[Observation, Work, StepSummary]):
    """Brings a transform's target up to the source as the region's replica has it; any region may repeat a step.

    Args:
        transform_spark: opens sessions of Spark.
        before: called with `stage` and `publish` before each.
    """

    open_region: Callable[[], RegionContext]
    transform: Transform
    sql: Callable[[], str]
    transform_spark: TransformSpark
    before: Callable[[str], None] = lambda moment: None
    _context: RegionContext | None = None
    _applied_position: str = UNREAD_POSITION

    def __post_init__(self) -> None:
        self.name, self.interval = self.transform.name, float(self.transform.every)

    def observe(self, previous: Observation | None = None) -> Observation:
        """Return the transform's SQL, its source on the replica, and its target on `main`.

        Raises:
            ServicesError: its file of SQL can't be read.
            TableGone: the source or the target doesn't exist.
            CatalogError, StoreError: a dependency isn't available.
        """
        if previous is None:  # else a failure is recorded at the position of the first plan
            self._context, self._applied_position = None, UNREAD_POSITION
        context = self._context = self.open_region()
        try:
            sql = self.sql()
        except SternaError:
            with suppress(SternaError):
                self._applied_position = read_applied_position(context, self.transform)
            raise
        transform_state = read_transform_state(context, self.transform)
        self._applied_position = transform_state.applied_position(self.transform)
        return Observation(context, sql, transform_state)

    def decide(self, state: Observation) -> Work | Idle:
        """Return the transform's next step; see `sterna.pipelines.transforms.decide.decide`.

        Raises:
            Gap, NotAnAncestor: the source has expired, or was rolled back.
            Rewound, FlowStopped: the target was changed by others.
        """
        work = next_step(state.context, self.transform, state.transform_state)
        if isinstance(work, Idle):
            return work
        return replace(work, step=with_sql_digest(work.step, self.transform, state.sql))

    def apply(self, state: Observation, work: Work) -> StepSummary:
        """Compute the rows of a step, stage and publish them.

        Raises:
            NotOnlyAdded, NotAKey, ServicesError: the source's rows, or the SQL, don't suit the transform's mode.
            MarkMoved, TableMoved: others published first.
            TableGone, NotStaged: the target can't be written to.
            CatalogError, StoreError, EngineError: a dependency isn't available.
        """
        metadata = state.transform_state.metadata
        with (
            step_in_progress(state.context, self.name, self._applied_position),
            self.transform_spark.open_step(state.context, self.transform, metadata) as step_context,
        ):
            outcome = _run_step(step_context, self.transform, state.sql, work, self.before)
        return StepSummary(self.name, work.start, work.end, outcome.snapshot, outcome.commit)

    def summarize(self, result: StepSummary) -> str:
        """Return how far the target is."""
        return f"{self.name}: {self.transform.into} is at snapshot {result.end} of {self.transform.source}"

    def record_idle(self, state: Observation) -> None:
        """Delete the record of a failure that is over."""
        clear_failure(state.context, self.name, self._applied_position)

    def record_failure(self, error: BaseException) -> None:
        """Write the record that is all that a status in another process has of the failure."""
        if self._context is not None:
            write_failure(self._context, self.name, self._applied_position, error)


def _run_step(
    step_context: StepContext, transform: Transform, sql: str, work: Work, before: Callable[[str], None]
) -> PublishOutcome:
    from sterna.pipelines.transforms.write import TransformWriter

    writer = TransformWriter(step_context, transform, sql)
    changes = writer.plan(work)
    writer.validate_source_columns(work)
    if sum(changes.files) == 0:
        return advance_position(step_context.table, work.step)

    def stage(loaded: LoadedTable[JavaBase]) -> None:
        before("stage")
        writer.stage(loaded, work, changes)

    return publish_step(step_context.table, work.step, stage, lambda loaded, snapshot: before("publish"))
