"""A view's rows written to the store: those that changed between two snapshots of the replica, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.config.sections.features import Entity, Features, FeatureView
from sterna.errors import Gap, NotAnAncestor, printable
from sterna.pipelines.changes.between import plan_changes
from sterna.pipelines.changes.kinds import NOT_A_KEY
from sterna.pipelines.changes.region import load_table, translate_errors
from sterna.pipelines.features.changed_rows import Frames
from sterna.pipelines.features.model import Column, State, rows_digest
from sterna.pipelines.features.source_schema import resolve_columns
from sterna.pipelines.features.store import FeatureStore, FillRun
from sterna.replication.replica.feature_position import write_feature_view_position
from sterna.replication.replica.region import RegionContext
from sterna.spark.changelog_scan import StagedChanges, list_snapshots, lookup_columns, read_snapshot
from sterna.spark.start import spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK_ROWS = 5_000  # rows that are held here at once


@dataclass(frozen=True)
class Materialization:
    """What became of a view.

    Args:
        view: its name.
        how: `full`, `changes`, `same` where there was nothing to do, `empty` for a table without a snapshot, or
            `refused`.
        why: why it was filled as a whole, or is refused; else "".
        snapshot: the snapshot that the store now has.
        rows: rows that were written.
        gone: rows that were deleted, or dropped from the cache.
    """

    view: str
    how: str
    why: str = ""
    snapshot: int | None = None
    rows: int = 0
    gone: int = 0


def describe_materialization(materialized: Materialization) -> str:
    """Return what became of a view as one line."""
    reason = f" ({printable(materialized.why)})" if materialized.why else ""
    if materialized.how in ("same", "empty"):
        outcome = "nothing to do" if materialized.how == "same" else "its table has no rows yet"
        return f"{materialized.view}: {outcome}"
    snapshot_text = "" if materialized.snapshot is None else f", at snapshot {materialized.snapshot}"
    return (
        f"{materialized.view}: {materialized.how}{reason}: {materialized.rows} rows written, {materialized.gone} "
        f"gone{snapshot_text}"
    )


@dataclass(frozen=True)
class LoadedView:
    """A view, and its table as the replica shows it now.

    Args:
        jvm_table: the table in the JVM.
        lineage: the snapshots of its current line and their times, newest first.
        keys: the key's columns.
        columns: the view's.
        digest: what rows are made of.
    """

    view: FeatureView
    entity: Entity
    jvm_table: Any
    lineage: tuple[tuple[int, int], ...]
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    digest: str
    spark: SparkSession = field(repr=False)

    @property
    def frames(self) -> Frames:
        """Its rows, of what was planned."""
        return Frames(self.spark, self.view, self.keys, self.columns)

    def plan(self, start: int | None, end: int) -> StagedChanges:
        """Plan what must be read of the rows between two snapshots; None: all rows of the second one."""
        return plan_changes(self.spark, self.jvm_table, self.view.table, start, end)


def materialize_view(
    context: RegionContext,
    spark: SparkSession,
    store: FeatureStore,
    features: Features,
    view: FeatureView,
    *,
    rebuild: bool = False,
) -> Materialization:
    """Bring a view's store to the current snapshot of the region's replica.

    Args:
        spark: a session of `sterna.pipelines.changes.region.open_session`.
        features: the section of the services file.
        rebuild: fill it as a whole, whatever is there.

    Returns:
        What was done.

    Raises:
        FeaturesMoved: another run fills the view; a later one goes on.
        UnfitView: the table hasn't got the view's columns.
        NotAKey: the view says `unique`, and its key isn't.
        UsageError: there is no such table in the replica.
        FeaturesError, EngineError: the store or Spark doesn't do it.
        StoreError: the region's object store doesn't take the note of how far the view is.
    """
    if refusal := context.registry.exclusion_reason(view.table, context.region.name):
        return Materialization(view.name, "refused", refusal, gone=store.exclude(view.name, refusal))
    loaded_view = load_view(context, spark, features, view)
    state = store.state(view.name)
    if loaded_view is None:  # the table may have been recreated: then the store has rows of another one
        had_rows = state != State(generation=state.generation)
        return Materialization(view.name, "empty", gone=store.clear(view.name) if had_rows else 0)
    target = loaded_view.lineage[0]
    reason = "it was asked for" if rebuild else full_reload_reason(loaded_view, state, store)
    if not reason and state.snapshot == target[0] and state.pending is None:
        return Materialization(view.name, "same", snapshot=target[0])
    with translate_spark_errors(context, view):
        outcome = _fill(store, loaded_view, state, reason)
    write_feature_view_position(context, view.name, view.table, target[0])
    return outcome


def _fill(store: FeatureStore, loaded_view: LoadedView, state: State, reason: str) -> Materialization:
    if not reason:
        try:
            return _apply_changes(store, loaded_view, state)
        except (Gap, NotAnAncestor) as error:
            reason = error.message
        except spark_errors() as error:
            if state.pending in (None, loaded_view.lineage[0][0]) or NOT_A_KEY not in summarize_error(error):
                raise
            reason = f"a run stopped at snapshot {state.pending}, in which several rows had the same key"
        state = store.state(loaded_view.view.name)
    return _reload(store, loaded_view, state, reason)


def load_view(context: RegionContext, spark: SparkSession, features: Features, view: FeatureView) -> LoadedView | None:
    """Return a view's table as the replica shows it; None while it has no snapshot.

    Args:
        spark: as in `materialize`.
        features: the section of the services file.

    Raises:
        UnfitView, UsageError, EngineError: as `materialize`.
    """
    jvm_table, entity = load_table(context, spark, view.table), features.entity_of(view)
    uuid, lineage = list_snapshots(jvm_table)
    if not lineage:
        return None
    names = (*entity.columns, *view.columns)
    columns = lookup_columns(spark, jvm_table, lineage[0][0], names)
    view_columns = resolve_columns(
        view, entity, {name: column for name, column in zip(names, columns, strict=True) if column}
    )
    digest = rows_digest(view, entity, view_columns.columns, view_columns.keys, uuid)
    return LoadedView(view, entity, jvm_table, tuple(lineage), view_columns.keys, view_columns.columns, digest, spark)


def full_reload_reason(loaded_view: LoadedView, state: State, store: FeatureStore) -> str:
    """Return why changes alone don't do, "" where they do."""
    if state.exclusion:
        return "its table was refused before"
    if state.snapshot is None:
        return "the store holds no snapshot of it"
    if state.digest != loaded_view.digest:
        return "the view, its table or a column's type is another one"
    if loaded_view.view.serve == "complete" and state.complete_server != store.server_id():
        return "the store was restarted, failed over, or has dropped keys"
    return ""


