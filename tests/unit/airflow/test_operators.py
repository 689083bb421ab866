from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import ExceptionRetryPolicy
from airflow.sdk.exceptions import AirflowFailException

from sterna.airflow import operators
from sterna.airflow.assets import asset_alias, main_asset
from sterna.airflow.metrics import record_sync
from sterna.airflow.operators import (
    SternaCopyOperator,
    SternaLocalizeOperator,
    SternaPlanOperator,
    SternaSyncOperator,
    merge_stage_reports,
    parse_sync_options,
    report_summary,
)
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.errors import UsageError
from sterna.replication.execution import copy as copying
from sterna.replication.plan.batches import SHARE, split_shares
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.codecs import STAGE_REPORT
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import CopyBatch, Report, StageReport
from sterna.replication.replica.progress import ProgressLine
from sterna.replication.replica.region import Progress
from sterna.replication.sync import run as sync_run
from sterna.replication.sync import stages
from sterna.storage.rclone.transfer import Transfer
from tests.support.small_world import make_world, quiet, run

BATCH = {"number": 3, "origin": "us-lake", "files": 120, "bytes": 3_100_000_000}
LAGS = {
    "sterna.lag_seconds": 1.5,
    "sterna.watermark_lag_seconds": 1.5,
    "sterna.held_lag_seconds": 0.0,
    "sterna.held_tables": 0,
    "sterna.held_ignored_tables": 0,
    "sterna.transit_tables": 0,
    "sterna.transit_lag_seconds": 0.0,
    "sterna.transit_bytes": 0,
}


def _report(**changes: Any) -> Report:
    return Report(
        "run-1",
        "eu",
        "h",
        "published",
        "r",
        published=("shop.orders",),
        copied=StageReport(2, 20, 10),
        lag_seconds=1.5,
        watermark_lag_seconds=1.5,
        **changes,
    )


def test_options_come_as_a_mapping_or_as_json() -> None:
    options = {"tables": ["shop.*"], "everything": True, "dry_run": True}
    assert (
        parse_sync_options(options)
        == parse_sync_options(json.dumps(options))
        == (SyncOptions(tables=("shop.*",), full=True), True)
    )
    assert parse_sync_options({}) == (SyncOptions(), False)


def test_an_unknown_option_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"no such option: table; there are bytes_per_batch, dry_run"):
        parse_sync_options({"table": "shop.orders"})


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (3_100_000_000, "3.1 GB"), (25_000_000_000_000, "25 TB")],
)
def test_a_copy_task_is_labelled_with_origin_files_and_size(size: int, text: str) -> None:
    task = SternaCopyOperator(task_id="copy", run="s3://eu/run", batch={**BATCH, "bytes": size})
    assert task.label == f"us-lake 120 files {text}"


@pytest.mark.parametrize("params", [{"dry_run": False}, {}])
def test_a_dry_run_that_the_parameters_do_not_have_is_refused(params: dict[str, bool]) -> None:
    """Airflow drops a run's conf where `[core] dag_run_conf_overrides_params` is off: the run would change things."""
    task: Any = SternaPlanOperator(task_id="plan", region="eu")
    asked = {"dag_run": SimpleNamespace(conf={"dry_run": True}), "params": params}
    with pytest.raises(UsageError, match="asks for a dry run"):
        task.pre_execute(asked)
    task.pre_execute({**asked, "params": {"dry_run": True}})
    for conf in (None, {}, {"dry_run": False}):
        task.pre_execute({"dag_run": SimpleNamespace(conf=conf), "params": params})


def test_a_copy_task_is_labelled_with_the_region_whose_copies_it_sends() -> None:
    (share,) = split_shares(
        [CopyBatch(0, "us-lake", 120, 1000, preferred=("eu", "ap")), CopyBatch(1, "us-lake", 1, 0)], 1
    )
    task = SternaCopyOperator(task_id="copy", run="s3://eu/run", batch=SHARE.encode(share))
    assert task.label == "eu instead of us-lake,us-lake 121 files 1 kB"


