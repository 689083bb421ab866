"""What all add-ons have in common in Airflow: the one operator, what it raises, and the one function for their DAGs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import AssetAny
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.exceptions import AirflowFailException

from sterna.airflow.addons import ADDONS, Step
from sterna.airflow.dags import addon_dag
from sterna.airflow.metrics import record_reconcilers
from sterna.airflow.reconcile import SternaReconcileOperator, raise_severest
from sterna.airflow.steps import Outcome
from sterna.errors import CredentialError, Damaged, SternaError, StoreUnreachable, UsageError
from sterna.runtime.failures import Failures

RETRY, HOLD, STOP = StoreUnreachable("no answer"), Damaged("not ours"), CredentialError("expired")


def recorded(errors: Mapping[str, SternaError]) -> Mapping[str, SternaError]:
    """Return errors as a run's summary has them."""
    failures = Failures(lambda line: None)
    for name, error in errors.items():
        failures.record(name, error)
    return failures.snapshot()


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        ({"a": RETRY, "b": HOLD}, "2 failed; b: Damaged: not ours"),
        ({"a": HOLD, "b": STOP, "c": RETRY}, "3 failed; b: CredentialError: expired"),
        ({"a": STOP}, "1 failed; a: CredentialError: expired"),
    ],
)
def test_a_task_with_an_error_that_no_retry_cures_is_not_repeated(failed: dict[str, SternaError], message: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"^{message}, see docs/operations\.md#\S+$"):
        raise_severest(recorded(failed), has_retried=False)


def test_a_task_whose_errors_a_retry_may_cure_is_repeated_by_their_remedy() -> None:
    raise_severest({}, has_retried=False)
    with pytest.raises(StoreUnreachable) as raised:
        raise_severest(recorded({"a": RETRY, "b": StoreUnreachable("another")}), has_retried=False)
    assert raised.value is RETRY
    with pytest.raises(AirflowFailException, match=r"^1 failed; a: "):
        raise_severest(recorded({"a": RETRY}), has_retried=True)


@pytest.mark.parametrize(
    ("addon", "failed", "names"),
    [
        ("cdc", ["shop: reading", "shop: log", "shop/public.orders"], ["shop", "shop/public.orders"]),
        ("ingest", ["acme.events eu.acme.a 1", "acme.events eu.acme.a 2"], ["uploads"]),
        ("transforms", [], []),
    ],
)
def test_what_failed_is_counted_by_its_name_and_a_batch_by_none(
    addon: Any, failed: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, dict[str, str]]] = []
    step = Step(lambda task, services: Outcome(None, recorded(dict.fromkeys(failed, HOLD))))
    spec = replace(ADDONS[addon], steps={"step": step}, is_on=lambda services, region: True)
    monkeypatch.setitem(cast("dict[str, Any]", ADDONS), addon, spec)
    monkeypatch.setattr(SternaReconcileOperator, "read_services", lambda task: None)
    monkeypatch.setattr("airflow.sdk.observability.stats.incr", lambda name, tags: counted.append((name, tags)))
    with nullcontext() if not failed else pytest.raises(AirflowFailException):
        SternaReconcileOperator(task_id="step", addon=addon, region="eu").execute({})
    tags = [{"region": "eu", "kind": addon, "name": name} for name in names]
    assert counted == [("sterna.reconciler_failures", tag) for tag in tags]


@pytest.mark.parametrize(
    "name", ["shop/public.order lines", "shop/public.a,b=c", "shop/public.Größe", "shop/public." + "x" * 300]
)
def test_no_name_makes_airflow_drop_a_metric(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own client judges: it logs what it drops."""
    sent: list[str] = []
    client = SimpleNamespace(incr=lambda stat, count, rate: sent.append(stat))
    logger = SafeStatsdLogger(client, influxdb_tags_enabled=True, statsd_influxdb_enabled=True)
    monkeypatch.setattr("airflow.sdk.observability.stats.incr", logger.incr)
    record_reconcilers("eu", "cdc", [name, name.replace(" ", "_"), f"{name}y"], ())
    assert len(set(sent)) == len({name, name.replace(" ", "_"), f"{name}y"})
    record_reconcilers("eu", "cdc", ["shop/public.orders"], ())
    assert sent[-1].endswith(",name=shop/public.orders")


def test_each_step_is_a_task_of_a_dag() -> None:
    for name, addon in ADDONS.items():
        tasks = [task for task in addon_dag(name).tasks if isinstance(task, SternaReconcileOperator)]
        assert [(task.addon, task.step) for task in tasks] == [(name, step) for step in addon.steps]


def test_a_step_that_there_is_not_is_refused() -> None:
    assert SternaReconcileOperator(task_id="x", addon="maintenance").step == "plan"
    with pytest.raises(UsageError, match="no such step of maintenance: compact; there are plan, run, expire, sweep"):
        SternaReconcileOperator(task_id="x", addon="maintenance", step="compact")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gc", {"follow_for": "1m", "names": ["a"]}, "the DAG of gc has no follow_for, names"),
        ("cdc", {"tables": ["a.b"]}, "the DAG of cdc has no tables"),
        ("features", {"workers": 2}, "the DAG of features has no workers"),
        ("transforms", {"params": {"keep": "1d"}}, "the DAG of transforms has no params"),
        ("compaction", {}, "no such add-on: compaction; there are cdc, features"),
    ],
)
def test_a_setting_that_an_add_on_has_not_is_refused(name: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        addon_dag(name, **settings)


def test_the_clock_may_start_transforms_too() -> None:
    dag = addon_dag("transforms", schedule="5 * * * *", tables=["a.b", "a.c"])
    assert dag.schedule.timetable.expression == "5 * * * *"
    assert isinstance(dag.schedule.asset_condition, AssetAny)