def _apply_changes(store: FeatureStore, loaded_view: LoadedView, state: State) -> Materialization:
    """Go on from the state's snapshot. Where a run died on its way to another one, finish its way first.

    What that run wrote may have been rolled back since, which no change would show.
    """
    times, target = dict(loaded_view.lineage), loaded_view.lineage[0][0]
    steps = [target] if state.pending in (None, target) else [state.pending, target]
    if any(step not in times for step in steps):
        raise Gap(f"snapshot {state.pending}, at which a run died, is not kept", table=loaded_view.view.table)
    rows = gone = 0
    for step in steps:
        frames, planned = loaded_view.frames, loaded_view.plan(state.snapshot, step)
        run = store.begin(
            loaded_view.view.name, state, (step, times[step]), loaded_view.digest, loaded_view.columns, full=False
        )
        if loaded_view.view.serve == "cache":
            changed_rows = frames.changed_ids(planned)
        elif loaded_view.view.unique:
            changed_rows = frames.changed_rows(planned, read_snapshot(loaded_view.spark, loaded_view.jvm_table, step))
        else:
            changed_rows = frames.newest_rows(planned, loaded_view.plan(None, step))
        wrote, deleted = _write_rows(store, run, changed_rows)
        rows, gone = rows + wrote, gone + deleted
        store.finish(run, state.complete_server if state.complete_server == store.server_id() else "")
        state = store.state(loaded_view.view.name)
    return Materialization(loaded_view.view.name, "changes", snapshot=target, rows=rows, gone=gone)


def _reload(store: FeatureStore, loaded_view: LoadedView, state: State, reason: str) -> Materialization:
    view, target = loaded_view.view, loaded_view.lineage[0]
    run = store.begin(view.name, state, target, loaded_view.digest, loaded_view.columns, full=True)
    rows = 0
    if view.serve == "complete":
        rows, _ = _write_rows(store, run, loaded_view.frames.all_rows(loaded_view.plan(None, target[0])))
    gone = store.delete_older_generations(view.name, run.generation)
    store.finish(run, run.server_id if run.server_id == store.server_id() else "")
    return Materialization(view.name, "full", reason, target[0], rows, gone)


def _write_rows(store: FeatureStore, run: FillRun, rows: Iterator[tuple[str, bytes | None]]) -> tuple[int, int]:
    wrote = deleted = 0
    chunk: list[tuple[str, bytes | None]] = []
    for row in rows:
        chunk.append(row)
        deleted += row[1] is None
        wrote += row[1] is not None
        if len(chunk) == _CHUNK_ROWS:
            store.put(run, chunk)
            chunk = []
    if chunk:
        store.put(run, chunk)
    return wrote, deleted


def translate_spark_errors(context: RegionContext, view: FeatureView) -> AbstractContextManager[None]:
    """Turn what Spark raises for a view into errors of ours; see `telling`."""
    same_key = f"view {view.name} says unique, and several rows have the same key"
    return translate_errors(context, view.table, same_key, f"view {view.name} can't be read")


def select_views(features: Features, names: Sequence[str], make_error: Callable[[str], Exception]) -> list[FeatureView]:
    """Return the views of some names; none: all.

    Args:
        features: the section of the services file.
        names: of views.
        make_error: makes the error for a name that there isn't.
    """
    for name in names:
        if name not in features.views_by_name:
            raise make_error(f"no view {name!r}: there are {', '.join(features.views_by_name)}")
    return [view for view in features.views if not names or view.name in names]