def test_reports_of_mapped_tasks_add_up_and_skipped_ones_count_nothing() -> None:
    to_json = STAGE_REPORT.dumps

    assert merge_stage_reports([to_json(StageReport(1, 10, 5)), to_json(StageReport(2, 20, 5))]) == StageReport(
        3, 30, 10
    )
    assert merge_stage_reports(None) == merge_stage_reports([]) == StageReport()


def test_reports_of_another_run_count_nothing_and_those_that_name_none_as_before() -> None:
    to_json = STAGE_REPORT.dumps

    now, before = StageReport(1, 10, 5, run_id="run-2"), StageReport(7, 70, 7, missing=2, run_id="run-1")
    texts = [to_json(now), to_json(before), "", to_json(now)]
    assert merge_stage_reports(texts, "s3://eu/replica/_sterna/runs/run-2") == StageReport(2, 20, 10, run_id="run-2")
    assert merge_stage_reports(texts).files == 9
    unnamed = '{"files":3,"bytes":30,"sent":30,"failed":[],"missing":0}'
    assert merge_stage_reports([unnamed, to_json(now)], "s3://eu/replica/_sterna/runs/run-2").files == 4
    assert merge_stage_reports([to_json(before)], "s3://eu/replica/_sterna/runs/run-2") == StageReport()


@pytest.mark.parametrize("text", ['{"files":1,"bytes":2,"newer":1}', '{"files":1}', "[]", "{"])
def test_a_report_of_another_version_is_refused_and_not_read_as_empty(text: str) -> None:
    with pytest.raises(UsageError, match="this version of sterna doesn't understand"):
        merge_stage_reports([STAGE_REPORT.dumps(StageReport(1, 10, 5)), text])


def test_a_report_in_short_has_counts_and_no_names() -> None:
    short = report_summary(_report(held=(Held("a.b", "Unsupported", "encrypted"),), more=True))
    assert short == {
        "run_id": "run-1",
        "outcome": "published",
        "source_hash": "h",
        "replica_hash": "r",
        "published": 1,
        "held": 1,
        "transit": 0,
        "copied_files": 2,
        "copied_bytes": 10,
        "lag_seconds": 1.5,
        "more": True,
    }


def test_a_report_says_how_much_came_from_other_regions_copies(metrics: dict[str, float]) -> None:
    report = replace(_report(), copied=StageReport(2, 20, 10, sent_from={"ap": 7}))
    assert report_summary(report)["copied_from"] == {"ap": 7}
    record_sync(report)
    assert metrics == {**LAGS, "sterna.copied_bytes": 10, "sterna.copied_from_bytes": 7}


def test_every_operator_repeats_as_its_errors_say_unless_told_otherwise() -> None:
    own = ExceptionRetryPolicy(rules=[])
    assert isinstance(
        SternaCopyOperator(task_id="copy", run="r", batch=BATCH, retry_policy=None).retry_policy, RemedyRetryPolicy
    )
    assert SternaCopyOperator(task_id="copy", run="r", batch=BATCH, retry_policy=own).retry_policy is own


def test_all_stages_in_one_task(monkeypatch: pytest.MonkeyPatch, metrics: dict[str, float]) -> None:
    asked: list[SyncOptions] = []

    def sync(context: object, options: SyncOptions, progress: object) -> Report:
        asked.append(options)
        return _report()

    monkeypatch.setattr(sync_run, "sync", sync)
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: None)
    assert SternaSyncOperator(task_id="sync", options={"tables": ["a.b"]}).execute({})["outcome"] == "published"
    assert asked == [SyncOptions(tables=("a.b",))]
    assert metrics == {**LAGS, "sterna.copied_bytes": 10}


