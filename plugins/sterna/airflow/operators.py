"""The stages of a sync as operators: thin, so that users' own DAGs can string them together as well.

    plan → copy (a task a share of the batches) → localize → publish → announce → linger, where that is asked for
    plan → copy (a task a share of the batches) → localize → arrive     the large lane, which publishes nothing

XComs carry the URI of the run's folder, batch numbers and counts; the plan and its list of files stay in that folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import SkipMixin

from sterna.airflow.announcing import SternaAnnounceOperator as SternaAnnounceOperator
from sterna.airflow.announcing import SternaLingerOperator as SternaLingerOperator
from sterna.airflow.announcing import after_skipped, announcing, want_large_lane
from sterna.airflow.assets import announcements, main_asset
from sterna.airflow.base import RUN as RUN
from sterna.airflow.base import SternaOperator as SternaOperator
from sterna.airflow.gc_operator import SternaGcOperator as SternaGcOperator
from sterna.airflow.lag_operator import SternaLagOperator as SternaLagOperator
from sterna.airflow.metrics import record_sync
from sterna.airflow.settings import most_mapped

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.replica.records import Report, StageReport
    from sterna.sync.options import SyncOptions

OPTIONS: Mapping[str, str] = {
    "tables": "tables",
    "everything": "everything",
    "reassert": "reassert",
    "reseed_from": "reseed_from",
    "generation": "generation",
    "bytes_per_batch": "bytes_per_batch",
    "files_per_batch": "files_per_batch",
    "seed_group": "seed_group",
    "lane": "lane",
}
"""By the name that DAGs' parameters and users' own DAGs have, the field of `SyncOptions`; `dry_run` is beside them."""
_COPY_AGAIN = "no table of this run has all of its files: clear the run, or wait for the next one, which copies again"


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
    # Clearing a skipped task alone must not run it: Airflow then looks at what this one skipped.
    inherits_from_skipmixin = True

    def __init__(self, *, options: Mapping[str, Any] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**announcing(kwargs))
        self.options = options or {}

    def execute(self, context: TaskContext) -> list[dict[str, Any]]:
        """Plan, explain, and skip what has nothing to do."""
        from sterna.render.plan import plan_text
        from sterna.sync import stages
        from sterna.sync.plan.batches import SHARE, shares

        region = self.open()
        options, dry_run = read_options(self.options)
        planned = stages.plan(region, options, self.say)
        if planned.report is not None:
            if options.lane != "large":  # it looked at few tables, and knows no lag
                record_sync(planned.report)
                if not dry_run:
                    want_large_lane(context, planned.report)
            self._skip_stages(context, dry_run)
            return []
        if planned.explained is not None:
            for line in plan_text(planned.explained).splitlines():
                self.say(line)
        if dry_run:
            self._skip_stages(context, dry_run)
        context["ti"].xcom_push(RUN, planned.run)
        return [SHARE.encode(share) for share in shares(planned.batches, most_mapped())]

    def _skip_stages(self, context: TaskContext, dry_run: bool) -> None:
        stages: tuple[type, ...] = (SternaCopyOperator, SternaLocalizeOperator, SternaPublishOperator)
        stages = (*stages, SternaArriveOperator, SternaLingerOperator)
        skipped = (*stages, SternaAnnounceOperator) if dry_run else stages
        behind = [task for task in self.get_flat_relatives(upstream=False) if issubclass(_operator(task), skipped)]
        # Raises where there is something to skip: Airflow then ends this task well, and starts no process for those.
        self.skip(context["ti"], behind)


class SternaCopyOperator(SternaOperator):
    """Copy batches of foreign files, one after the other, and prove each file present; return the counts.

    Where the large lane has brought all files of a table, it localizes that, and updates the asset of `main`: a sync
    publishes it.

    Args:
        run: URI of the run's folder.
        batch: one of the items that the plan returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run")
    label_template = "{{ task.label }}"

    def __init__(self, *, run: str, batch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**{**announcing({}), **kwargs})
        self.run = run
        self.batch = batch

    @property
    def label(self) -> str:
        """The batches in a few words, such as `us-lake 120 files 3.1 GB`."""
        from sterna.sync.whole import sized

        return f"{self.batch['origin']} {self.batch['files']} files {sized(self.batch['bytes'])}"

    def execute(self, context: TaskContext) -> str:
        """Copy the batches."""
        from sterna.replica.codecs import STAGE_REPORT
        from sterna.replica.how_far import seldom
        from sterna.replica.records import StageReport
        from sterna.sync import stages
        from sterna.sync.copy import DEFAULT_DEADLINE
        from sterna.sync.sizes import Dark

        # rclone gets the task's own deadline, so that it is ended in an orderly way.
        limit = self.execution_timeout.total_seconds() if self.execution_timeout else DEFAULT_DEADLINE
        end, region, copied, dark = time.monotonic() + limit, self.open(), StageReport(), Dark()
        first, say = self.batch["number"], seldom(self.say)
        for number in range(first, self.batch.get("last", first) + 1):
            left = max(end - time.monotonic(), 0.0)
            copied += stages.copy(region, self.run, number, say, deadline=left, dark=dark)
        if copied.here and announcements() in self.outlets:
            self.say(f"all files of {', '.join(copied.here)} are here: the next sync publishes that")
            context["outlet_events"][announcements()].add(
                main_asset(region.region.name), extra={"reason": "tables in transit are here"}
            )
        return STAGE_REPORT.dumps(copied)


