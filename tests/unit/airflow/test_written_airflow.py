"""What Airflow keeps by name is what `tests/support/formats_airflow.py` lists, and names of November 2026 stay.

Airflow's database has runs, tasks, XComs, assets and triggers by these names. With another one a run that waits begins
anew, a consumer's schedule is never met, and a triggerer can't make its trigger again. Others of the kind: a connection
type, by which saved connections find their hook, and the class path of a trigger, which a move of a module changes.
"""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sterna.airflow.assets import asset_alias, main_asset, region_asset, replica_asset, transit_asset
from sterna.airflow.base import RUN_XCOM_KEY
from sterna.airflow.dags import sync_dag
from sterna.airflow.operators import OPTIONS, SENT_XCOM_KEY, parse_sync_options
from sterna.airflow.promotion import PROMOTION_XCOM_KEY
from sterna.airflow.provider import get_provider_info
from sterna.airflow.triggers import NessieCommitTrigger
from sterna.errors import UsageError
from sterna.replication.plan.options import SyncOptions
from tests.support.formats_airflow import (
    ALIASES,
    ASSETS,
    PARAMETERS,
    SYNC_OPTIONS,
    TASKS,
    TRIGGERS,
    WATCHERS,
    XCOMS,
)

_WRITTEN = json.loads((Path(__file__).parents[2] / "data" / "written-2026-11" / "names.json").read_text())


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return {**bag.dags, "sterna_sync": sync_dag(lanes=True, follow_for="60s")}


def test_ids_of_dags_and_tasks(dags: dict[str, Any]) -> None:
    assert {name: [task.task_id for task in dag.topological_sort()] for name, dag in sorted(dags.items())} == {
        name: list(tasks) for name, tasks in TASKS.items()
    }


def test_parameters_of_dags(dags: dict[str, Any]) -> None:
    assert {name: list(dag.params) for name, dag in sorted(dags.items()) if dag.params} == {
        name: list(parameters) for name, parameters in PARAMETERS.items()
    }


def test_a_second_worker_has_its_own_task() -> None:
    from sterna.airflow.dags import addon_dag

    assert [task.task_id for task in addon_dag("ingest", dag_id="two", workers=2).tasks] == ["work_1", "work_2"]


def test_options_of_a_sync_are_read_by_their_names_whatever_the_code_calls_them() -> None:
    assert (*OPTIONS, "dry_run") == tuple(SYNC_OPTIONS)
    assert sorted(OPTIONS.values()) == sorted(field.name for field in fields(SyncOptions)), "no option without a name"
    options: dict[str, Any] = {
        "tables": ["a.*"],
        "everything": True,
        "reassert": True,
        "reseed_from": "c",
        "generation": 2,
    }
    options |= {"bytes_per_batch": 3, "files_per_batch": 4, "seed_group": 5, "lane": "small", "dry_run": False}
    assert list(options) == list(SYNC_OPTIONS)
    expected = SyncOptions(("a.*",), True, True, "c", 2, 3, 4, 5, "small")
    assert parse_sync_options(json.dumps(options)) == (expected, False)
    assert parse_sync_options({}) == (SyncOptions(), False)
    with pytest.raises(UsageError, match="no such option: batch; there are bytes_per_batch, dry_run, everything"):
        parse_sync_options({"batch": 1})


def test_parameters_of_the_sync_are_options_of_a_sync() -> None:
    assert set(PARAMETERS["sterna_sync"]) <= set(SYNC_OPTIONS)


def test_assets() -> None:
    assets = [main_asset("eu"), transit_asset("eu"), region_asset("eu"), replica_asset("eu", "shop.orders")]
    assert [asset.uri for asset in assets] == [asset.name for asset in assets] == list(ASSETS)
    assert [asset_alias().name] == list(ALIASES)
    assert [watcher.name for watcher in main_asset("eu", "/r.yaml", 1).watchers] == list(WATCHERS)


def test_the_trigger_is_made_again_from_what_airflow_keeps() -> None:
    trigger = NessieCommitTrigger(region="eu", registry="/r.yaml", poll_interval=2.5)
    path, arguments = trigger.serialize()
    assert {path: tuple(arguments)} == TRIGGERS
    for title, names in _WRITTEN.items():
        if title.startswith("Arguments of the trigger"):
            module, _, name = title.split("`")[1].rpartition(".")
            old = getattr(import_module(module), name)(**{name: arguments[name] for name in names})
            assert old.serialize() == (path, {"region": "eu", "registry": "/r.yaml", "poll_interval": 2.5})


def test_the_keys_of_xcoms() -> None:
    assert list(XCOMS) == [RUN_XCOM_KEY, PROMOTION_XCOM_KEY, SENT_XCOM_KEY]


def test_connection_types_of_november_2026_have_a_hook() -> None:
    from sterna.airflow import hooks

    forms = {form["connection-type"]: form["hook-class-name"] for form in get_provider_info()["connection-types"]}
    assert set(_WRITTEN["Connection types"]) <= set(forms)
    for kind, path in forms.items():
        assert getattr(hooks, path.rpartition(".")[2]).conn_type == kind
