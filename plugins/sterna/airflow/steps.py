"""What the tasks of add-ons do: each opens the region, works for a while, and returns its counts and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from sterna.airflow.base import SternaServicesOperator, parse_options
from sterna.airflow.lineage import capture_lineage, feature_lineage, ingest_lineage, transform_lineage
from sterna.errors import SternaError, UsageError, list_some, printable

if TYPE_CHECKING:
    from sterna.config.sections.maintenance import Maintenance
    from sterna.config.sections.model import Services
    from sterna.maintenance.gc.model import GcOptions
    from sterna.pipelines.ingest.batch_publisher import BatchOutcome
    from sterna.replication.repair.plan import RemainingFault
    from sterna.replication.verify.findings import Finding
    from sterna.replication.verify.run import Depth
    from sterna.runtime.status import ReconcilerStatus


PAUSE_ACTIONS: Final = ("pause", "resume")


class StepOperator(SternaServicesOperator):
    """The operator of a step, as the step sees it.

    Args:
        names: of the sources, transforms or views; none: all.
        follow_for: for how long it polls for more; 0: once.
        options: a mapping or its JSON text. Of `gc`: `keep` and `grace` (durations such as `7d`), `evict`, `dry_run`.
            Of maintenance: `tables` (key names or patterns) and `dry_run`. Of `pause`: `tables` (key names), `action`
            (`pause` or `resume`) and `reason`. Of `verify`: `tables`, `deep`, and `sample` such as `1/30`. Of `repair`:
            `tables`, `deep` and `dry_run`.
        kwargs: see `SternaServicesOperator`.
    """

    template_fields = (*SternaServicesOperator.template_fields, "options")

    def __init__(
        self,
        *,
        names: Sequence[str] = (),
        follow_for: timedelta = timedelta(0),
        options: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.names = tuple(names)
        self.follow_for = follow_for
        self.options = options or {}
        self._stop: Callable[[], object] | None = None

    @contextmanager
    def stopped_by(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call a function to end the block in an orderly way if the task is killed."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def on_kill(self) -> None:
        """End the running step when the task is cleared or marked; do nothing after its end."""
        if self._stop is not None:
            self._stop()


@dataclass(frozen=True)
class Outcome:
    """How a step ended.

    Args:
        counts: what the task returns, also where it fails for an alarm.
        failed: errors, by what each happened to, as `RunSummary.errors` has them; the others have continued.
        alarms: why an operator is needed although there is no such error, a line for each reason.
        statuses: of consumers that were looked at; their alarms need an operator, too.
        ends_run: skip the tasks that follow.
        sync_reason: why a run of the sync is to start; "" for none.
    """

    counts: Any
    failed: Mapping[str, SternaError] = field(default_factory=dict)
    alarms: Sequence[str] = ()
    statuses: Sequence[ReconcilerStatus] = ()
    ends_run: bool = False
    sync_reason: str = ""


def capture_changes(task: StepOperator, services: Services) -> Outcome:
    """Follow sources, and apply their changes to `main`; count the steps."""
    from sterna.pipelines.cdc.run import CaptureRunner
    from sterna.pipelines.cdc.sources import open_sources

    region = task.open()
    runner = CaptureRunner(open_sources(region, services, task.names), task.log_progress)
    with task.stopped_by(runner.stop):
        summary = runner.run(task.follow_for.total_seconds())
    task.record_lineage(lambda: capture_lineage(region, services.cdc.sources, summary.steps))
    return Outcome(sum(summary.counts.values()), summary.errors)


def transform_tables(task: StepOperator, services: Services) -> Outcome:
    """Run transforms whose sources have changed; count the steps of each."""
    from sterna.config.services_file import services_folder
    from sterna.pipelines.transforms.run import run_transforms, select_transforms

    transforms, folder = select_transforms(services.transforms, task.names), services_folder(task.services_path)
    region, seconds, stopping = task.open_reloading(), task.follow_for.total_seconds(), Event()
    try:
        with task.stopped_by(stopping.set):
            summary = run_transforms(region.current, transforms, folder, task.log_progress, seconds, stopping)
        task.record_lineage(lambda: transform_lineage(region.current(), transforms, summary.steps))
    finally:
        region.disconnect()
    for name, reason in summary.idle.items():
        task.log_progress(f"{name}: {reason}")
    return Outcome(dict(summary.counts), summary.errors)


def publish_batches(task: StepOperator, services: Services) -> Outcome:
    """Put closed batches on `main`, as one worker; count them by state."""
    from sterna.pipelines.ingest.region import open_ingest
    from sterna.pipelines.ingest.worker import run_worker
    from sterna.text.ingest_worker import consolidated_text

    counts: Counter[str] = Counter()
    tables: set[str] = set()

    def on_batch_done(batch: BatchOutcome) -> None:
        counts[batch.state.value] += 1
        if batch.files:
            tables.add(batch.table)
        task.log_progress(consolidated_text(batch))

    region, seconds = task.open(), task.follow_for.total_seconds()
    with closing(open_ingest(region, services)) as ingest:
        summary = run_worker(region, ingest, on_batch_done, task.log_progress, seconds, once=not seconds)
        task.record_lineage(lambda: ingest_lineage(region, [ingest.region_settings.inbox], tables))
    # Batches with a transient error are requeued already: only the others fail the task.
    return Outcome(dict(counts), {name: summary.errors[name] for name in summary.stopped})


def materialize_views(task: StepOperator, services: Services) -> Outcome:
    """Update views of features from the replica; count the rows written of each."""
    from sterna.pipelines.features.region import materialize_all, require_features

    region, seconds, stopping = task.open(), task.follow_for.total_seconds(), Event()
    features = require_features(services, region.region.name)
    with task.stopped_by(stopping.set):
        summary = materialize_all(
            region, features, task.names, follow_for=seconds, report=task.log_progress, stopping=stopping
        )
    task.record_lineage(lambda: feature_lineage(region, features, summary.steps))
    counts: Counter[str] = Counter()
    for view in summary.steps:
        counts[view.view] += view.rows + view.gone
    return Outcome(dict(counts), summary.errors)


def check_views(task: StepOperator, services: Services) -> Outcome:
    """Report how late each view of features is; alarm where one is too late."""
    from sterna.pipelines.features.region import open_feature_store, require_features
    from sterna.pipelines.features.status import read_status
    from sterna.text.reconcilers import status_text

    region = task.open()
    features = require_features(services, region.region.name)
    with open_feature_store(region, features) as store:
        views = read_status(region, features, store)
    task.log_text(status_text(views))
    return Outcome({view.name: view.lag for view in views if view.lag is not None}, statuses=views)


def collect_garbage(task: StepOperator, services: Services) -> Outcome:
    """Delete what no kept head of the replica branch reaches; alarm where that failed for a file, or where maintenance
    keeps less than the clean-up does."""
    from sterna.maintenance.gc.run import run_gc
    from sterna.text.gc import collected_text

    options = parse_gc_options(task.options)
    options = replace(options, excluded_regions=services.retired_regions, keep_heads=services.keep_heads)
    with task.stopped_by(_end_gc):
        collected = run_gc(task.open(), options, task.log_progress)
    task.log_text(collected_text(collected, evict=options.evict))
    counts = {
        "pass_id": collected.pass_id,
        "dry_run": collected.dry_run,
        "unreachable_files": collected.unreachable.files,
        "unreachable_bytes": collected.unreachable.bytes,
        "garbage_files": collected.garbage.files,
        "garbage_bytes": collected.garbage.bytes,
        "deleted_files": collected.deleted.files,
        "deleted_bytes": collected.deleted.bytes,
    }
    short = [options.short_retention] if options.short_retention else []
    return Outcome(counts, alarms=[*short, *_undeleted_lines(collected.failed, "clean-up")])


def _end_gc() -> None:
    """Let the clean-up unwind, so that its fence is removed: one left behind would delay syncs by minutes.

    Raises:
        AirflowTaskTerminated: always; Airflow kills the task some seconds later.
    """
    from airflow.sdk.exceptions import AirflowTaskTerminated

    raise AirflowTaskTerminated("the clean-up was ended: the next one continues")


def plan_tables(task: StepOperator, services: Services) -> Outcome:
    """Log what maintenance would rewrite, and what that costs; a dry run ends here."""
    from sterna.maintenance.tables.plan import plan_maintenance
    from sterna.text.maintenance import plan_text

    tables, dry_run = parse_maintenance_options(task.options)
    region = task.open()
    plan = plan_maintenance(region, _maintenance(services), tables, task.log_progress)
    task.log_text(plan_text(plan))
    groups = [group for table in plan.tables for group in table.due_groups(region.region.name)]
    counts = {"tables": len(plan.tables), "groups": len(groups), "price": sum(group.price for group in groups)}
    return Outcome(counts, ends_run=dry_run)


def rewrite_files(task: StepOperator, services: Services) -> Outcome:
    """Rewrite the region's files; alarm where a table failed, or is starved by other writers."""
    from sterna.maintenance.tables.run import run_maintenance
    from sterna.text.maintenance import done_text

    tables, dry_run = parse_maintenance_options(task.options)
    summary = run_maintenance(task.open(), _maintenance(services), tables, task.log_progress, dry_run=dry_run)
    task.log_text(done_text(summary))
    counts = {
        "run_id": summary.run_id,
        "groups": sum(table.groups for table in summary.tables),
        "conflicts": sum(table.conflicts for table in summary.tables),
        "files": sum(table.replaced.files - table.written.files for table in summary.tables),
        "bytes": sum(table.written.bytes for table in summary.tables),
        "price": sum(table.written.price for table in summary.tables),
    }
    alarms = []
    if summary.failed:
        alarms.append(
            f"maintenance failed for {', '.join(summary.failed)}: the log has the reasons. Groups recorded as not "
            "writable are retried when their files or the rule change, or after a day; other failures by the next run"
        )
    if summary.starved:
        alarms.append(f"files of {', '.join(summary.starved)} are starved by other writers; the log has what waits")
    return Outcome(counts, alarms=alarms)