class SternaLocalizeOperator(SternaOperator):
    """Write this region's own copy of every path-bearing file of a plan; return the counts.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run", "copied")

    def __init__(self, *, run: str, copied: Iterable[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**after_skipped(kwargs))
        self.run = run
        self.copied = copied

    def execute(self, context: TaskContext) -> str:
        """Localize the plan's files; fail at once where the copies left nothing to be published."""
        from airflow.sdk.exceptions import AirflowFailException

        from sterna.replica.codecs import STAGE_REPORT
        from sterna.sync import stages

        region, copied = self.open(), add_up(self.copied, self.run)
        # What the copies said stays the same, however often this task is repeated.
        if copied.failed and (error := stages.why_nothing_is_left(region, self.run, copied)):
            raise AirflowFailException(f"{type(error).__name__}: {error}; {_COPY_AGAIN}")
        return STAGE_REPORT.dumps(stages.localize(region, self.run, copied, self.say))


class SternaPublishOperator(SternaOperator):
    """Publish a plan in one commit on the replica branch; return in short how the sync ended.

    When it left more to do, it updates the asset of `main`, which starts the next run at once. When tables came into
    transit, it updates the asset that starts the large lane.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        localized: what the localize task returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run", "copied", "localized")

    def __init__(self, *, run: str, copied: Iterable[str] | None = None, localized: str, **kwargs: Any) -> None:
        super().__init__(**announcing(after_skipped(kwargs)))
        self.run = run
        self.copied = copied
        self.localized = localized

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Publish the plan."""
        from sterna.sync import stages

        copied, localized = add_up(self.copied, self.run), add_up([self.localized], self.run)
        report = stages.publish(self.open(), self.run, copied, localized, self.say)
        record_sync(report)
        if report.more:
            self.say("more is to be done: the next run starts at once")
            context["outlet_events"][announcements()].add(
                main_asset(report.region), extra={"reason": "the last sync left more to do"}
            )
        for item in report.transit:
            self.say(item.line)
        want_large_lane(context, report)
        return in_short(report)


class SternaArriveOperator(SternaOperator):
    """End a round of the large lane, and start the sync that publishes what it brought; return in short how it went.

    Args:
        run: URI of the run's folder.
        copied: what the copy tasks returned.
        localized: what the localize task returned.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "run", "copied", "localized")

    def __init__(self, *, run: str, copied: Iterable[str] | None = None, localized: str, **kwargs: Any) -> None:
        super().__init__(**announcing(after_skipped(kwargs)))
        self.run = run
        self.copied = copied
        self.localized = localized

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """End the round."""
        from sterna.sync import stages

        copied, localized = add_up(self.copied, self.run), add_up([self.localized], self.run)
        report = stages.arrive(self.open(), self.run, copied, localized, self.say)
        record_sync(report)
        context["outlet_events"][announcements()].add(
            main_asset(report.region), extra={"reason": "what was in transit is here"}
        )
        return in_short(report)


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
        """Run all stages, again while there is more to do."""
        from sterna.errors import UsageError
        from sterna.replica.how_far import seldom
        from sterna.sync.run import sync

        options, dry_run = read_options(self.options)
        if dry_run:
            raise UsageError("dry_run is not for this operator, which syncs", hint="use SternaPlanOperator")
        report = sync(self.open(), options, seldom(self.say))
        record_sync(report)
        return in_short(report)


def read_options(given: Mapping[str, Any] | str) -> tuple[SyncOptions, bool]:
    """Return what a mapping, or its JSON text, asks of a sync, and whether it is a dry run only.

    Raises:
        UsageError: there is no such option.
    """
    from sterna.errors import UsageError
    from sterna.sync.options import SyncOptions

    options = dict(json.loads(given) if isinstance(given, str) else given)
    dry_run = bool(options.pop("dry_run", False))
    options["tables"] = tuple(options.get("tables") or ())
    if dry_run:
        options.pop("reassert", None)  # it commits before it plans
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise UsageError(f"no such option: {', '.join(unknown)}; there are {', '.join(sorted({*OPTIONS, 'dry_run'}))}")
    return SyncOptions(**{OPTIONS[name]: value for name, value in options.items()}), dry_run


def add_up(reports: Iterable[str] | None, run: str = "") -> StageReport:
    """Return the sum of what tasks of one stage returned; skipped ones returned nothing.

    Args:
        reports: their reports as JSON.
        run: URI of the run's folder. Reports of other runs don't count: when a whole DAG run is cleared, and its new
            plan has fewer batches, Airflow keeps what the tasks of the others returned. "" to count all.

    Raises:
        UsageError: a task of another version of sterna returned something else.
    """
    from sterna.errors import UsageError
    from sterna.json_record import MalformedRecord
    from sterna.replica.codecs import STAGE_REPORT
    from sterna.replica.records import StageReport
    from sterna.replica.run_folder import run_id_of

    # As a slice the XComs of mapped tasks come in one request, and not one by one.
    texts = list(reports[:]) if isinstance(reports, Sequence) else list(reports or ())
    try:
        found = [STAGE_REPORT.loads(text) for text in texts if text]
    except MalformedRecord as error:
        raise UsageError(
            f"a task returned what this version of sterna doesn't understand: {error}", hint="clear the whole run"
        ) from error
    ours = [each for each in found if not (run and each.run_id) or each.run_id == run_id_of(run)]
    return sum(ours, StageReport())


def in_short(report: Report) -> dict[str, Any]:
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
        "lag_seconds": report.lag_seconds,
        "more": report.more,
    }


def _operator(task: Any) -> type:
    # A mapped task stands for its operator without being one.
    kind: type = task.operator_class if task.is_mapped else type(task)
    return kind
