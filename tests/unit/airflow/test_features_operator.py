"""Online features as tasks: what the DAG looks like, and what its tasks say and do."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetAny
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.errors import FeaturesError, FeatureStoreUnreachable, SternaError
from sterna.pipelines.features import region as features_region
from sterna.pipelines.features import status
from sterna.pipelines.features.materialize import Materialization
from sterna.runtime.runner import RunSummary
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus

SERVICES = """
features:
  online: {eu: {url: "valkey://x"}}
  entities: [{name: user, key: {user_id: long}}]
  views: [{name: user, entity: user, table: d.t, features: [age], unique: true}]
"""


@pytest.fixture(autouse=True)
def services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "services.yaml"
    file.write_text(SERVICES)
    region = SimpleNamespace(region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: region)
    return file


def test_the_dag_s_shape() -> None:
    dag = addon_dag("features", region="eu", registry="/r.yaml")
    assert [task.task_id for task in dag.topological_sort()] == ["materialize", "look", "watcher"]
    assert dag.is_paused_upon_creation and dag.max_active_runs == 1 and not dag.catchup
    assert dag.get_task("materialize").follow_for == timedelta(minutes=5)
    assert dag.get_task("look").trigger_rule == "all_done"
    only = addon_dag(
        "features", region="eu", registry="/r.yaml", tables=["d.t", "d.u"], schedule="", dag_id="of_tables"
    )
    assert isinstance(only.timetable.asset_condition, AssetAny)


def test_what_is_written_is_counted_and_what_failed_is_raised(services: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, float]] = []
    errors: dict[str, SternaError] = {}

    def played(
        region: Any, features: Any, views: Any, *, follow_for: float, report: Any, stopping: Any
    ) -> RunSummary[Materialization]:
        asked.append((views, follow_for))
        return RunSummary((Materialization("user", "changes", "", 7, 3, 1),) * 2, {}, errors, {"user": 2})

    monkeypatch.setattr(features_region, "materialize_all", played)
    task = SternaReconcileOperator(
        task_id="work", addon="features", names=["user"], services=str(services), follow_for=timedelta(minutes=1)
    )
    assert task.execute({}) == {"user": 8} and asked == [(("user",), 60.0)]
    errors["user"] = FeatureStoreUnreachable("dark")
    with pytest.raises(AirflowFailException, match="user: FeatureStoreUnreachable: dark"):
        task.execute({})
    errors.clear()
    errors |= {"item": FeaturesError("the table has no such column"), "user": FeatureStoreUnreachable("dark")}
    with pytest.raises(AirflowFailException, match=r"^2 failed; item: FeaturesError: the table has no such column$"):
        task.execute({})
    services.write_text("version: 1\n")
    with pytest.raises(AirflowSkipException, match=r"no features\.online\.eu"):
        task.execute({})


def test_a_late_view_fails_the_look(services: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = [ReconcilerStatus("feature view", "user", "d.t, complete", "7", 0.0, "s")]
    gauges: dict[str, float] = {}

    @contextmanager
    def opened(*_: Any) -> Any:
        yield None

    monkeypatch.setattr(features_region, "open_feature_store", opened)
    monkeypatch.setattr(status, "read_status", lambda *_: tuple(statuses))
    monkeypatch.setattr("airflow.sdk.observability.stats.gauge", lambda name, value, tags: gauges.update({name: value}))
    task = SternaReconcileOperator(task_id="look", addon="features", step="look", services=str(services))
    assert task.execute({}) == {"user": 0.0}
    stale = Condition(ConditionType.BLOCKED, "Stale", "the store is 1000 s behind")
    statuses[0] = replace(statuses[0], lag=1000.0, conditions=(stale,))
    pushed: dict[str, Any] = {}
    with pytest.raises(AirflowFailException, match="user: the store is 1000 s behind"):
        task.execute({"ti": SimpleNamespace(xcom_push=pushed.__setitem__)})
    assert pushed == {"return_value": {"user": 1000.0}}, "what it found stays beside the failure"
    assert gauges == {"sterna.reconciler_lag_seconds": 1000.0, "sterna.reconciler_blocked": 1}
