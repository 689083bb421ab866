"""The stages of a sync as operators: thin, so that users' own DAGs can string them together as well.

    plan → copy (a task a share of the batches) → localize → publish → announce → linger, where that is set
    plan → copy (a task a share of the batches) → localize → arrive     the large lane, which publishes nothing

XComs carry the URI of the run's folder, batch numbers and counts; the plan and its list of files stay in that folder.
"""

from __future__ import annotations

from sterna.airflow import requirements  # noqa: F401 - before what an older Airflow lacks

# isort: split

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import SkipMixin

from sterna.airflow.alert import SternaLagOperator as SternaLagOperator
from sterna.airflow.assets import asset_alias, main_asset, region_asset, replica_asset, transit_asset
from sterna.airflow.base import RUN_XCOM_KEY as RUN_XCOM_KEY
from sterna.airflow.base import SternaOperator as SternaOperator
from sterna.airflow.base import parse_options
from sterna.airflow.lineage import sync_lineage
from sterna.airflow.metrics import record_sync
from sterna.airflow.reconcile import SternaReconcileOperator as SternaReconcileOperator
from sterna.airflow.settings import max_map_length
from sterna.operations.run_book import describe_with_card
from sterna.replication.plan.options import SyncOptions, option_name

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext
    from pydantic import JsonValue

    from sterna.replication.replica.model import Report, StageReport
    from sterna.replication.replica.region import RegionContext

OPTIONS: Mapping[str, str] = {option_name(option): option.name for option in fields(SyncOptions)}
"""By the name that DAGs' parameters and users' own DAGs have, the field of `SyncOptions`; `dry_run` is beside them."""
SENT_XCOM_KEY = "sent_bytes"
"""The key of the XCom with the bytes of a copy task's batches that are here, while it copies."""
_SENT_INTERVAL_SECONDS = 5.0
_CLEAR_RUN_HINT = (
    "no table of this run has all of its files: clear the run, or wait for the next one, which copies again"
)


