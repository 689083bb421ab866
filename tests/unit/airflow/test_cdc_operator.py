"""Change capture as a task: what the DAG looks like, and what the task says and does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.errors import SlotLost, SourceUnreachable
from sterna.pipelines.cdc import run as cdc_run
from sterna.pipelines.cdc import sources as cdc_sources
from sterna.pipelines.cdc.run import CaptureSummary, TableStep

SERVICES = """\
version: 1
cdc:
  sources:
    - {name: shop, region: eu, hosts: ["h:5432"], database: shop, credential_id: s, tables: [public.*], into: acme.shop}
"""


def test_the_dag_s_shape() -> None:
    dag = addon_dag("cdc", region="eu", registry="/r.yaml", follow_for="2m")
    assert dag.is_paused_upon_creation
    assert dag.max_active_runs == 1
    (task,) = dag.tasks
    assert (task.follow_for, task.execution_timeout) == (timedelta(minutes=2), timedelta(minutes=62))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SternaReconcileOperator:
    (tmp_path / "services.yaml").write_text(SERVICES)
    operator = SternaReconcileOperator(
        task_id="follow", addon="cdc", services=str(tmp_path / "services.yaml"), follow_for=timedelta(minutes=1)
    )
    region = SimpleNamespace(region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: region)
    monkeypatch.setattr(cdc_sources, "open_sources", lambda context, services, names: [services.cdc.sources[0].name])
    return operator


def played(monkeypatch: pytest.MonkeyPatch, operator: SternaReconcileOperator, ran: CaptureSummary) -> list[Any]:
    calls: list[Any] = []

    class Played:
        def __init__(self, sources: Any, report: Any) -> None:
            calls.append(sources)

        def run(self, seconds: float) -> CaptureSummary:
            calls.append(seconds)
            operator.on_kill()
            return ran

        def stop(self) -> None:
            calls.append("stopped")

    monkeypatch.setattr(cdc_run, "CaptureRunner", Played)
    return calls


def test_a_task_follows_and_counts(task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = played(
        monkeypatch, task, CaptureSummary((TableStep("shop", "acme.shop.a", "1/1", 7),), {}, {}, {"shop: a": 2}, 3)
    )
    assert task.execute({}) == 2  # type: ignore[typeddict-item]
    assert calls == [["shop"], 60.0, "stopped"]
    task.on_kill()  # as Airflow does after a deadline has passed: there is nothing left to end
    assert calls == [["shop"], 60.0, "stopped"]


def test_what_fails_is_told(task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, task, CaptureSummary((), {}, {"shop: reading": SlotLost("it is gone")}, {}, 3))
    with pytest.raises(AirflowFailException, match="shop: reading: SlotLost"):
        task.execute({})  # type: ignore[typeddict-item]


def test_what_time_may_cure_is_repeated_where_the_run_did_not_follow(
    task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, task, CaptureSummary((), {}, {"shop: reading": SourceUnreachable("no answer")}, {}, 3))
    with pytest.raises(AirflowFailException, match="shop: reading: SourceUnreachable: no answer"):
        task.execute({})  # type: ignore[typeddict-item]
    task.follow_for = timedelta(0)
    with pytest.raises(SourceUnreachable, match=r"^no answer$"):
        task.execute({})  # type: ignore[typeddict-item]


def test_without_a_source_here_it_is_off(task: SternaReconcileOperator, tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text(SERVICES.replace("region: eu", "region: us"))
    with pytest.raises(AirflowSkipException):
        task.execute({})  # type: ignore[typeddict-item]
