"""The stages of a sync: plan, copy, localize, publish.

A DAG calls them task by task; `sterna.replication.sync.run` strings them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from sterna.codec import MalformedRecord
from sterna.config.registry import run_names
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Busy, SternaError, UsageError
from sterna.libraries import pa
from sterna.replication.execution.copy import DEFAULT_DEADLINE_SECONDS, CopyProgress, copy_batch
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.execution.fault_attribution import raise_if_unpublishable
from sterna.replication.execution.source_regions import SourceOrder
from sterna.replication.execution.source_sizes import Unavailable
from sterna.replication.execution.spark_executor import Engine, engine_or_spark
from sterna.replication.plan.dependencies import Resolution
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica import file_list as listing
from sterna.replication.replica import run_folder
from sterna.replication.replica.bulk_state import Heartbeat, keep_alive
from sterna.replication.replica.catalog_copy import wait_until_served
from sterna.replication.replica.delay_index import update_delay_index
from sterna.replication.replica.head import GC_EXPIRY_SECONDS, read_head
from sterna.replication.replica.held import Held, split_in_transit
from sterna.replication.replica.ids import new_run_id
from sterna.replication.replica.lag import lags_after_sync
from sterna.replication.replica.metadata_version import sync_digest
from sterna.replication.replica.model import CopyBatch, Plan, Report, StageReport, TableFailure, total_size
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.sync import bulk_run
from sterna.replication.sync.copy_progress import RunProgress, read_run_progress, write_completion_marker
from sterna.replication.sync.explain import PlanExplanation, explain
from sterna.replication.sync.localize import localize_files
from sterna.replication.sync.preflight import localization_failures
from sterna.replication.sync.publish import is_up_to_date, publish_plan, resolve_plan
from sterna.replication.sync.restore_branch import restore_branch
from sterna.replication.sync.stage_spans import (
    annotate_plan,
    batch_attributes,
    report_attributes,
    run_attributes,
    stage_attributes,
    sync_attributes,
)
from sterna.replication.sync.verbatim import complete_verbatim, copy_verbatim
from sterna.tracing.span import Attributes, own_attributes, traced

T = TypeVar("T")
# Seconds that a sync waits for a clean-up, which deletes for half a minute at a time: enough to see that one is dead.
MAX_WAIT_SECONDS = 1.25 * GC_EXPIRY_SECONDS
# Returns why the planning process must not execute a plan; "" where it may.
DeferralCheck = Callable[[RegionContext, Plan, "pa.Table | None"], str]


@dataclass(frozen=True)
class PlannedRun:
    """The result of the plan stage, small enough for an XCom; the list of files is kept beside the replica.

    Args:
        run: URI of the run's folder, `<replica root>/_sterna/runs/<run id>`; "" when there is nothing to do.
        report: how the sync ended, when nothing is to be done.
        explained: what the plan would do, when something is to be done.
        deferred: why the plan is left to others; it is not saved then.
    """

    run: str
    batches: tuple[CopyBatch, ...]
    report: Report | None = None
    explained: PlanExplanation | None = None
    deferred: str = ""


def _planned_attributes(planned: PlannedRun) -> Attributes:
    outcome = planned.report.outcome if planned.report else "deferred" if planned.deferred else "planned"
    files, size = total_size(planned.batches)
    return own_attributes(outcome=outcome, batches=len(planned.batches), files=files, bytes=size)


@traced("sterna.plan", sync_attributes, _planned_attributes)
def plan(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    deferral_check: DeferralCheck | None = None,
    engine: Engine | None = None,
) -> PlannedRun:
    """Plan a sync and write the plan beside the replica, unless there is nothing to do.

    On request, restore the branch first.

    Args:
        options: those of the sync.
        deferral_check: returns why a plan that has something to do is left to others; with it the plan needs no Spark.
        engine: lists the new files of tables that have very many; by default the region's Spark.

    Raises:
        Busy: for the large lane: another one is at work. Or a clean-up deletes files for longer than it should.
    """
    started = time.monotonic()
    context.objects.reset_circuit_breakers()
    if options.lane == "large":
        bulk_run.require_no_bulk_run(context)
    if options.restore_branch:
        _retry_while_busy(lambda: restore_branch(context, progress), progress)
        options = replace(options, full=True)
    run_id = new_run_id()
    run_context = context.with_read_cache(run_folder.run_uri(context, run_id))
    with engine_or_spark(context, progress, engine) as active_engine:
        listing_engine = None if deferral_check or context.region.localize == "here" else active_engine
        sync_plan, files = _retry_while_busy(
            lambda: make_plan(run_context, options, progress, run_id, listing_engine), progress
        )
    annotate_plan(sync_plan)
    progress(summarize(sync_plan))
    if sync_plan.idle:
        return PlannedRun("", (), _finish_idle(run_context, sync_plan, started, progress))
    if reason := deferral_check(context, sync_plan, files) if deferral_check else "":
        run_folder.delete_working_files(context, run_folder.run_uri(context, run_id))
        return PlannedRun("", (), deferred=reason)
    explained = explain(context, sync_plan, files)
    for action in explained.actions:
        if action.catalogs:
            progress(f"view {action.key} names {', '.join(action.catalogs)}: readers of the replica read there, too")
    return PlannedRun(_save_plan(context, sync_plan, files), sync_plan.batches, explained=explained)


def _finish_idle(context: RegionContext, sync_plan: Plan, started: float, progress: Progress) -> Report:
    """End a sync that has nothing to publish, and return its report.

    Args:
        context: the region, opened for the run.
        started: when it began, by the monotonic clock.
    """
    if sync_plan.lane:
        bulk_run.record_excluded(context, sync_plan)
    for held_key in sync_plan.held:
        progress(held_key.line)
    watermark_kept = sync_plan.watermark != sync_plan.source_hash
    report = _report(context, sync_plan, sync_plan.held, started, watermark_kept=watermark_kept)
    if sync_plan.held:
        run_folder.save_report(context, report)  # it was a try, and a try leaves a trace
    complete_verbatim(context, sync_plan, (), progress)
    if sync_plan.held or sync_plan.verbatim:
        run_folder.delete_working_files(context, context.run)
    return report


def _save_plan(context: RegionContext, sync_plan: Plan, files: pa.Table | None) -> str:
    """Save a plan, record the start of its bulk run in the large lane, and return the URI of the run's folder."""
    if not sync_plan.lane:
        return run_folder.save_plan(context, sync_plan, files)
    try:
        bulk_run.require_no_bulk_run(context)  # it may have begun since: to list a very large table takes long
    except Busy:
        run_folder.delete_working_files(context, run_folder.run_uri(context, sync_plan.run_id))
        raise
    run = run_folder.save_plan(context, sync_plan, files)
    bulk_run.start_bulk_run(context, sync_plan, files)
    return run