def expire_tables(task: StepOperator, services: Services) -> Outcome:
    """Expire snapshots that are no longer needed.

    Raises:
        UpkeepBlocked: expiry has to wait for a region, or for a table's metadata.
    """
    from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots, require_unblocked
    from sterna.text.expiry import expiry_text

    settings, (tables, dry_run) = _maintenance(services), parse_maintenance_options(task.options)
    region = task.open()
    remove = None if dry_run else SparkSnapshotRemover(region, settings)
    expiry = expire_snapshots(region, settings, tables=tables, remove=remove, progress=task.log_progress)
    task.log_text(expiry_text(expiry))
    require_unblocked(expiry)
    return Outcome({"tables": len(expiry.tables), "snapshots": sum(len(table.expired) for table in expiry.tables)})


def sweep_orphans(task: StepOperator, services: Services) -> Outcome:
    """Delete orphan files of the region; alarm where that failed for one.

    Raises:
        AirflowSkipException: neither the registry opts a location of the region in, nor the section `catalog`.
    """
    from airflow.sdk.exceptions import AirflowSkipException

    from sterna.config.orphan_removal import swept_folders, swept_roots
    from sterna.maintenance.tables.orphan_files import sweep
    from sterna.text.gc import swept_text

    settings, (_, dry_run) = _maintenance(services), parse_maintenance_options(task.options)
    region = task.open()
    near_roots = swept_roots(region.mapping, services)
    if not swept_folders(region.mapping, near_roots):
        raise AirflowSkipException(f"no location of region {region.region.name} has sweep: true in the registry")
    swept = sweep(
        region,
        settings,
        delete=not dry_run,
        excluded_prefixes=services.inbox_prefixes,
        near_roots=near_roots,
        progress=task.log_progress,
    )
    task.log_text(swept_text(swept))
    counts = {"garbage_files": swept.garbage.files, "deleted_files": swept.deleted.files}
    return Outcome(counts, alarms=_undeleted_lines(swept.failed, "sweep"))


