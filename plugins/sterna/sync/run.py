"""A whole sync in one process: the stages, one after the other, again while there is more to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

from sterna.replica import run_folder
from sterna.replica.records import Report, StageReport
from sterna.replica.region import Progress, RegionContext
from sterna.replica.transit import at_work, read_transit
from sterna.sync import stages
from sterna.sync.engine import Engine, engine_or_spark
from sterna.sync.options import SyncOptions
from sterna.sync.sizes import Dark

_PLANS_PER_SYNC = 10_000  # a bound against a bug, not against work: a seed of a million tables in groups of a hundred
_ROUNDS_PER_SYNC = 1_000  # likewise: each leaves half of what it found at most, or the small lane takes it
_LOOK_SECONDS = 2.0


def sync(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    *,
    again: bool = True,
    engine: Engine | None = None,
) -> Report:
    """Run all stages in this process, again while the plan says that there is more to do.

    What is large comes last: the small lane publishes the others first, then the large lane copies. When all files of
    a table are here, the small lane publishes it, and the copy goes on. Meanwhile another sync may publish small ones.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        again: follow up at once when a seed has further groups, or `main` moved on while a file was gone. Otherwise one
            plan takes everything.
        engine: where to localize; default: the region's Spark.

    Returns:
        The last report, its counts and keys summed up over all of them.
    """
    with engine_or_spark(context, progress, engine) as used:
        if not again:
            return _once(context, options, progress, used)
        if options.lane == "all" and context.region.large_copy:
            return _both_lanes(context, options, progress, used)
        return _whole(context, options, progress, used)


def _whole(context: RegionContext, options: SyncOptions, progress: Progress, engine: Engine) -> Report:
    total = _once(context, options, progress, engine)
    for _ in range(_PLANS_PER_SYNC):
        if not total.more:
            break
        total = _summed(total, _once(context, options, progress, engine))
    return total


def _both_lanes(context: RegionContext, options: SyncOptions, progress: Progress, engine: Engine) -> Report:
    total = _whole(context, replace(options, lane="small"), progress, engine)
    left = any(item.bytes for item in (*total.transit, *total.held))  # what it could not bring once it tries again
    later = replace(options, everything=False, reassert=False, reseed_from="")  # that was done

    def publish(reports: list[Report]) -> None:
        reports.append(_whole(context, replace(later, lane="small"), progress, engine))

    for _ in range(_ROUNDS_PER_SYNC):
        if not left or _left_to_another(context, progress):
            break
        for item in total.transit:
            progress(item.line)
        rounds: list[Report] = []
        brought = _once(context, replace(later, lane="large"), progress, engine, partial(publish, rounds))
        publish(rounds)
        total = replace(_summed(brought, total), outcome=total.outcome)
        total = reduce(_summed, rounds, total)
        left = bool(total.transit) and brought.outcome != "idle"
    return total


def _left_to_another(context: RegionContext, progress: Progress) -> bool:
    """Tell whether another large lane is alive; one that shows itself no more is waited for until it counts as dead."""
    found = seen = read_transit(context.objects, context.region)
    while seen and found and found.fresh:
        if found.at != seen.at:
            progress(f"run {found.round.run_id} copies what is in transit: it is left to that one")
            return True
        time.sleep(_LOOK_SECONDS)
        found = read_transit(context.objects, context.region)
    return False


def _once(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    engine: Engine,
    arrived: Callable[[], None] = lambda: None,
) -> Report:
    started = time.monotonic()
    planned = stages.plan(context, options, progress, engine=engine)
    report = planned.report or carry_out(context, planned, options, progress, engine, arrived)
    return report if planned.report else replace(report, seconds=time.monotonic() - started)


def carry_out(
    context: RegionContext,
    planned: stages.Planned,
    options: SyncOptions,
    progress: Progress,
    engine: Engine,
    arrived: Callable[[], None] = lambda: None,
) -> Report:
    """Do what a plan says: copy, localize, and publish or, in the large lane, end the round.

    Args:
        context: the region.
        planned: the plan, which has something to do.
        options: what the plan was made for.
        progress: called with lines for people.
        engine: where to localize what is too much to be localized here.
        arrived: called when all files of some tables are here, while the large lane still has others to copy.
    """
    copied, dark = StageReport(), Dark()
    for batch in planned.batches:
        progress(
            f"copying batch {batch.number + 1} of {len(planned.batches)} from {batch.origin}: {batch.files} files, "
            f"{batch.bytes} bytes"
        )
        report = stages.copy(context, planned.run, batch.number, progress, dark=dark, engine=engine)
        copied += report
        if report.here:
            with at_work(context, run_folder.run_id_of(planned.run)):
                arrived()
    localized = stages.localize(context, planned.run, copied, progress, engine)
    last = stages.arrive if options.lane == "large" else stages.publish
    return last(context, planned.run, copied, localized, progress)


def _summed(total: Report, report: Report) -> Report:
    return replace(
        report,
        outcome=total.outcome if report.outcome == "idle" else report.outcome,
        published=tuple(dict.fromkeys((*total.published, *report.published))),
        copied=total.copied + report.copied,
        localized=total.localized + report.localized,
        seconds=total.seconds + report.seconds,
    )
