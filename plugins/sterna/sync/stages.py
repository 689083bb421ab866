"""The stages of a sync: plan, copy, localize, publish.

A DAG calls them task by task; `sterna.sync.run` strings them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sterna.errors import Busy, SternaError, UsageError
from sterna.json_record import MalformedRecord
from sterna.registry import run_names
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica import file_list as listing
from sterna.replica import run_folder
from sterna.replica.catalog_copy import wait_until_served
from sterna.replica.head import COLLECTING_SECONDS, read_head
from sterna.replica.ids import new_run_id
from sterna.replica.lag import lags_after
from sterna.replica.records import Batch, Plan, Report, StageReport, TableFailure
from sterna.replica.region import Progress, RegionContext
from sterna.replica.transit import Heart, at_work
from sterna.sync import lanes
from sterna.sync.blame import raise_when_nobody_goes_on
from sterna.sync.copy import DEFAULT_DEADLINE, CopyFile, CopyProgress, copy_batch
from sterna.sync.engine import Engine, engine_or_spark
from sterna.sync.explain import PlanExplained, explain
from sterna.sync.holds import Settled
from sterna.sync.localize import localize_files
from sterna.sync.options import SyncOptions
from sterna.sync.plan.make import make_plan, sync_digest
from sterna.sync.proof import not_localized
from sterna.sync.publish import changes_nothing, publish_plan, settle_plan
from sterna.sync.reassert import reassert
from sterna.sync.sizes import Dark
from sterna.sync.whole import Whole, mark_done, read_whole

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
# Seconds that a sync waits for a clean-up, which deletes for half a minute at a time: enough to see that one is dead.
PATIENCE_SECONDS = 1.25 * COLLECTING_SECONDS
# Says why a plan is not to be carried out by who made it; "" where it is.
Refuses = Callable[[RegionContext, Plan, "pa.Table | None"], str]


@dataclass(frozen=True)
class Planned:
    """What the plan stage hands on: small enough for an XCom; the list of files stands beside the replica.

    Args:
        run: URI of the run's folder, `<replica root>/_sterna/runs/<run id>`; "" when there is nothing to do.
        batches: what to copy.
        report: how the sync ended, when nothing is to be done.
        explained: what the plan would do, when something is to be done.
        left: why the plan is left to somebody else; nothing of it stands beside the replica then.
    """

    run: str
    batches: tuple[Batch, ...]
    report: Report | None = None
    explained: PlanExplained | None = None
    left: str = ""


def plan(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    refuses: Refuses | None = None,
    engine: Engine | None = None,
) -> Planned:
    """Plan a sync and write the plan beside the replica, unless there is nothing to do.

    Where it was asked for, reassert first.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        refuses: says why a plan that has something to do is left to somebody else; with it the plan needs no Spark.
        engine: lists the new files of tables that have very many; by default the region's Spark.

    Raises:
        Busy: for the large lane: another one is at work. Or a clean-up deletes files for longer than it should.
    """
    started = time.monotonic()
    context.objects.ask_again()
    if options.lane == "large":
        lanes.refuse_second(context)
    if options.reassert:
        _when_nothing_is_deleted(lambda: reassert(context, progress), progress)
        options = replace(options, everything=True)
    run_id = new_run_id()
    keeping = context.fetching(run_folder.run_uri(context, run_id))
    with engine_or_spark(context, progress, engine) as used:
        dealt = None if refuses or context.region.localize == "here" else used
        made, files = _when_nothing_is_deleted(lambda: make_plan(keeping, options, progress, run_id, dealt), progress)
    progress(summarize(made))
    if made.idle:
        if made.lane:
            lanes.left_out(context, made)
        for item in made.held:
            progress(item.line)
        report = _idle_report(context, made, time.monotonic() - started)
        if made.held:
            run_folder.save_report(context, report)  # it was a try, and a try leaves a trace
            run_folder.drop_working(context, run_folder.run_uri(context, run_id))
        return Planned("", (), report)
    if left := refuses(context, made, files) if refuses else "":
        run_folder.drop_working(context, run_folder.run_uri(context, run_id))
        return Planned("", (), left=left)
    explained = explain(context, made, files)
    for action in explained.actions:
        if action.catalogs:
            progress(f"view {action.key} names {', '.join(action.catalogs)}: readers of the replica read there, too")
    return Planned(_begun(context, made, files), made.batches, explained=explained)


def _begun(context: RegionContext, made: Plan, files: pa.Table | None) -> str:
    """Write a plan, and say that its round begins, where it is the large lane's; return the URI of the run's folder."""
    if not made.lane:
        return run_folder.save_plan(context, made, files)
    try:
        lanes.refuse_second(context)  # it may have begun since: to list a very large table takes long
    except Busy:
        run_folder.drop_working(context, run_folder.run_uri(context, made.run_id))
        raise
    run = run_folder.save_plan(context, made, files)
    lanes.begin(context, made, files)
    return run


def copy(
    context: RegionContext,
    run: str,
    batch: int,
    progress: Progress,
    *,
    deadline: float = DEFAULT_DEADLINE,
    dark: Dark | None = None,
    engine: Engine | None = None,
) -> StageReport:
    """Copy one batch of a plan and prove every file of it present with its size.

    A store of somebody else's that can't be used fails the tables that need it. In the large lane, tables whose files
    are all here by that are localized, too.

    Args:
        context: the region.
        run: URI of the run's folder.
        batch: the batch's number.
        progress: called with lines for people.
        deadline: seconds after which the copy is ended.
        dark: stores that don't answer, as the batches before found out; takes those that this one finds.
        engine: where to localize; by default the region's Spark.

    Raises:
        StoreError, EngineError: it could not be done as a whole, or it fails all that is to be published; doing it
            again sends nothing twice that arrived.
        UsageError: the registry changed since the plan.
    """
    made = plan_of(context, run)
    whole = read_whole(context, run, made)
    columns = ("table", "source", "target", "size")
    listed = next((each.listed for each in made.batches if each.number == batch), "")
    files = run_folder.load_files(context, run, batch=batch, listed=listed)
    rows = files.select(columns).to_pylist()
    heart = lanes.heart_of(context, made, batch, files) if made.lane else None
    result = copy_batch(
        [CopyFile(**row) for row in rows],
        context.mapping,
        context.secrets,
        context.objects,
        progress=_lines(progress, whole, batch, heart),
        deadline=deadline,
        dark=dark,
    )
    failed = {entry.table: entry for entry in map(TableFailure.of, reversed(result.failures))}
    missing = len({row["target"] for row in rows}) - result.files
    report = StageReport(
        result.files, result.bytes, result.sent, tuple(failed.values()), missing, run_folder.run_id_of(run)
    )
    if heart:
        heart.beat(1.0, now=True)
    _raise_when_nobody_goes_on(made, report)
    if report.failed and heart is None:
        return report
    mark_done(context, run, made, batch, failed)
    whole = read_whole(context, run, made).with_batch(batch, failed)
    progress(whole.amount(batch))
    if heart is None:
        return report
    return replace(report, here=lanes.brought_by(context, run, made, batch, whole, engine, progress))


def localize(
    context: RegionContext, run: str, copied: StageReport, progress: Progress, engine: Engine | None = None
) -> StageReport:
    """Localize what a plan lists, but for tables that failed to be copied; by default on the region's Spark.

    Raises:
        StoreError, EngineError: it could not be done as a whole, or nothing is left to be published since stores of
            others can't be used; a later run resumes.
        UsageError: the registry changed since the plan.
    """
    made = plan_of(context, run)
    _raise_when_nobody_goes_on(made, copied)
    left_out = [item.table for item in copied.failed] + (lanes.are_here(context, made) if made.lane else [])
    files = listing.without_tables(run_folder.load_files(context, run), left_out)
    alive = at_work(context, made.run_id) if made.lane else nullcontext()
    with alive, engine_or_spark(context, progress, engine) as used:
        report = localize_files(context, run, files, used, progress)
    report = replace(report, run_id=run_folder.run_id_of(run))
    _raise_when_nobody_goes_on(made, copied + report)
    return report


def why_nothing_is_left(context: RegionContext, run: str, copied: StageReport) -> SternaError | None:
    """Return what keeps every change of a plan from being published, where its copies say so; None where one goes on.

    Localizing again helps as little as the first time: what is missing has to be copied.

    Raises:
        StoreError: the plan can't be read.
        UsageError: the registry changed since the plan.
    """
    made = plan_of(context, run)
    try:
        _raise_when_nobody_goes_on(made, copied)
    except SternaError as error:
        return error
    return None


def arrive(context: RegionContext, run: str, copied: StageReport, localized: StageReport, progress: Progress) -> Report:
    """End a round of the large lane: its files are here, or it is known why not. Nothing is published.

    Raises:
        UsageError: the plan is the small lane's, the copy reports don't cover its files, or the registry changed since.
        StoreUnreachable, StoreDenied, CatalogError: the region's store, or the catalog, can't be used.
    """
    started = time.monotonic()
    made = plan_of(context, run)
    _count(made, copied)
    report = lanes.finish(context, run, made, copied, localized, time.monotonic() - started)
    run_folder.drop_working(context, run, made)
    progress(f"copied: {copied.files} files, {copied.bytes} bytes are here; {len((copied + localized).failed)} failed")
    return report


def publish(
    context: RegionContext, run: str, copied: StageReport, localized: StageReport, progress: Progress
) -> Report:
    """Publish a plan in one commit, compared-and-swapped on the head that it was made for; write the report beside it.

    What the run's stages handed on to one another is deleted then.

    Where every table failed as it did the last time there is nothing to commit.

    Raises:
        UsageError: the copy reports don't cover the plan's files, or a table isn't localized: something was left out;
            or the registry changed since the plan.
    """
    started = time.monotonic()
    made = plan_of(context, run)
    if made.lane:
        raise UsageError("this run's plan is for the large lane, which publishes nothing: end it, and sync")
    _count(made, copied)
    localized, settled = _proven(context, run, made, copied, localized)
    idle = changes_nothing(context, made, settled)
    new_head = made.replica_hash if idle else publish_plan(context, made, settled, progress)
    if new_head:
        wait_until_served(context, new_head, progress)
    head = read_head(context.primary, context.region.replica_branch)
    # Whoever was first need not have brought what this run planned: a clean-up brings nothing.
    overtaken = new_head is None and head.watermark != made.source_hash
    lags = lags_after(context, made.oldest, made.more or made.filtered, settled.held)
    report = Report(
        run_id=made.run_id,
        region=made.region,
        source_hash=made.source_hash,
        outcome="idle" if idle else "published" if new_head else "superseded",
        replica_hash=new_head or "",
        watermark=head.watermark,
        published=tuple(action.key for action in settled.actions) if new_head else (),
        held=tuple(item for item in settled.held if not item.in_transit),
        copied=copied,
        localized=localized,
        lag_seconds=lags.oldest,
        watermark_lag_seconds=lags.watermark,
        seconds=time.monotonic() - started,
        more=made.more or overtaken or _moved_on(context, made, copied + localized),
        transit=tuple(item for item in settled.held if item.in_transit),
        large=made.large and bool(new_head),
    )
    run_folder.save_report(context, report)
    run_folder.drop_working(context, run, made)
    progress(f"{report.outcome}: {len(report.published)} keys, {len(report.held)} held, lag {report.lag_text}")
    return report


def summarize(made: Plan) -> str:
    """Return a plan in one line."""
    if made.idle:
        return f"nothing to do: {made.region} stands for main@{made.source_hash[:12]}, {len(made.held)} held"
    files, size = sum(batch.files for batch in made.batches), sum(batch.bytes for batch in made.batches)
    changes = (
        sum(1 for action in made.actions if action.target),
        sum(1 for action in made.actions if action.change == "drop"),
    )
    return (
        f"main@{made.source_hash[:12]} to {made.region}: {changes[0]} tables and views to put, {changes[1]} to drop, "
        f"{made.left} left, "
        f"{len(made.held)} held; {files} files, {size} bytes to copy in {len(made.batches)} batches"
    )


def _when_nothing_is_deleted(make: Callable[[], T], progress: Progress) -> T:
    """Do something once no clean-up deletes files; wait for it a while."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return make()
        except Busy as error:
            if time.monotonic() > end:
                raise
            progress(f"waiting: {error.message}")
            time.sleep(1.0)