@traced("sterna.copy", batch_attributes, stage_attributes)
def copy(
    context: RegionContext,
    run: str,
    batch: int,
    progress: Progress,
    *,
    deadline: float = DEFAULT_DEADLINE_SECONDS,
    unavailable: Unavailable | None = None,
    engine: Engine | None = None,
) -> StageReport:
    """Copy one batch of a plan and prove every file of it present with its size.

    A foreign store that can't be used fails the tables that need it. In the large lane, tables that the batch completes
    are localized, too.

    Args:
        run: URI of the run's folder.
        deadline: seconds after which the copy is ended.
        unavailable: stores that did not answer for earlier batches; those of this one are added.
        engine: where to localize; by default the region's Spark.

    Raises:
        StoreError, EngineError: it failed altogether, or it fails all that is to be published; doing it
            again sends nothing twice that arrived.
        UsageError: the registry changed since the plan.
    """
    sync_plan = _load_stage_plan(context, run)
    run_progress = read_run_progress(context, run, sync_plan)
    columns = ("table", "source", "target", "size")
    planned_batch = next((candidate for candidate in sync_plan.batches if candidate.number == batch), None)
    list_name = planned_batch.list_name if planned_batch else ""
    files = run_folder.load_files(context, run, batch=batch, list_name=list_name)
    rows = files.select(columns).to_pylist()
    heartbeat = bulk_run.heartbeat_of(context, sync_plan, batch, files) if sync_plan.lane else None
    copied = copy_batch(
        [CopyFile(**row) for row in rows],
        context.mapping,
        context.secrets,
        context.objects,
        progress=_progress_callback(progress, run_progress, batch, heartbeat),
        deadline=deadline,
        unavailable=unavailable,
        order=SourceOrder(planned_batch.preferred, planned_batch.fallbacks) if planned_batch else SourceOrder(),
    )
    for region, size in copied.sent_from.items():
        progress(f"{size} bytes came from {region}, and not from their origins")
    failed = {failure.table: failure for failure in map(TableFailure.from_error, reversed(copied.failures))}
    missing = len({row["target"] for row in rows}) - copied.files
    report = StageReport(
        copied.files,
        copied.bytes,
        copied.sent,
        tuple(failed.values()),
        missing,
        run_folder.run_id_from_uri(run),
        sent_from=copied.sent_from,
    )
    if heartbeat:
        heartbeat.report(1.0, force=True)
    _raise_if_unpublishable(sync_plan, report)
    if report.failed and heartbeat is None:
        return report
    write_completion_marker(context, run, sync_plan, batch, failed)
    run_progress = read_run_progress(context, run, sync_plan).with_batch(batch, failed)
    progress(run_progress.progress_line(batch))
    if heartbeat is None:
        return report
    return replace(
        report, here=bulk_run.localize_completed(context, run, sync_plan, batch, run_progress, engine, progress)
    )