def change_pauses(task: StepOperator, services: Services) -> Outcome:
    """Pause tables, or resume them; what is resumed starts a run of the sync."""
    from sterna.replication.replica import pauses
    from sterna.text.pauses import paused_text, resumed_text

    tables, action, reason = parse_pause_options(task.options)
    region = task.open()
    if action == "pause":
        paused = pauses.pause(region, tables, reason, apply=True)
        task.log_text(paused_text(paused, applied=True))
        return Outcome({"paused": [table.key for table in paused]})
    resumed = pauses.resume(region, tables, apply=True)
    task.log_text(resumed_text(resumed, applied=True))
    sync_reason = "tables were resumed" if resumed else ""
    return Outcome({"resumed": [table.key for table in resumed]}, sync_reason=sync_reason)


def verify_replica(task: StepOperator, services: Services) -> Outcome:
    """Verify the replica; alarm where it has faults."""
    from sterna.replication.verify.run import verify
    from sterna.text.verify import verified_text

    tables, depth = parse_verify_options(task.options)
    verified = verify(task.open(), depth, tables, task.log_progress)
    task.log_text(verified_text(verified, deep=depth.deep))
    counts = {
        "tables": verified.tables,
        "files": verified.files,
        "bytes": verified.bytes,
        "compared_files": verified.compared,
        "compared_bytes": verified.compared_bytes,
        "not_comparable": verified.not_comparable,
        "on_main": len(verified.on_main) + verified.on_main_more,
        "faults": verified.faults,
    }
    alarm = "the log names each; `sterna_repair` mends what it can"
    return Outcome(counts, alarms=_fault_lines(verified.faults, "faults", verified.findings, alarm))


