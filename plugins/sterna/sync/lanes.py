"""The large lane at work: it tells that it is, which tables it copies, and how that went. It publishes nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sterna.errors import Busy, SternaError, UsageError
from sterna.replica import file_list as listing
from sterna.replica import run_folder
from sterna.replica.records import Plan, Report, StageReport
from sterna.replica.region import RegionContext
from sterna.replica.transit import Heart, Moving, Round, begin_round, end_round, mark_here, read_transit
from sterna.sync.holds import groups_of

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
    tables = tuple(replace(item, batches=tuple(batches.get(item.key, ()))) for item in _tables(plan))
    begin_round(context, plan.run_id, tables)


def heart_of(context: RegionContext, plan: Plan, batch: int, rows: pa.Table) -> Heart:
    """Return what tells how far the copy of one batch is."""
    sizes = {name: size for name, (_, size) in listing.copied_by_table(rows).items()}
    return Heart(context, plan.run_id, batch, sizes)


def brought_by(context: RegionContext, plan: Plan, number: int, done: frozenset[int]) -> tuple[str, ...]:
    """Return the tables whose files are all here since a batch is, while others are left; and say so.

    The small lane then looks at them, and publishes them: they don't wait for the rest of the round.

    Args:
        context: the region.
        plan: of the large lane.
        number: of the batch.
        done: the numbers of all batches that are done.
    """
    if len(done) == len(plan.batches):
        return ()  # the round is at its end, and all of it is looked at then
    with suppress(SternaError):
        found = read_transit(context.objects, context.region)
        tables = found.round.tables if found and found.round.run_id == plan.run_id else ()
        here = tuple(item.key for item in tables if number in item.batches and done >= {*item.batches})
        mark_here(context, plan.run_id, here)
        return here
    return ()


def are_here(context: RegionContext, plan: Plan) -> list[str]:
    """Return the tables of a round that the small lane was told to look at: it localizes them itself."""
    found = read_transit(context.objects, context.region)
    known = found is not None and found.round.run_id == plan.run_id
    return [action.key for action in plan.actions if known and found and found.is_here(action.key)]


def finish(context: RegionContext, plan: Plan, copied: StageReport, localized: StageReport, seconds: float) -> Report:
    """Say that a round is over; the next sync of the small lane looks what is here, and publishes it.

    Raises:
        UsageError: the plan is none of the large lane's.
    """
    if plan.lane != "large":
        raise UsageError("this run's plan is for the small lane: publish it")
    end_round(context, Round(plan.run_id, _tables(plan), failed=(copied + localized).failed))
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


def _tables(plan: Plan) -> tuple[Moving, ...]:
    return tuple(Moving(item.key, item.since, item.bytes) for item in plan.since)