@traced("sterna.localize", run_attributes, stage_attributes)
def localize(
    context: RegionContext, run: str, copied: StageReport, progress: Progress, engine: Engine | None = None
) -> StageReport:
    """Localize what a plan lists, but for tables that failed to be copied; by default on the region's Spark.

    Raises:
        StoreError, EngineError: it failed altogether, or nothing is left to be published since stores of
            others can't be used; a later run resumes.
        UsageError: the registry changed since the plan.
    """
    sync_plan = _load_stage_plan(context, run)
    _raise_if_unpublishable(sync_plan, copied)
    excluded = [failure.table for failure in copied.failed] + (
        bulk_run.announced_tables(context, sync_plan) if sync_plan.lane else []
    )
    files = listing.exclude_tables(run_folder.load_files(context, run), excluded)
    keepalive = keep_alive(context, sync_plan.run_id) if sync_plan.lane else nullcontext()
    with keepalive, engine_or_spark(context, progress, engine) as active_engine:
        report = localize_files(context, run, files, active_engine, progress)
        failed = [failure.table for failure in report.failed]
        copy_verbatim(context, run, sync_plan, listing.exclude_tables(files, failed), progress)
    report = replace(report, run_id=run_folder.run_id_from_uri(run))
    _raise_if_unpublishable(sync_plan, copied + report)
    return report


def blocking_error(context: RegionContext, run: str, copied: StageReport) -> SternaError | None:
    """Return the error that keeps every change of a plan from being published; None where one can be.

    Localizing again helps as little as the first time: what is missing has to be copied.

    Raises:
        StoreError: the plan can't be read.
        UsageError: the registry changed since the plan.
    """
    sync_plan = load_plan(context, run)
    try:
        _raise_if_unpublishable(sync_plan, copied)
    except SternaError as error:
        return error
    return None


@traced("sterna.finish_bulk", run_attributes, report_attributes)
def finish_bulk(
    context: RegionContext, run: str, copied: StageReport, localized: StageReport, progress: Progress
) -> Report:
    """End a bulk run: its files are here, or the reasons for missing ones are known. Nothing is published.

    Raises:
        UsageError: the plan is the small lane's, the copy reports don't cover its files, or the registry changed since.
        StoreUnreachable, StoreDenied, CatalogError: the region's store, or the catalog, can't be used.
    """
    started = time.monotonic()
    sync_plan = _load_stage_plan(context, run)
    _require_all_batches(sync_plan, copied)
    report = bulk_run.finish_bulk_run(context, run, sync_plan, copied, localized, time.monotonic() - started)
    run_folder.delete_working_files(context, run, sync_plan)
    progress(f"copied: {copied.files} files, {copied.bytes} bytes are here; {len((copied + localized).failed)} failed")
    return report


