"""A view's rows brought into the store: those that changed between two snapshots of the replica, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.changes.between import staged
from sterna.changes.region import load, telling
from sterna.changes.rows import NOT_A_KEY
from sterna.edges.spark.staged_changes import columns_of, snapshots_of, whole
from sterna.edges.spark.start import failures, summary
from sterna.errors import Gap, NotAnAncestor
from sterna.features.fit import fit
from sterna.features.frames import Frames
from sterna.features.model import Column, State, digest_of
from sterna.features.store import FeatureStore, Run
from sterna.replica.region import RegionContext
from sterna.replica.view_position import write_view_position
from sterna.services.features import Entity, Features, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PART = 5_000  # rows that are held here at once


@dataclass(frozen=True)
class Materialized:
    """What became of a view.

    Args:
        view: its name.
        how: `full`, `changes`, `same` where there was nothing to do, `empty` for a table without a snapshot, or
            `refused`.
        why: why it was filled as a whole, or is refused; else "".
        snapshot: the snapshot that it stands for.
        rows: rows that were written.
        gone: rows that were deleted, or dropped from the cache.
    """

    view: str
    how: str
    why: str = ""
    snapshot: int | None = None
    rows: int = 0
    gone: int = 0


@dataclass(frozen=True)
class Subject:
    """A view, and its table as the replica shows it now.

    Args:
        view: the view.
        entity: its entity.
        loaded: the table in the JVM.
        line: the snapshots of its current line and their times, newest first.
        keys: the key's columns.
        columns: the view's.
        digest: what rows are made of.
    """

    view: View
    entity: Entity
    loaded: Any
    line: tuple[tuple[int, int], ...]
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    digest: str


def materialize(
    context: RegionContext,
    spark: SparkSession,
    store: FeatureStore,
    features: Features,
    view: View,
    *,
    rebuild: bool = False,
) -> Materialized:
    """Bring a view's store to the current snapshot of the region's replica.

    Args:
        context: the region.
        spark: a session of `sterna.changes.region.open_session`.
        store: the region's.
        features: the section of the services file.
        view: the view.
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
    if refusal := context.registry.refusal(view.table, context.region.name):
        return Materialized(view.name, "refused", refusal, gone=store.refuse(view.name, refusal))
    subject = look(context, spark, features, view)
    state = store.state(view.name)
    if subject is None:  # dropped and made anew, say: what the store has is another table's
        known = state != State(epoch=state.epoch)
        return Materialized(view.name, "empty", gone=store.empty(view.name) if known else 0)
    target = subject.line[0]
    why = "it was asked for" if rebuild else why_full(subject, state, store)
    if not why and state.snapshot == target[0] and state.pending is None:
        return Materialized(view.name, "same", snapshot=target[0])
    with telling_of(context, view):
        made = _filled(spark, store, subject, state, why)
    write_view_position(context, view.name, view.table, target[0])
    return made


def _filled(spark: SparkSession, store: FeatureStore, subject: Subject, state: State, why: str) -> Materialized:
    if not why:
        try:
            return _by_changes(spark, store, subject, state)
        except (Gap, NotAnAncestor) as error:
            why = error.message
        except failures() as error:
            if state.pending in (None, subject.line[0][0]) or NOT_A_KEY not in summary(error):
                raise
            why = f"a run stopped at snapshot {state.pending}, in which several rows had the same key"
        state = store.state(subject.view.name)
    return _whole(spark, store, subject, state, why)


def look(context: RegionContext, spark: SparkSession, features: Features, view: View) -> Subject | None:
    """Return a view's table as the replica shows it; None while it has no snapshot.

    Args:
        context: the region.
        spark: as in `materialize`.
        features: the section of the services file.
        view: the view.

    Raises:
        UnfitView, UsageError, EngineError: as `materialize`.
    """
    loaded, entity = load(context, spark, view.table), features.entity_of(view)
    uuid, line = snapshots_of(loaded)
    if not line:
        return None
    names = (*entity.columns, *view.columns)
    found = columns_of(spark, loaded, line[0][0], names)
    fits = fit(view, entity, {name: each for name, each in zip(names, found, strict=True) if each})
    digest = digest_of(view, entity, fits.columns, fits.keys, uuid)
    return Subject(view, entity, loaded, tuple(line), fits.keys, fits.columns, digest)


