"""Workers of ingestion as tasks: what the DAG looks like, and what a task says and does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.errors import Rewound, SternaError, StoreUnreachable
from sterna.pipelines.ingest import region as ingest_region
from sterna.pipelines.ingest import worker as working
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.model import State
from sterna.pipelines.ingest.worker import WorkerSummary

SERVICES = """\
version: 1
ingest:
  regions: {eu: {inbox: "s3://eu-lake/inbox", spark: "local[1]", database: {credential_id: ingest_eu}}}
  tenants: {acme: {namespaces: [acme]}}
  tables: [{match: "acme.*"}]
"""


def test_the_dag_s_shape() -> None:
    dag = addon_dag("ingest", region="eu", registry="/r.yaml", workers=2)
    assert [task.task_id for task in dag.tasks] == ["work_1", "work_2"]
    assert dag.is_paused_upon_creation
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert all(task.follow_for == timedelta(minutes=9) for task in dag.tasks)
    assert all(task.execution_timeout == timedelta(minutes=69) for task in dag.tasks)
    assert addon_dag("ingest", region="eu", registry="/r.yaml", schedule="").schedule is None


class FakeWorker:
    """Work that has nothing behind it."""

    ran: tuple[float | None, bool] | None = None
    errors: Mapping[str, SternaError] = {}

    @classmethod
    def work(
        cls, region: Any, ingest: Any, on_settled: Any, report: Any, seconds: float | None = None, *, once: bool = False
    ) -> WorkerSummary:
        cls.ran = (seconds, once)
        for number in (1, 2):
            on_settled(BatchOutcome(f"b{number}", "acme.t", number, State.PUBLISHED, 7, "c0ffee", 15, 45, 0, 4))
        return WorkerSummary((), {}, cls.errors)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SternaReconcileOperator:
    file = tmp_path / "services.yaml"
    file.write_text(SERVICES)
    operator = SternaReconcileOperator(
        task_id="work", addon="ingest", services=str(file), follow_for=timedelta(minutes=1)
    )
    region = SimpleNamespace(region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: region)
    monkeypatch.setattr(
        ingest_region,
        "open_ingest",
        lambda *_: SimpleNamespace(pool=None, rules=None, close=lambda: None),
    )

    monkeypatch.setattr(working, "run_worker", FakeWorker.work)
    monkeypatch.setattr(FakeWorker, "errors", {"b2": StoreUnreachable("dark")})
    return operator


def test_a_task_lingers_and_counts(task: SternaReconcileOperator) -> None:
    assert task.execute({}) == {"published": 2}
    assert FakeWorker.ran == (60.0, False)
    task.follow_for = timedelta(0)
    task.execute({})
    assert FakeWorker.ran == (0.0, True)


def test_a_batch_that_waits_for_somebody_fails_the_task(
    task: SternaReconcileOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "errors", {"b1": Rewound("look")})
    with pytest.raises(AirflowFailException, match="Rewound: look"):
        task.execute({})


def test_without_settings_for_the_region_it_is_off(task: SternaReconcileOperator, tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("version: 1\n")
    with pytest.raises(AirflowSkipException):
        task.execute({})