@pytest.mark.parametrize("broken", ["ab", "a"], ids=["all copies failed", "one of two copies failed"])
def test_localizing_what_no_copy_brought_says_at_once_what_to_do(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy alone leaves something to go on with; it would be repeated for minutes, and find the same."""
    world = make_world(tmp_path)
    for first in (True, False):
        for name in "ab":
            world.commit(**{name: world.write(name)})
        if first:
            run(world)
    real = copying.copy_files

    def copy_files(origin: Any, replica: Any, names: list[str], **more: Any) -> Transfer:
        table = names[0].partition("/")[0]
        return Transfer(0, 0, "broken") if table in broken else real(origin, replica, names, **more)

    monkeypatch.setattr(copying, "copy_files", copy_files)
    context = world.context()
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: context)
    planned = stages.plan(context, SyncOptions(files_per_batch=1), quiet)
    assert len(planned.batches) == 2
    copied = [
        SternaCopyOperator(task_id="copy", run=planned.run, batch={"number": number}).execute({}) for number in (0, 1)
    ]
    task = SternaLocalizeOperator(task_id="localize", run=planned.run, copied=copied)
    if broken == "ab":
        with pytest.raises(AirflowFailException, match=r"were not copied .* clear the run, or wait for the next one"):
            task.execute({})
        return
    report = stages.publish(
        context, planned.run, merge_stage_reports(copied), merge_stage_reports([task.execute({})]), quiet
    )
    assert (report.published, [item.key for item in report.held]) == (("ns.b",), ["ns.a"])


def test_one_task_copies_its_share_of_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow maps over few items here: neighbouring batches go together, and the counts cover all of them."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    world = make_world(tmp_path)
    world.commit(**{name: world.write(name) for name in "abcde"})
    context = world.context()
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: context)
    pushed: dict[str, str] = {}
    task = SternaPlanOperator(task_id="plan", options={"files_per_batch": 1})
    items = task.execute({"ti": SimpleNamespace(xcom_push=pushed.__setitem__)})
    assert [(item["number"], item["last"]) for item in items] == [(0, 1), (2, 4)]
    copied = [SternaCopyOperator(task_id="copy", run=pushed["run"], batch=item).execute({}) for item in items]
    assert [STAGE_REPORT.loads(stage_report).files for stage_report in copied] == [2, 3]
    localized = SternaLocalizeOperator(task_id="localize", run=pushed["run"], copied=copied).execute({})
    report = stages.publish(
        context, pushed["run"], merge_stage_reports(copied), merge_stage_reports([localized]), quiet
    )
    assert len(report.published) == 6


def test_a_copy_says_meanwhile_how_many_bytes_of_its_batches_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(operators, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: None)

    def copy(region: None, run: str, number: int, progress: Progress, **more: Any) -> StageReport:
        for seconds, here in ((1.0, 10), (10.0, 40), (1.0, 50)):
            clock[0] += seconds
            progress(ProgressLine("copying", 0.5, batch_bytes=here))
        progress(ProgressLine("done", 1.0, is_step=True, batch_bytes=100))
        return StageReport(1)

    monkeypatch.setattr(stages, "copy", copy)
    sent: list[tuple[str, int]] = []

    def push(key: str, value: int) -> None:
        sent.append((key, value))
        raise ConnectionError("no copy fails for it")

    task = SternaCopyOperator(task_id="copy", run="r", batch={**BATCH, "number": 0, "last": 1}, outlets=[])
    task.execute({"ti": SimpleNamespace(xcom_push=push)})
    assert sent == [("sent_bytes", 40), ("sent_bytes", 140)]


def test_a_copy_that_makes_a_table_whole_starts_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    region = SimpleNamespace(region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: region)
    monkeypatch.setattr(stages, "copy", lambda *_, **more: StageReport(1, here=("shop.orders",)))
    events: list[tuple[Any, Any]] = []
    outlet = SimpleNamespace(add=lambda asset, extra: events.append((asset, extra)))
    task = SternaCopyOperator(task_id="copy", run="r", batch=BATCH)
    task.execute({"outlet_events": {asset_alias(): outlet}})
    assert events == [(main_asset("eu"), {"reason": "tables in transit are here"})]
    SternaCopyOperator(task_id="copy", run="r", batch=BATCH, outlets=[]).execute({})