def _count(made: Plan, copied: StageReport) -> None:
    wanted = sum(batch.files for batch in made.batches)
    if copied.files + copied.missing != wanted:
        raise UsageError(
            f"{wanted} files were to be copied, {copied.files} are proven present and {copied.missing} failed: a "
            "copy batch was left out"
        )


def plan_of(context: RegionContext, run: str) -> Plan:
    """Return the plan of a run.

    Raises:
        UsageError: this version doesn't understand it.
    """
    try:
        made = run_folder.load_plan(context, run)
    except MalformedRecord as error:
        raise UsageError(
            f"the run's plan isn't one that this version understands: {error}",
            file=f"{run}/{run_names.PLAN}",
            hint="start a new sync",
        ) from error
    if made.digest != sync_digest(context) or made.registry not in ("", context.registry.fingerprint()):
        raise UsageError(
            "the registry changed since this run's plan was made: where its files belong may be elsewhere now; start "
            "a new sync"
        )
    return made


def _proven(
    context: RegionContext, run: str, made: Plan, copied: StageReport, localized: StageReport
) -> tuple[StageReport, Settled]:
    """Settle what may be published; return it, and what the localize stage said with what isn't as it said."""
    settled = settle_plan(made, copied + localized)
    _prove_localized(context, made, settled, localized)
    tables = {action.key for action in settled.actions if action.target}
    wrong = not_localized(context, run_folder.load_files(context, run), tables) if tables else ()
    if not wrong or read_head(context.primary, context.region.replica_branch).hash != made.replica_hash:
        return localized, settled  # a run that was overtaken is published no more, whatever is left of it
    localized += StageReport(failed=wrong)
    return localized, settle_plan(made, copied + localized)


