"""The DAGs: what they look like to Airflow."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from sterna.airflow.addons import ADDONS
from sterna.airflow.dags import addon_dag, bulk_dag, lag_dag, sync_dag
from sterna.airflow.steps import parse_gc_options
from sterna.config.registry import model
from sterna.errors import UsageError
from sterna.operations.alarms import ALARM_CHECKS

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

RUN = "s3://eu-lake/replica/_sterna/runs/run-1"


@pytest.fixture(scope="module")
def bag(known_dags: None) -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag()


def test_the_dag_files_have_no_import_errors(bag: Any) -> None:
    assert bag.import_errors == {}
    names = (
        *("cdc", "features", "flows", "gc", "ingest", "lag_alert", "large", "pause", "promote", "repair", "sync"),
        *("upkeep", "verify"),
    )
    assert sorted(bag.dags) == [f"sterna_{name}" for name in names]


def test_the_dags_survive_serialization(bag: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    for dag in bag.dags.values():
        again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
        assert [(task.task_id, task.trigger_rule, task.downstream_task_ids) for task in again.tasks] == [
            (task.task_id, task.trigger_rule, task.downstream_task_ids) for task in dag.tasks
        ]


# What becomes of a task behind one that failed, by its trigger rule (Airflow's documentation, "Trigger Rules").
_BEHIND_FAILED = {
    "all_success": "failed",
    "none_failed": "failed",
    "one_failed": "failed",
    "none_skipped": "success",
    "all_done": "success",
}


def test_a_task_that_fails_makes_each_run_red(bag: Any) -> None:
    """Airflow judges a run by its leaves: whatever fails, one of them has to."""
    for dag in bag.dags.values():
        for failing in dag.tasks:
            states: dict[str, str] = {}
            for task in dag.topological_sort():
                before = {states[id] for id in task.upstream_task_ids}
                behind = _BEHIND_FAILED[task.trigger_rule.value] if "failed" in before else "success"
                states[task.task_id] = "failed" if task is failing else behind
            assert "failed" in {states[leaf.task_id] for leaf in dag.leaves}, (dag.dag_id, failing.task_id)


def test_the_sync_s_shape(bag: Any) -> None:
    dag = bag.dags["sterna_sync"]
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "copy", "localize", "publish", "announce"]
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert dag.tags == {"sterna"}
    assert "eu" in dag.doc_md
    assert sorted(dag.params) == [
        "bytes_per_batch",
        "dry_run",
        "everything",
        "files_per_batch",
        "lane",
        "reassert",
        "seed_group",
        "tables",
    ]
    assert all(task.execution_timeout for task in dag.tasks)
    assert all(task.retries == 5 for task in dag.tasks)


def test_the_alert_shows_each_alarm_and_no_other(bag: Any) -> None:
    shown = [line.removeprefix("* ") for line in bag.dags["sterna_lag_alert"].doc_md.splitlines() if line[:2] == "* "]
    assert shown == [check.condition for check in ALARM_CHECKS]


def test_the_large_lane_s_shape(bag: Any) -> None:
    dag = bag.dags["sterna_large"]
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "copy", "localize", "arrive"]
    assert dag.get_task("plan").options == {"lane": "large"}
    assert all(_lowers_priority(task) for task in dag.tasks)
    small = sync_dag(region="us", registry="/r.yaml", lanes=True)
    assert not any(_lowers_priority(task) for task in small.tasks)
    assert bag.dags["sterna_sync"].params["lane"] == "small"
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert "eu" in dag.doc_md
    (asset,) = dag.schedule.asset_condition.objects
    assert asset.uri == "sterna://eu/transit"
    assert dag.schedule.timetable.expression == "*/15 * * * *"
    assert all(task.execution_timeout for task in dag.tasks)


def test_a_sync_of_one_s_own_without_a_large_lane_takes_everything() -> None:
    assert sync_dag(region="us", registry="/r.yaml", dag_id="mine").params["lane"] == "all"


def test_commits_and_the_clock_start_it(bag: Any) -> None:
    schedule = bag.dags["sterna_sync"].schedule
    (asset,) = schedule.asset_condition.objects
    assert asset.uri == "sterna://eu/main"
    assert [watcher.trigger.region for watcher in asset.watchers] == ["eu"]
    assert schedule.timetable.expression == "*/15 * * * *"


def test_none_of_them_is_backfilled(bag: Any) -> None:
    """Airflow refuses it for a DAG without a schedule anyway."""
    for dag in bag.dags.values():
        allowed = {kind.value for kind in dag.allowed_run_types or ()}
        assert dag.dag_id == "sterna_promote" or (allowed and "backfill" not in allowed)


def test_the_clean_up_s_shape(bag: Any) -> None:
    dag = bag.dags["sterna_gc"]
    (task,) = dag.tasks
    assert task.execution_timeout == timedelta(hours=6)
    assert dag.timetable.expression == "30 3 * * *"
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert {name: dag.params[name] for name in dag.params} == {
        "dry_run": False,
        "evict": False,
        "grace": "24h",
        "keep": "7d",
    }


@pytest.mark.parametrize("given", [{"keep": "soon"}, {"grace": "1m"}, {"kepe": "7d"}, {"keep": "7"}])
def test_a_clean_up_that_nobody_can_mean_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        parse_gc_options(given)


def test_a_clean_up_of_one_s_own_may_have_no_schedule() -> None:
    dag = addon_dag("gc", region="us", registry="/r.yaml", dag_id="mine", schedule="", params={"keep": "1d"})
    assert dag.schedule is None
    assert {name: dag.params[name] for name in ("keep", "grace")} == {"keep": "1d", "grace": "24h"}
    assert dag.get_task("gc").params["keep"] == "1d"
    with pytest.raises(ParamValidationError):
        addon_dag("gc", params={"keep": "soon"})


def test_a_dag_of_one_s_own_has_its_own_settings() -> None:
    dag = sync_dag(
        region="us",
        registry="/r.yaml",
        dag_id="mine",
        schedule="",
        tags=["lake"],
        owner_links={"sterna": "https://example.com"},
    )
    (asset,) = dag.timetable.asset_condition.objects
    assert (dag.dag_id, dag.tags, asset.uri) == ("mine", {"lake"}, "sterna://us/main")


def test_without_a_region_the_dag_file_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__STERNA__REGION")
    with pytest.raises(UsageError, match="AIRFLOW__STERNA__REGION"):
        sync_dag()


@pytest.mark.slow
def _lowers_priority(task: Any) -> bool:
    """Return whether a task's process leaves the processors to others."""
    arguments = getattr(task, "partial_kwargs", {})
    return bool(arguments.get("pre_execute") or getattr(task, "_pre_execute_hook", None))