@traced("sterna.publish", run_attributes, report_attributes)
def publish(
    context: RegionContext, run: str, copied: StageReport, localized: StageReport, progress: Progress
) -> Report:
    """Publish a plan in one commit, compared-and-swapped on the head that it was made for; write the report beside it.

    Then verbatim copies that are missing are written, and what the run's stages handed on to one another is deleted.

    Where every table failed as it did the last time there is nothing to commit.

    Raises:
        UsageError: the copy reports don't cover the plan's files, or a table isn't localized: something was left out;
            or the registry changed since the plan.
    """
    started = time.monotonic()
    sync_plan = _load_stage_plan(context, run)
    if sync_plan.lane:
        raise UsageError("this run's plan is for the large lane, which publishes nothing: end it, and sync")
    _require_all_batches(sync_plan, copied)
    localized, resolution = _resolve_proven(context, run, sync_plan, copied, localized)
    idle = is_up_to_date(context, sync_plan, resolution)
    new_head = sync_plan.replica_hash if idle else publish_plan(context, sync_plan, resolution, progress)
    if new_head:
        wait_until_served(context, new_head, progress)
    head = read_head(context.primary, context.region.replica_branch)
    # The other run need not have published what this one planned: a clean-up publishes nothing.
    superseded = new_head is None and head.watermark != sync_plan.source_hash
    watermark_kept = sync_plan.more or sync_plan.filtered
    report = replace(
        _report(context, sync_plan, resolution.held, started, watermark_kept=watermark_kept),
        outcome="idle" if idle else "published" if new_head else "superseded",
        replica_hash=new_head or "",
        watermark=head.watermark,
        published=tuple(action.key for action in resolution.actions) if new_head else (),
        copied=copied,
        localized=localized,
        more=sync_plan.more or superseded or _has_main_moved(context, sync_plan, copied + localized),
        large=sync_plan.bulk_run_needed and bool(new_head),
    )
    run_folder.save_report(context, report)
    progress(f"{report.outcome}: {len(report.published)} keys, {len(report.held)} held, lag {report.lag_text}")
    if report.outcome == "published":
        update_delay_index(context, progress)
    complete_verbatim(context.with_read_cache(run), sync_plan, resolution.actions if new_head else (), progress)
    run_folder.delete_working_files(context, run, sync_plan)
    return report


def summarize(sync_plan: Plan) -> str:
    """Return a plan in one line."""
    if sync_plan.idle:
        return f"nothing to do: {sync_plan.region} is at main@{sync_plan.source_hash[:12]}, {len(sync_plan.held)} held"
    files, size = total_size(sync_plan.batches)
    puts = sum(1 for action in sync_plan.actions if action.target)
    drops = sum(1 for action in sync_plan.actions if action.change == "drop")
    return (
        f"main@{sync_plan.source_hash[:12]} to {sync_plan.region}: {puts} tables and views to put, {drops} to drop, "
        f"{sync_plan.unchanged} left, {len(sync_plan.held)} held; "
        f"{files} files, {size} bytes to copy in {len(sync_plan.batches)} batches"
    )


def _retry_while_busy(operation: Callable[[], T], progress: Progress) -> T:
    """Do something once no clean-up deletes files; wait for it a while."""
    end = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        try:
            return operation()
        except Busy as error:
            if time.monotonic() > end:
                raise
            progress(f"waiting: {error.message}")
            time.sleep(1.0)


def _require_all_batches(sync_plan: Plan, copied: StageReport) -> None:
    expected, _ = total_size(sync_plan.batches)
    if copied.files + copied.missing != expected:
        raise UsageError(
            f"{expected} files were to be copied, {copied.files} are proven present and {copied.missing} failed: a "
            "copy batch was left out"
        )


def _load_stage_plan(context: RegionContext, run: str) -> Plan:
    sync_plan = load_plan(context, run)
    annotate_plan(sync_plan)
    return sync_plan


def load_plan(context: RegionContext, run: str) -> Plan:
    """Return the plan of a run.

    Raises:
        UsageError: this version doesn't understand it.
    """
    try:
        sync_plan = run_folder.load_plan(context, run)
    except MalformedRecord as error:
        raise UsageError(
            f"the run's plan isn't one that this version understands: {error}",
            file=f"{run}/{run_names.PLAN}",
            hint="start a new sync",
        ) from error
    current_digest = sync_digest(context.registry, context.mapping)
    if sync_plan.digest != current_digest or sync_plan.registry not in ("", context.registry.fingerprint()):
        raise UsageError(
            "the registry changed since this run's plan was made: where its files belong may be elsewhere now; start "
            "a new sync"
        )
    return sync_plan


