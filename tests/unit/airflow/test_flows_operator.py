"""Flows as a task: what the DAG looks like, and what the task says and does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetAny
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sterna.airflow.flows_operator import SternaFlowsOperator, flows_dag
from sterna.flows import run as flows_run
from sterna.flows.run import Ran
from sterna.flows.step import Stepped

SERVICES = """\
version: 1
flows:
  - {name: dwd, from: acme.ods, into: acme.dwd, mode: append, sql: dwd.sql}
  - {name: dws, from: acme.dwd, into: acme.dws, mode: append, sql: SELECT * FROM changes}
"""


def test_the_dag_s_shape() -> None:
    dag = flows_dag(region="eu", registry="/r.yaml", sources=["acme.ods", "acme.dwd"], linger="2m")
    assert dag.is_paused_upon_creation
    assert dag.max_active_runs == 1
    (task,) = dag.tasks
    assert (task.linger, task.execution_timeout) == (timedelta(minutes=2), timedelta(minutes=62))
    condition = dag.timetable.asset_condition
    assert isinstance(condition, AssetAny)
    assert [asset.uri for asset in condition.objects] == ["sterna://eu/acme.ods", "sterna://eu/acme.dwd"]
    anything = flows_dag(region="eu", registry="/r.yaml")
    assert anything.timetable.asset_condition.uri == "sterna://eu/"


class Played:
    """A runner that has nothing behind it."""

    given: tuple[list[str], Path, float] | None = None
    ran = Ran((Stepped("dwd", 1, 2), Stepped("dws", 1, 2), Stepped("dwd", 2, 3)), {"dws": "up to date"}, {}, ())

    def __init__(self, region: Any, flows: Any, folder: Path, say: Any) -> None:
        self._flows, self._folder = [flow.name for flow in flows], folder

    def run(self, seconds: float) -> Ran:
        type(self).given = (self._flows, self._folder, seconds)
        return self.ran


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SternaFlowsOperator:
    (tmp_path / "services.yaml").write_text(SERVICES)
    made = SternaFlowsOperator(task_id="follow", services=str(tmp_path / "services.yaml"), linger=timedelta(minutes=1))
    kept = SimpleNamespace(now=lambda: None, forget=lambda: None)
    monkeypatch.setattr(SternaFlowsOperator, "kept", lambda self: kept)
    monkeypatch.setattr(flows_run, "Runner", Played)
    return made


def test_a_task_lingers_and_counts(task: SternaFlowsOperator, tmp_path: Path) -> None:
    assert task.execute({}) == {"dwd": 2, "dws": 1}
    # The file of dwd's SQL is missing: the runner tells, of that flow alone.
    assert Played.given == (["dwd", "dws"], tmp_path, 60.0)
    task.flows = ("dws",)
    task.execute({})
    assert Played.given == (["dws"], tmp_path, 60.0)


def test_a_flow_that_waits_for_somebody_fails_the_task(
    task: SternaFlowsOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"dwd": "StoreUnreachable: later", "dws": "Gap: look"}
    monkeypatch.setattr(Played, "ran", Ran((), {}, failed, ("dws",)))
    with pytest.raises(AirflowFailException, match="2 flows failed; dws: Gap: look"):
        task.execute({})


def test_without_settings_it_is_off(task: SternaFlowsOperator, tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("version: 1\n")
    with pytest.raises(AirflowSkipException):
        task.execute({})