class SternaPlanOperator(SternaOperator, SkipMixin):
    """Plan a sync, explain it in the log, and return its copy batches, to map `SternaCopyOperator` over.

    Each is an item; where there are more than Airflow maps over (`[core] max_map_length`), neighbours are one.

    The XCom `run` is the URI of the run's folder. When there is nothing to do, and in a dry run, the sterna tasks
    behind this one are skipped; after nothing to do `SternaAnnounceOperator` still runs. The large lane is started,
    where another process put tables in transit.

    Args:
        options: what to sync, a mapping or its JSON text: names of `OPTIONS`, and `dry_run`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "options")
    # Clearing a skipped task alone must not run it: Airflow then checks what this one skipped.
    inherits_from_skipmixin = True

    def __init__(self, *, options: Mapping[str, Any] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**with_asset_outlet(kwargs))
        self.options = options or {}

    def execute(self, context: TaskContext) -> list[dict[str, Any]]:
        """Plan, explain, and skip what has nothing to do."""
        from sterna.replication.plan.batches import SHARE, split_shares
        from sterna.replication.sync import stages
        from sterna.text.plan import plan_text

        region = self.open()
        options, dry_run = parse_sync_options(self.options)
        planned = stages.plan(region, options, self.log_progress)
        if planned.report is not None:
            if options.lane != "large":  # it compared few tables, and has no lag
                record_sync(planned.report)
                if not dry_run:
                    trigger_bulk_lane(context, planned.report)
            self._skip_stages(context, dry_run)
            return []
        if planned.explained is not None:
            self.log_text(plan_text(planned.explained))
        if dry_run:
            self._skip_stages(context, dry_run)
        context["ti"].xcom_push(RUN_XCOM_KEY, planned.run)
        return [SHARE.encode(share) for share in split_shares(planned.batches, max_map_length())]

    def _skip_stages(self, context: TaskContext, dry_run: bool) -> None:
        stages: tuple[type, ...] = (SternaCopyOperator, SternaLocalizeOperator, SternaPublishOperator)
        stages = (*stages, SternaFinishBulkOperator, SternaFollowOperator)
        operators_to_skip = (*stages, SternaAnnounceOperator) if dry_run else stages
        downstream = [
            task
            for task in self.get_flat_relatives(upstream=False)
            if issubclass(_operator_class(task), operators_to_skip)
        ]
        # Raises where there is something to skip: Airflow then ends this task well, and starts no process for those.
        self.skip(context["ti"], downstream)


class SternaCopyOperator(SternaOperator):
    """Copy batches of foreign files, one after the other, and prove each file present; return the counts.

    Where the large lane has copied all files of a table, it localizes that, and updates the asset of `main`: a sync
    publishes it.

    Args:
        run: URI of the run's folder.
        batch: one of the items that the plan returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run")
    label_template = "{{ task.label }}"

    def __init__(self, *, run: str, batch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**{**with_asset_outlet({}), **kwargs})
        self.run = run
        self.batch = batch

    @property
    def label(self) -> str:
        """The batches in a few words, such as `us-lake 120 files 3.1 GB` or `eu instead of us-lake 3 files 1 kB`."""
        from sterna.replication.sync.copy_progress import format_bytes

        return f"{self.batch['origin']} {self.batch['files']} files {format_bytes(self.batch['bytes'])}"

    def execute(self, context: TaskContext) -> str:
        """Copy the batches."""
        from sterna.replication.execution.copy import DEFAULT_DEADLINE_SECONDS
        from sterna.replication.execution.source_sizes import Unavailable
        from sterna.replication.replica.codecs import STAGE_REPORT
        from sterna.replication.replica.model import StageReport
        from sterna.replication.replica.progress import throttled
        from sterna.replication.sync import stages

        # rclone gets the task's own deadline, so that it is ended in an orderly way.
        timeout = self.execution_timeout.total_seconds() if self.execution_timeout else DEFAULT_DEADLINE_SECONDS
        deadline, region, copied, unavailable = time.monotonic() + timeout, self.open(), StageReport(), Unavailable()
        log, note_sent = throttled(self.log_progress), self._sent_notes(context)

        def progress(line: str) -> None:
            log(line)
            note_sent(line)

        first = self.batch["number"]
        for number in range(first, self.batch.get("last", first) + 1):
            remaining = max(deadline - time.monotonic(), 0.0)
            copied += stages.copy(region, self.run, number, progress, deadline=remaining, unavailable=unavailable)
        if copied.here and asset_alias() in self.outlets:
            self.log_progress(f"all files of {', '.join(copied.here)} are here: the next sync publishes that")
            context["outlet_events"][asset_alias()].add(
                main_asset(region.region.name), extra={"reason": "tables in transit are here"}
            )
        return STAGE_REPORT.dumps(copied)

    def _sent_notes(self, context: TaskContext) -> Callable[[str], None]:
        """Return what takes lines of progress, and says every few seconds in an XCom how many bytes are here."""
        from sterna.replication.replica.progress import ProgressLine

        whole, due = 0, time.monotonic() + _SENT_INTERVAL_SECONDS

        def note_sent(line: str) -> None:
            nonlocal whole, due
            if not isinstance(line, ProgressLine):
                return
            if line.is_step:
                whole += line.batch_bytes
            elif time.monotonic() >= due:
                due = time.monotonic() + _SENT_INTERVAL_SECONDS
                try:
                    context["ti"].xcom_push(SENT_XCOM_KEY, whole + line.batch_bytes)
                except Exception as error:  # noqa: BLE001 - a copy never fails for it
                    self.log_progress(f"the pages don't show how much of this batch is copied: {error}")

        return note_sent


class SternaLocalizeOperator(SternaOperator):
    """Write this region's own copy of every path-bearing file of a plan; return the counts.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run", "copied")

    def __init__(self, *, run: str, copied: Iterable[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**with_none_failed_trigger(kwargs))
        self.run = run
        self.copied = copied

    def execute(self, context: TaskContext) -> str:
        """Localize the plan's files, and return the stage's report as JSON.

        Raises:
            AirflowFailException: the copies failed, and nothing can be published.
        """
        from airflow.sdk.exceptions import AirflowFailException

        from sterna.replication.replica.codecs import STAGE_REPORT
        from sterna.replication.sync import stages

        region, copied = self.open(), merge_stage_reports(self.copied, self.run)
        # The copies' reports stay the same, however often this task is repeated.
        if copied.failed and (error := stages.blocking_error(region, self.run, copied)):
            raise AirflowFailException(f"{describe_with_card(error)}; {_CLEAR_RUN_HINT}")
        return STAGE_REPORT.dumps(stages.localize(region, self.run, copied, self.log_progress))


class _LastStageOperator(SternaOperator):
    """The stage that ends a run, by what the stages before it returned."""

    template_fields = (*SternaOperator.template_fields, "run", "copied", "localized")

    def __init__(self, *, run: str, copied: Iterable[str] | None = None, localized: str, **kwargs: Any) -> None:
        super().__init__(**with_asset_outlet(with_none_failed_trigger(kwargs)))
        self.run = run
        self.copied = copied
        self.localized = localized

    def stage_reports(self) -> tuple[StageReport, StageReport]:
        """Return what was copied, and what was localized."""
        return merge_stage_reports(self.copied, self.run), merge_stage_reports([self.localized], self.run)


class SternaPublishOperator(_LastStageOperator):
    """Publish a plan in one commit on the replica branch; return in short how the sync ended.

    When it left more to do, it updates the asset of `main`, which starts the next run at once. When tables came into
    transit, it updates the asset that starts the large lane.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        localized: what the localize task returned.
        kwargs: see `SternaOperator`.
    """

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Publish the plan."""
        from sterna.replication.sync import stages

        region = self.open()
        report = stages.publish(region, self.run, *self.stage_reports(), self.log_progress)
        record_sync(report)
        if report.more:
            self.log_progress("more is to be done: the next run starts at once")
            context["outlet_events"][asset_alias()].add(
                main_asset(report.region), extra={"reason": "the last sync left more to do"}
            )
        for table in report.transit:
            self.log_progress(table.line)
        trigger_bulk_lane(context, report)
        self.record_lineage(lambda: sync_lineage(region, report, report.published))
        return report_summary(report)


