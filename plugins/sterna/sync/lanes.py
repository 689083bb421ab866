"""The large lane at work: it tells that it is, which tables it copies, and how that went. It publishes nothing.

When a table's files are all here it localizes what names them, and proves that: the small lane need not list them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import Busy, NotLocalized, SternaError, TableError, UsageError
from sterna.replica import file_list as listing
from sterna.replica import run_folder
from sterna.replica.head import replaced_since
from sterna.replica.held import WAITS
from sterna.replica.records import Plan, Report, StageReport, TableFailure
from sterna.replica.region import Progress, RegionContext
from sterna.replica.transit import Heart, Moving, Round, at_work, begin_round, end_round, mark_here, read_transit
from sterna.sync.engine import Engine, engine_or_spark
from sterna.sync.holds import groups_of
from sterna.sync.localize import localize_files
from sterna.sync.plan.in_parts import are_many
from sterna.sync.plan.reading import read_metadata
from sterna.sync.proof import not_localized
from sterna.sync.whole import Whole

if TYPE_CHECKING:
    import pyarrow as pa


def refuse_second(context: RegionContext) -> None:
    """See that no other large lane is at work.

    Raises:
        Busy: one is, for all that is known. Two would not harm each other: they would send files twice.
    """
    found = read_transit(context.objects, context.region)
    if found and found.fresh and found.at:
        seconds = (datetime.now(UTC) - found.at).total_seconds()
        raise Busy(f"another large lane is at work: run {found.round.run_id} showed itself {seconds:.0f} s ago")


def begin(context: RegionContext, plan: Plan, files: pa.Table | None) -> None:
    """Say which tables a plan of the large lane brings, and how much of each is to be copied in which batches."""
    needed = listing.batches_by_table(files) if files is not None else {}
    for batch in plan.batches:
        if batch.table:
            needed.setdefault(batch.table, []).append(batch.number)
    groups = groups_of(plan.together, plan.actions, plan.relaxed)
    batches = {
        name: sorted(set().union(*(needed.get(each, ()) for each in group))) for group in groups for name in group
    }
    begun, voided = _round(plan, files), _voided(context, plan)
    tables = tuple(
        replace(item, batches=tuple(batches.get(item.key, ())), voided=voided.get(item.key, 0)) for item in begun.tables
    )
    begin_round(context, replace(begun, tables=tables))


def left_out(context: RegionContext, plan: Plan) -> None:
    """Say what a plan of the large lane that brings nothing had to leave out: the small lane tells it."""
    begun, last = _round(plan, None), read_transit(context.objects, context.region)
    if last and last.fresh:
        return  # another large lane has begun meanwhile
    if last and last.round.over:
        begun = replace(last.round, held=begun.held)
    if begun.held or (last and last.round.held):
        end_round(context, begun)


def heart_of(context: RegionContext, plan: Plan, batch: int, rows: pa.Table) -> Heart:
    """Return what tells how far the copy of one batch is."""
    sizes = {name: size for name, (_, size) in listing.copied_by_table(rows).items()}
    return Heart(context, plan.run_id, batch, sizes)


def brought_by(
    context: RegionContext,
    run: str,
    plan: Plan,
    batch: int,
    copied: Whole,
    engine: Engine | None,
    progress: Progress,
) -> tuple[str, ...]:
    """Return the tables whose files are all here since a batch is, while others are left; localize them, and say so.

    The small lane then publishes them: they don't wait for the rest of the round. What fails here is told at its end.

    Args:
        context: the region.
        run: URI of the run's folder.
        plan: of the large lane.
        batch: the number of the one that is done now.
        copied: which batches are done, and for which tables they failed.
        engine: where to localize; by default the region's Spark.
        progress: called with lines for people.
    """
    done = copied.ended
    if len(done) == len(plan.batches):
        return ()  # the round is at its end, and all of it is looked at then

    try:
        found = read_transit(context.objects, context.region)
        if found is None or found.round.run_id != plan.run_id:
            return ()
        last = {item.key for item in found.round.tables if _is_last(item, batch, done)} - _stuck(plan, copied.failed)
        here = {name for name in last if not found.is_here(name)}
        if not here:
            return tuple(sorted(last))  # this task is done again, and nobody may have heard of it yet
        files = listing.of_tables(run_folder.load_files(context, run), here)
        with at_work(context, plan.run_id):
            with engine_or_spark(context, progress, engine) as used:
                localized = localize_files(context, run, files, used, progress)
            whole, _ = _proven(context, plan, files, here, localized)
        mark_here(context, plan.run_id, whole)
    except SternaError as error:
        progress(f"tables that are here wait for the end of the round: {error.message}")
        return ()
    return tuple(sorted({*(last - here), *whole}))


def _stuck(plan: Plan, failed: Collection[str]) -> set[str]:
    """Return tables that could not be copied, and those that move together with them."""
    groups = groups_of(plan.together, plan.actions, plan.relaxed) if failed else ()
    return set(failed).union(*(group for group in groups if not set(group).isdisjoint(failed)))


def _is_last(item: Moving, number: int, done: frozenset[int]) -> bool:
    """Tell whether a batch that is done was the last of a table's; of one that needs none the first in order is."""
    return done >= {*item.batches} and number in (item.batches or (min(done),))