def _resolve_proven(
    context: RegionContext, run: str, sync_plan: Plan, copied: StageReport, localized: StageReport
) -> tuple[StageReport, Resolution]:
    """Resolve what may be published; return it, and the localize stage's report with the failures of this check."""
    resolution = resolve_plan(sync_plan, copied + localized)
    _require_localized(context, sync_plan, resolution, localized)
    tables = {action.key for action in resolution.actions if action.target}
    failures = localization_failures(context, run_folder.load_files(context, run), tables) if tables else ()
    if not failures or read_head(context.primary, context.region.replica_branch).hash != sync_plan.replica_hash:
        return localized, resolution  # a run that was overtaken is published no more, whatever is left of it
    localized += StageReport(failed=failures)
    return localized, resolve_plan(sync_plan, copied + localized)


def _require_localized(context: RegionContext, sync_plan: Plan, resolution: Resolution, localized: StageReport) -> None:
    """Require that every metadata.json that is about to be published exists: it is written last of its table's files.

    Its existence doesn't show when it was written: an earlier run may have, and a clean-up may have run since. So this
    run's localize stage must have succeeded. An overtaken run is not published, whatever is left of it: its commit
    fails.
    """
    targets = {action.target: action.key for action in resolution.actions if action.target}
    sizes = context.objects.sizes(targets) if targets else {}
    is_current = localized.run_id == sync_plan.run_id
    missing = next((target for target in targets if not is_current or sizes[target] is None), None)
    if missing is not None and read_head(context.primary, context.region.replica_branch).hash == sync_plan.replica_hash:
        raise UsageError(
            "the table isn't localized: the localize stage was left out", table=targets[missing], file=missing
        )


def _has_main_moved(context: RegionContext, sync_plan: Plan, reports: StageReport) -> bool:
    """A file was gone at its source, and `main` has moved since the plan.

    The newest metadata may not need it any more.
    """
    source_gone = any(failure.kind == "SourceGone" for failure in reports.failed)
    return source_gone and context.primary.reference(SOURCE_BRANCH).hash != sync_plan.source_hash


def _report(
    context: RegionContext, sync_plan: Plan, held: tuple[Held, ...], started: float, *, watermark_kept: bool
) -> Report:
    """Return the report of a sync that published nothing.

    Args:
        held: the keys that stay behind.
        started: when the stage began, by the monotonic clock.
        watermark_kept: it leaves the watermark where it was.
    """
    lags = lags_after_sync(context, sync_plan.oldest, watermark_kept, held)
    faulty, in_transit = split_in_transit(held)
    return Report(
        run_id=sync_plan.run_id,
        region=sync_plan.region,
        source_hash=sync_plan.source_hash,
        outcome="idle",
        replica_hash=sync_plan.replica_hash,
        watermark=sync_plan.watermark,
        held=faulty,
        lag_seconds=lags.oldest,
        watermark_lag_seconds=lags.watermark,
        seconds=time.monotonic() - started,
        transit=in_transit,
        large=sync_plan.bulk_run_needed,
    )


def _progress_callback(
    progress: Progress, run_progress: RunProgress, batch: int, heartbeat: Heartbeat | None
) -> Callable[[CopyProgress], None]:
    started = time.monotonic()

    def report(state: CopyProgress) -> None:
        progress(run_progress.progress_line(batch, state, time.monotonic() - started))
        if heartbeat:
            heartbeat.report(state.bytes / max(state.bytes_total, 1))

    if heartbeat:
        heartbeat.report(0.0, force=True)
    return report


def _raise_if_unpublishable(sync_plan: Plan, failed: StageReport) -> None:
    if not sync_plan.lane:  # what the large lane can't copy, the small one reports
        raise_if_unpublishable(
            sync_plan, sync_plan.bulk_run_needed or bool(resolve_plan(sync_plan, failed).actions), failed
        )