class SternaAnnounceOperator(SternaOperator):
    """Announce as assets what became fresh on the replica branch since the last announcement, by whichever run.

    The last announcement is the newest event of the region's own asset: Airflow stores it together with this task's
    success and the tables' events, so that a task killed in between announces everything again, and nothing is left
    out.

    Args:
        region: name of the region; not a template, because the asset has to be known before any task runs.
        kwargs: see `SternaOperator`.
    """

    template_fields = ("registry",)

    def __init__(self, *, region: str, **kwargs: Any) -> None:
        kwargs["inlets"] = [*(kwargs.get("inlets") or ()), region_asset(region)]
        super().__init__(region=region, **with_asset_outlet(with_none_failed_trigger(kwargs)))
        self.replica = region_asset(region)

    def execute(self, context: TaskContext) -> int:
        """Announce, and return the number of tables."""
        return self.announce(context, self.open())

    def announce(self, context: TaskContext, region: RegionContext) -> int:
        """Announce what a region shows, and return the number of tables."""
        from sterna.notifications.change_log.fresh_tables import read_fresh_tables

        events, name = context["outlet_events"][asset_alias()], region.region.name
        newest_events = context["inlet_events"][self.replica].ascending(False).limit(1)
        last_announced = str((newest_events[0].extra or {}).get("replica_hash", "")) if len(newest_events) else None
        freshness = read_fresh_tables(region, last_announced)
        for table in freshness.tables:
            self.log_progress(f"fresh: {table.key} at snapshot {table.snapshot_id}")
            extra: dict[str, JsonValue] = {
                "replica_hash": table.replica_hash,
                "source_hash": table.source_hash,
                "snapshot_id": table.snapshot_id,
            }
            events.add(replica_asset(name, table.key), extra=extra)
        if freshness.head != last_announced:
            events.add(self.replica, extra={"replica_hash": freshness.head})
        return len(freshness.tables)