def _prove_localized(context: RegionContext, made: Plan, settled: Settled, localized: StageReport) -> None:
    """See that every metadata.json that is about to be published is there: it is written last of all its table's files.

    That it is there doesn't tell when it was written: an earlier run may have, and a clean-up been there since. So this
    run's localize stage has to have been done. A run that was overtaken is published no more, whatever is left of it:
    the commit finds that out.
    """
    targets = {action.target: action.key for action in settled.actions if action.target}
    sizes = context.objects.sizes(targets) if targets else {}
    done = localized.run_id == made.run_id
    missing = next((target for target in targets if not done or sizes[target] is None), None)
    if missing is not None and read_head(context.primary, context.region.replica_branch).hash == made.replica_hash:
        raise UsageError(
            "the table isn't localized: the localize stage was left out", table=targets[missing], file=missing
        )


def _moved_on(context: RegionContext, made: Plan, reports: StageReport) -> bool:
    """A file was gone at its source, and `main` has moved since the plan.

    The newest metadata may not need it any more.
    """
    gone = any(item.kind == "SourceGone" for item in reports.failed)
    return gone and context.primary.reference(SOURCE_BRANCH).hash != made.source_hash


def _idle_report(context: RegionContext, made: Plan, seconds: float) -> Report:
    lags = lags_after(context, made.oldest, made.watermark != made.source_hash, made.held)
    return Report(
        run_id=made.run_id,
        region=made.region,
        source_hash=made.source_hash,
        outcome="idle",
        replica_hash=made.replica_hash,
        watermark=made.watermark,
        held=tuple(item for item in made.held if not item.in_transit),
        lag_seconds=lags.oldest,
        watermark_lag_seconds=lags.watermark,
        seconds=seconds,
        transit=tuple(item for item in made.held if item.in_transit),
        large=made.large,
    )


def _lines(progress: Progress, whole: Whole, batch: int, heart: Heart | None) -> Callable[[CopyProgress], None]:
    began = time.monotonic()

    def told(state: CopyProgress) -> None:
        progress(whole.amount(batch, state, time.monotonic() - began))
        if heart:
            heart.beat(state.bytes / max(state.bytes_total, 1))

    if heart:
        heart.beat(0.0, now=True)
    return told


def _raise_when_nobody_goes_on(made: Plan, failed: StageReport) -> None:
    if not made.lane:  # what the large lane can't bring, the small one tells
        raise_when_nobody_goes_on(made, made.large or bool(settle_plan(made, failed).actions), failed)