def test_parsing_them_imports_nothing_heavy() -> None:
    heavy = (
        "pyspark",
        "pyarrow",
        "numba",
        "numpy",
        "pandas",
        "pyiceberg",
        "obstore",
        "fastavro",
        "pynessie",
        model.__name__,
    )
    calls = "; ".join(f"dags.{dag.__name__}()" for dag in (sync_dag, lag_dag, bulk_dag))
    calls += f"; [dags.addon_dag(name) for name in {list(ADDONS)}]"
    code = f"import sys, {sync_dag.__module__} as dags; {calls}; print([n for n in sys.argv[1:] if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_dag_of_one_s_own_may_linger() -> None:
    dag = sync_dag(region="us", registry="/r.yaml", dag_id="mine", follow_for="5m")
    task = dag.get_task("linger")
    assert task.upstream_task_ids == {"announce"}
    assert (task.follow_for, task.execution_timeout) == (timedelta(minutes=5), timedelta(minutes=35))
    assert "linger" not in sync_dag(region="us", registry="/r.yaml", dag_id="mine", follow_for="").task_ids


@pytest.mark.parametrize("linger", ["60", "-1s", "2h", "1d", "soon", "99999s"])
def test_a_time_to_linger_that_nobody_can_mean_is_refused(linger: str) -> None:
    with pytest.raises(UsageError, match="expected a duration such as 60s"):
        sync_dag(region="us", registry="/r.yaml", dag_id="mine", follow_for=linger)