class SternaFollowOperator(SternaAnnounceOperator):
    """Follow `main` for a while after a publication, and announce what that brought; return the number of tables.

    Commits that follow one another then need no further run each. Airflow stores the events of a task when it ends, and
    not before: so each table is announced once, at the end, and this task never takes longer than it was given. It
    ends at once where something is for the next run, or for the large lane: neither begins before. It stands behind
    `SternaAnnounceOperator`, so that the run's own tables don't wait for it.

    Args:
        follow_for: for how long.
        kwargs: see `SternaAnnounceOperator`.
    """

    def __init__(self, *, follow_for: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.follow_for = follow_for

    def execute(self, context: TaskContext) -> int:
        """Follow, and announce."""
        from sterna.replication.sync.follow import Follower, FollowOptions
        from sterna.text.sync import publication_text

        published: set[str] = set()
        last: Report | None = None

        def on_publication(report: Report) -> None:
            nonlocal last
            self.log_progress(publication_text(report))
            record_sync(report)
            trigger_bulk_lane(context, report)
            published.update(report.published)
            last = report

        Follower(self.open_reloading(), on_publication, self.log_progress, FollowOptions(stop_on_handover=True)).run(
            self.follow_for.total_seconds()
        )
        region = self.open()
        announced = self.announce(context, region)
        self.record_lineage(lambda: sync_lineage(region, last, published))
        return announced


class SternaFinishBulkOperator(_LastStageOperator):
    """End a bulk run of the large lane, and start the sync that publishes what it brought; return in short how it went.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        localized: what the localize task returned.
        kwargs: see `SternaOperator`.
    """

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """End the bulk run."""
        from sterna.replication.sync import stages

        report = stages.finish_bulk(self.open(), self.run, *self.stage_reports(), self.log_progress)
        record_sync(report)
        context["outlet_events"][asset_alias()].add(
            main_asset(report.region), extra={"reason": "what was in transit is here"}
        )
        return report_summary(report)


class SternaSyncOperator(SternaOperator):
    """All stages in one task, for a DAG of one's own; return in short how the sync ended.

    Args:
        options: as for `SternaPlanOperator`; `dry_run` is not for this operator.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "options")

    def __init__(self, *, options: Mapping[str, Any] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.options = options or {}

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Run all stages, repeatedly while there is more to do, and return the report's summary.

        Raises:
            UsageError: `dry_run` is set.
        """
        from sterna.errors import UsageError
        from sterna.replication.replica.progress import throttled
        from sterna.replication.sync.run import sync

        options, dry_run = parse_sync_options(self.options)
        if dry_run:
            raise UsageError("dry_run is not for this operator, which syncs", hint="use SternaPlanOperator")
        region = self.open()
        report = sync(region, options, throttled(self.log_progress))
        record_sync(report)
        self.record_lineage(lambda: sync_lineage(region, report, report.published))
        return report_summary(report)


def parse_sync_options(raw_options: Mapping[str, Any] | str) -> tuple[SyncOptions, bool]:
    """Return the options of a sync in a mapping, or its JSON text, and whether it is a dry run.

    Raises:
        UsageError: there is no such option.
    """
    options = parse_options(raw_options, (*OPTIONS, "dry_run"))
    dry_run = bool(options.pop("dry_run", False))
    options["tables"] = tuple(options.get("tables") or ())
    if dry_run:
        options.pop("reassert", None)  # it commits before it plans
    return SyncOptions(**{OPTIONS[name]: value for name, value in options.items()}), dry_run


def merge_stage_reports(reports: Iterable[str] | None, run: str = "") -> StageReport:
    """Return the sum of what tasks of one stage returned; skipped ones returned nothing.

    Args:
        reports: their reports as JSON.
        run: URI of the run's folder. Reports of other runs don't count: when a whole DAG run is cleared, and its new
            plan has fewer batches, Airflow keeps what the tasks of the others returned. "" to count all.

    Raises:
        UsageError: a task of another version of sterna returned something else.
    """
    from sterna.codec import MalformedRecord
    from sterna.errors import UsageError
    from sterna.replication.replica.codecs import STAGE_REPORT
    from sterna.replication.replica.model import StageReport
    from sterna.replication.replica.run_folder import run_id_from_uri

    # As a slice the XComs of mapped tasks come in one request, and not one by one.
    texts = list(reports[:]) if isinstance(reports, Sequence) else list(reports or ())
    try:
        all_reports = [STAGE_REPORT.loads(text) for text in texts if text]
    except MalformedRecord as error:
        raise UsageError(
            f"a task returned what this version of sterna doesn't understand: {error}", hint="clear the whole run"
        ) from error
    run_reports = [
        report for report in all_reports if not (run and report.run_id) or report.run_id == run_id_from_uri(run)
    ]
    return sum(run_reports, StageReport())


def report_summary(report: Report) -> dict[str, Any]:
    """Return a report for an XCom: counts instead of names."""
    return {
        "run_id": report.run_id,
        "outcome": report.outcome,
        "source_hash": report.source_hash,
        "replica_hash": report.replica_hash,
        "published": len(report.published),
        "held": len(report.held),
        "transit": len(report.transit),
        "copied_files": report.copied.files,
        "copied_bytes": report.copied.sent,
        **({"copied_from": dict(report.copied.sent_from)} if report.copied.sent_from else {}),
        "lag_seconds": report.lag_seconds,
        "more": report.more,
    }


def _operator_class(task: Any) -> type:
    # A mapped task wraps its operator's class without being an instance.
    operator_class: type = task.operator_class if task.is_mapped else type(task)
    return operator_class


def trigger_bulk_lane(context: TaskContext, report: Report) -> None:
    """Start the large lane, where a report says that it is wanted and nobody is at work."""
    if report.large:
        context["outlet_events"][asset_alias()].add(
            transit_asset(report.region), extra={"reason": "tables are in transit, and no large lane is at work"}
        )


def with_none_failed_trigger(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that runs also when tasks before it were skipped.

    With nothing to copy no copy task runs, and the stages behind go on. A failed one stops them.
    """
    return {"trigger_rule": "none_failed", **kwargs}


def with_asset_outlet(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that may announce assets."""
    return {**kwargs, "outlets": [*(kwargs.get("outlets") or ()), asset_alias()]}