def repair_replica(task: StepOperator, services: Services) -> Outcome:
    """Restore faulty files of the replica from `main`; alarm where faults are left."""
    from sterna.replication.repair.run import repair
    from sterna.text.verify import repaired_text

    tables, deep, dry_run = parse_repair_options(task.options)
    repaired = repair(task.open(), tables, task.log_progress, deep=deep, apply=not dry_run)
    task.log_text(repaired_text(repaired))
    counts = {
        "dry_run": dry_run,
        "faults": repaired.faults,
        "mends": len(repaired.mends),
        "faults_left": repaired.faults_left,
    }
    left = 0 if dry_run else repaired.faults_left
    return Outcome(counts, alarms=_fault_lines(left, "faults are left", repaired.left, "the log says why each stays"))


def _maintenance(services: Services) -> Maintenance:
    assert services.maintenance is not None  # else the task is skipped
    return services.maintenance


def parse_gc_options(raw_options: Mapping[str, Any] | str) -> GcOptions:
    """Parse options of a garbage collection from a mapping, or its JSON text; without `dry_run` it deletes.

    Raises:
        UsageError: there is no such option, a duration is none, or a grace is too short.
    """
    from sterna.config.durations import DURATION_UNITS, duration_seconds
    from sterna.maintenance.gc.model import GcOptions

    options = parse_options(raw_options, ("dry_run", "evict", "grace", "keep"))
    limits: dict[str, Any] = {}
    for name in ("keep", "grace"):
        if (text := options.get(name)) is None:
            continue
        if (seconds := duration_seconds(text)) is None:
            raise UsageError(f"{name}: {text!r} is no duration: expected one such as 24h or 7d ({DURATION_UNITS})")
        limits[name] = timedelta(seconds=seconds)
    return GcOptions(delete=not options.get("dry_run"), evict=bool(options.get("evict")), **limits)


def parse_maintenance_options(raw_options: Mapping[str, Any] | str) -> tuple[tuple[str, ...], bool]:
    """Return the tables in a mapping, or its JSON text, and whether it is a dry run.

    Raises:
        UsageError: there is no such option.
    """
    options = parse_options(raw_options, ("dry_run", "tables"))
    return tuple(options.get("tables") or ()), bool(options.get("dry_run"))


def parse_pause_options(raw_options: Mapping[str, Any] | str) -> tuple[tuple[str, ...], str, str]:
    """Return the tables in a mapping, or its JSON text, one of `PAUSE_ACTIONS`, and the reason.

    Raises:
        UsageError: there is no such option or action.
    """
    options = parse_options(raw_options, ("action", "reason", "tables"))
    action = options.get("action") or PAUSE_ACTIONS[0]
    if action not in PAUSE_ACTIONS:
        raise UsageError(f"no such action: {action}; there are {', '.join(PAUSE_ACTIONS)}")
    return tuple(options.get("tables") or ()), action, options.get("reason") or ""


def parse_verify_options(raw_options: Mapping[str, Any] | str) -> tuple[tuple[str, ...], Depth]:
    """Return the tables in a mapping, or its JSON text, and how much of them is verified: `deep` goes before `sample`.

    Raises:
        UsageError: there is no such option, or the sample is no share.
    """
    from sterna.replication.verify.run import Depth, parse_sample

    options = parse_options(raw_options, ("deep", "sample", "tables"))
    text, deep = options.get("sample") or "", bool(options.get("deep"))
    sample = parse_sample(text, datetime.now(UTC).date()) if text else None
    return tuple(options.get("tables") or ()), Depth(True) if deep else Depth(sample is not None, sample)


def parse_repair_options(raw_options: Mapping[str, Any] | str) -> tuple[tuple[str, ...], bool, bool]:
    """Return the tables in a mapping, or its JSON text, whether it is deep, and whether it is a dry run.

    Raises:
        UsageError: there is no such option.
    """
    options = parse_options(raw_options, ("deep", "dry_run", "tables"))
    return tuple(options.get("tables") or ()), bool(options.get("deep")), bool(options.get("dry_run"))


def _fault_lines(count: int, what: str, faults: Sequence[Finding | RemainingFault], remedy: str) -> list[str]:
    tables = printable(list_some(sorted({fault.table for fault in faults})))
    return [f"{count} {what} in {tables}: {remedy}"] if count else []


def _undeleted_lines(failed: int, pass_name: str) -> list[str]:
    return [f"{failed} files could not be deleted: the next {pass_name} retries them"] if failed else []