def _proven(
    context: RegionContext, plan: Plan, files: pa.Table, tables: Collection[str], localized: StageReport
) -> tuple[tuple[str, ...], tuple[TableFailure, ...]]:
    """Return those of some tables that were localized and whose localized files are proven there; and what is wrong."""
    tried = set(tables) - {item.table for item in localized.failed}
    wrong = list(not_localized(context, files, tried))
    for action in plan.actions:
        if action.key in tried and action.kind == ICEBERG_TABLE and action.target:
            try:
                read_metadata(context, action.target)  # the small lane will
            except TableError as error:
                fault = NotLocalized(error.message, table=action.key, file=action.target)
                wrong.append(TableFailure.of(fault))
    return tuple(sorted(tried - {item.table for item in wrong})), tuple(wrong)


def are_here(context: RegionContext, plan: Plan) -> list[str]:
    """Return the tables of a round that the small lane was told to look at: they are localized."""
    found = read_transit(context.objects, context.region)
    known = found is not None and found.round.run_id == plan.run_id
    return [action.key for action in plan.actions if known and found and found.is_here(action.key)]


def finish(
    context: RegionContext, run: str, plan: Plan, copied: StageReport, localized: StageReport, seconds: float
) -> Report:
    """Say that a round is over, and what it has brought whole; the next sync of the small lane publishes that.

    Raises:
        UsageError: the plan is none of the large lane's.
        StoreError, CatalogError: the region's own store, or the catalog, can't be used.
    """
    if plan.lane != "large":
        raise UsageError("this run's plan is for the small lane: publish it")
    files, failed = run_folder.load_files(context, run), (copied + localized).failed
    well = {item.key for item in plan.since} - {item.table for item in failed}
    whole = [name for name in are_here(context, plan) if name in well]
    if localized.run_id == plan.run_id:  # without that stage, what stands there may be older than a clean-up
        left = well - set(whole)
        with at_work(context, plan.run_id):
            proven, wrong = _proven(context, plan, files, left, localized)
        whole += proven
        branch = context.region.replica_branch
        if wrong and not replaced_since(
            context.primary, branch, plan.replica_hash, context.primary.reference(branch).hash
        ):
            failed += wrong  # else a clean-up may have taken it, and the next round writes it again
    last = read_transit(context.objects, context.region)
    mine = last is not None and last.round.run_id == plan.run_id
    if last is None or mine or not (last.fresh or last.round.over):  # else another one has begun since
        ended = last.round if last and mine else _round(plan, files)
        end_round(context, replace(ended, failed=failed, whole=tuple(whole)))
    report = Report(
        run_id=plan.run_id,
        region=plan.region,
        source_hash=plan.source_hash,
        outcome="copied",
        replica_hash="",
        watermark=plan.watermark,
        copied=copied,
        localized=localized,
        lag_seconds=None,
        seconds=seconds,
    )
    run_folder.save_report(context, report)
    return report


def _voided(context: RegionContext, plan: Plan) -> dict[str, int]:
    """Return, by key name, how many rounds brought a table whole, in its time in transit, before something was deleted.

    Raises:
        StoreError, CatalogError: the region's own store, or the catalog, can't be used.
    """
    last = read_transit(context.objects, context.region)
    if last is None:
        return {}
    before = {item.key: moving for item in plan.since if (moving := last.round.moving(item))}
    here = {key for key in before if last.is_here(key)}
    void = here and replaced_since(
        context.primary, context.region.replica_branch, last.round.replica_hash, plan.replica_hash
    )
    return {key: moving.voided + bool(void and key in here) for key, moving in before.items()}


def _round(plan: Plan, files: pa.Table | None) -> Round:
    targets = {action.key: action.target for action in plan.actions}
    lengths = listing.manifests_by_table(files) if files is not None else {}
    many = {name: len(found) for name, found in lengths.items() if are_many(found)}
    tables = tuple(
        Moving(item.key, item.since, item.bytes, target=targets[item.key], manifests=many.get(item.key, 0))
        for item in plan.since
    )
    return Round(
        plan.run_id,
        tables,
        replica_hash=plan.replica_hash,
        digest=plan.digest,
        registry=plan.registry,
        epoch=plan.epoch,
        held=tuple(item for item in plan.held if not item.in_transit and item.kind != WAITS),
    )