def why_full(subject: Subject, state: State, store: FeatureStore) -> str:
    """Return why changes alone don't do, "" where they do."""
    if state.refused:
        return "its table was refused before"
    if state.snapshot is None:
        return "the store holds no snapshot of it"
    if state.digest != subject.digest:
        return "the view, its table or a column's type is another one"
    if subject.view.serve == "complete" and state.ready != store.mark():
        return "the store was restarted, failed over, or has dropped keys"
    return ""


def _by_changes(spark: SparkSession, store: FeatureStore, subject: Subject, state: State) -> Materialized:
    """Go on from the state's snapshot. Where a run died on its way to another one, finish its way first.

    What that one wrote might have been taken back since, and no change would tell.
    """
    times, target = dict(subject.line), subject.line[0][0]
    steps = [target] if state.pending in (None, target) else [state.pending, target]
    if any(step not in times for step in steps):
        raise Gap(f"snapshot {state.pending}, at which a run died, is not kept", table=subject.view.table)
    rows = gone = 0
    for step in steps:
        frames = Frames(spark, subject.view, subject.keys, subject.columns)
        planned = staged(spark, subject.loaded, subject.view.table, state.snapshot, step)
        run = store.begin(subject.view.name, state, (step, times[step]), subject.digest, subject.columns, full=False)
        if subject.view.serve == "cache":
            found = frames.changed_ids(planned)
        elif subject.view.unique:
            found = frames.changed(planned, whole(spark, subject.loaded, step))
        else:
            found = frames.newest_of(planned, staged(spark, subject.loaded, subject.view.table, None, step))
        wrote, deleted = _put(store, run, found)
        rows, gone = rows + wrote, gone + deleted
        store.finish(run, state.ready if state.ready == store.mark() else "")
        state = store.state(subject.view.name)
    return Materialized(subject.view.name, "changes", snapshot=target, rows=rows, gone=gone)


def _whole(spark: SparkSession, store: FeatureStore, subject: Subject, state: State, why: str) -> Materialized:
    view, target = subject.view, subject.line[0]
    run = store.begin(view.name, state, target, subject.digest, subject.columns, full=True)
    rows = 0
    if view.serve == "complete":
        planned = staged(spark, subject.loaded, view.table, None, target[0])
        rows, _ = _put(store, run, Frames(spark, view, subject.keys, subject.columns).all(planned))
    gone = store.sweep(view.name, run.epoch)
    store.finish(run, run.mark if run.mark == store.mark() else "")
    return Materialized(view.name, "full", why, target[0], rows, gone)


def _put(store: FeatureStore, run: Run, rows: Iterator[tuple[str, bytes | None]]) -> tuple[int, int]:
    wrote = deleted = 0
    part: list[tuple[str, bytes | None]] = []
    for row in rows:
        part.append(row)
        deleted += row[1] is None
        wrote += row[1] is not None
        if len(part) == _PART:
            store.put(run, part)
            part = []
    if part:
        store.put(run, part)
    return wrote, deleted


def telling_of(context: RegionContext, view: View) -> AbstractContextManager[None]:
    """Turn what Spark raises for a view into errors of ours; see `telling`."""
    same_key = f"view {view.name} says unique, and several rows have the same key"
    return telling(context, view.table, same_key, f"view {view.name} can't be read")


def each_view(features: Features, names: Sequence[str], unknown: Callable[[str], Exception]) -> list[View]:
    """Return the views of some names; none: all.

    Args:
        features: the section of the services file.
        names: of views.
        unknown: makes the error for a name that there isn't.
    """
    for name in names:
        if name not in features.by_name:
            raise unknown(f"no view {name!r}: there are {', '.join(features.by_name)}")
    return [view for view in features.views if not names or view.name in names]
