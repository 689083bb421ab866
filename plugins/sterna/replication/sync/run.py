"""A complete sync in one process: the stages, one after the other, again while there is more to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

from sterna.replication.execution.source_sizes import Unavailable
from sterna.replication.execution.spark_executor import Engine, engine_or_spark
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import run_folder
from sterna.replication.replica.bulk_state import keep_alive, read_bulk_state
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.sync import stages
from sterna.replication.sync.stage_spans import report_attributes, sync_attributes
from sterna.tracing.span import traced

_MAX_PLANS = 10_000  # a bound against a bug, not against work: a seed of a million tables in groups of a hundred
_MAX_BULK_RUNS = 1_000  # likewise: each leaves half of what it found at most, or the small lane takes it
_POLL_SECONDS = 2.0


@traced("sterna.sync", sync_attributes, report_attributes)
def sync(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    *,
    until_done: bool = True,
    engine: Engine | None = None,
) -> Report:
    """Run all stages in this process, again while the plan has more to do.

    What is large comes last: the small lane publishes the others first, then the large lane copies. When all files of
    a table are here, the small lane publishes it, and the copy continues. Meanwhile another sync may publish small
    ones.

    Args:
        options: those of the sync.
        until_done: follow up at once when a seed has further groups, or `main` moved on while a file was gone.
            Otherwise one plan takes everything.
        engine: where to localize; default: the region's Spark.

    Returns:
        The last report, its counts and keys summed up over all of them.
    """
    with engine_or_spark(context, progress, engine) as active_engine:
        if not until_done:
            return _sync_once(context, options, progress, active_engine)
        if options.lane == "all" and context.region.bulk_copy_threshold:
            return _sync_both_lanes(context, options, progress, active_engine)
        return _sync_until_done(context, options, progress, active_engine)


def _sync_until_done(context: RegionContext, options: SyncOptions, progress: Progress, engine: Engine) -> Report:
    total = _sync_once(context, options, progress, engine)
    for _ in range(_MAX_PLANS):
        if not total.more:
            break
        total = _add_reports(total, _sync_once(context, options, progress, engine))
    return total


def _sync_both_lanes(context: RegionContext, options: SyncOptions, progress: Progress, engine: Engine) -> Report:
    total = _sync_until_done(context, replace(options, lane="small"), progress, engine)
    # What it could not bring once it tries again.
    remaining = any(held_key.bytes for held_key in (*total.transit, *total.held))
    followup = replace(options, full=False, restore_branch=False, reset_watermark_to="")  # that was done

    def publish(reports: list[Report]) -> None:
        reports.append(_sync_until_done(context, replace(followup, lane="small"), progress, engine))

    for _ in range(_MAX_BULK_RUNS):
        if not remaining or _is_other_bulk_run_alive(context, progress):
            break
        for held_key in total.transit:
            progress(held_key.line)
        small_reports: list[Report] = []
        bulk_report = _sync_once(
            context, replace(followup, lane="large"), progress, engine, partial(publish, small_reports)
        )
        publish(small_reports)
        total = replace(_add_reports(bulk_report, total), outcome=total.outcome)
        total = reduce(_add_reports, small_reports, total)
        remaining = bool(total.transit) and bulk_report.outcome != "idle"
    return total


def _is_other_bulk_run_alive(context: RegionContext, progress: Progress) -> bool:
    """Return whether another bulk run is alive; one without heartbeats is waited for until its timeout."""
    bulk_state = first_state = read_bulk_state(context.objects, context.region)
    while first_state and bulk_state and bulk_state.is_alive:
        if bulk_state.heartbeat_at != first_state.heartbeat_at:
            progress(f"run {bulk_state.run.run_id} copies what is in transit: it is left to that one")
            return True
        time.sleep(_POLL_SECONDS)
        bulk_state = read_bulk_state(context.objects, context.region)
    return False


def _sync_once(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    engine: Engine,
    on_complete: Callable[[], None] = lambda: None,
) -> Report:
    started = time.monotonic()
    planned = stages.plan(context, options, progress, engine=engine)
    report = planned.report or execute_plan(context, planned, options, progress, engine, on_complete)
    return report if planned.report else replace(report, seconds=time.monotonic() - started)


def execute_plan(
    context: RegionContext,
    planned: stages.PlannedRun,
    options: SyncOptions,
    progress: Progress,
    engine: Engine,
    on_complete: Callable[[], None] = lambda: None,
) -> Report:
    """Carry out a plan: copy, localize, and publish or, in the large lane, end the bulk run.

    Args:
        planned: the plan, which has something to do.
        options: what the plan was made for.
        engine: where to localize what is too much for this process.
        on_complete: called when all files of some tables are here, while the large lane still has others to copy.
    """
    copied, unavailable = StageReport(), Unavailable()
    for batch in planned.batches:
        progress(
            f"copying batch {batch.number + 1} of {len(planned.batches)} from {batch.sources}: {batch.files} files, "
            f"{batch.bytes} bytes"
        )
        report = stages.copy(context, planned.run, batch.number, progress, unavailable=unavailable, engine=engine)
        copied += report
        if report.here:
            with keep_alive(context, run_folder.run_id_from_uri(planned.run)):
                on_complete()
    localized = stages.localize(context, planned.run, copied, progress, engine)
    end_stage = stages.finish_bulk if options.lane == "large" else stages.publish
    return end_stage(context, planned.run, copied, localized, progress)


def _add_reports(total: Report, report: Report) -> Report:
    return replace(
        report,
        outcome=total.outcome if report.outcome == "idle" else report.outcome,
        published=tuple(dict.fromkeys((*total.published, *report.published))),
        copied=total.copied + report.copied,
        localized=total.localized + report.localized,
        seconds=total.seconds + report.seconds,
    )
