"""Flows as a task: what the DAG looks like, and what the task says and does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetAny
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.errors import Gap, StoreUnreachable
from sterna.pipelines.transforms import run as flows_run
from sterna.pipelines.transforms.step import StepSummary
from sterna.runtime.runner import RunSummary

SERVICES = """\
version: 1
transforms:
  - {name: dwd, from: acme.ods, into: acme.dwd, mode: append, sql: dwd.sql}
  - {name: dws, from: acme.dwd, into: acme.dws, mode: append, sql: SELECT * FROM changes}
"""


def test_the_dag_s_shape() -> None:
    dag = addon_dag("transforms", region="eu", registry="/r.yaml", tables=["acme.ods", "acme.dwd"], follow_for="2m")
    assert dag.is_paused_upon_creation
    assert dag.max_active_runs == 1
    (task,) = dag.tasks
    assert (task.follow_for, task.execution_timeout) == (timedelta(minutes=2), timedelta(minutes=62))
    condition = dag.timetable.asset_condition
    assert isinstance(condition, AssetAny)
    assert [asset.uri for asset in condition.objects] == ["sterna://eu/acme.ods", "sterna://eu/acme.dwd"]
    anything = addon_dag("transforms", region="eu", registry="/r.yaml")
    assert anything.timetable.asset_condition.uri == "sterna://eu/"


class FakeRun:
    """A run that has nothing behind it."""

    call: tuple[list[str], Path, float] | None = None
    summary = RunSummary(
        tuple(StepSummary(name, 1, 2, 3, "") for name in ("dwd", "dws", "dwd")),
        {"dws": "up to date"},
        {},
        {"dwd": 2, "dws": 1},
    )

    @classmethod
    def run(cls, region: Any, flows: Any, folder: Path, report: Any, seconds: float, stopping: Any) -> Any:
        cls.call = ([flow.name for flow in flows], folder, seconds)
        return cls.summary


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SternaReconcileOperator:
    (tmp_path / "services.yaml").write_text(SERVICES)
    operator = SternaReconcileOperator(
        task_id="follow", addon="transforms", services=str(tmp_path / "services.yaml"), follow_for=timedelta(minutes=1)
    )
    kept = SimpleNamespace(current=lambda: None, disconnect=lambda: None)
    monkeypatch.setattr(SternaReconcileOperator, "open_reloading", lambda self: kept)
    monkeypatch.setattr(flows_run, "run_transforms", FakeRun.run)
    return operator


def test_a_task_lingers_and_counts(task: SternaReconcileOperator, tmp_path: Path) -> None:
    assert task.execute({}) == {"dwd": 2, "dws": 1}
    # The file of dwd's SQL is missing: the runner tells, of that flow alone.
    assert FakeRun.call == (["dwd", "dws"], tmp_path, 60.0)
    task.names = ("dws",)
    task.execute({})
    assert FakeRun.call == (["dws"], tmp_path, 60.0)


def test_a_flow_that_waits_for_somebody_fails_the_task(
    task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {"dws": Gap("look"), "dwd": StoreUnreachable("later")}
    monkeypatch.setattr(FakeRun, "summary", RunSummary((), {}, errors))
    with pytest.raises(AirflowFailException, match="2 failed; dws: Gap: look"):
        task.execute({})


def test_what_time_may_cure_is_repeated_where_the_run_did_not_follow(
    task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRun, "summary", RunSummary((), {}, {"dwd": StoreUnreachable("later")}))
    with pytest.raises(AirflowFailException, match="dwd: StoreUnreachable: later"):
        task.execute({})
    task.follow_for = timedelta(0)
    with pytest.raises(StoreUnreachable, match=r"^later$"):
        task.execute({})


def test_without_settings_it_is_off(task: SternaReconcileOperator, tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("version: 1\n")
    with pytest.raises(AirflowSkipException):
        task.execute({})
