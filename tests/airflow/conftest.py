"""Regions us, ap and eu with real servers; eu has an Airflow, whose rclone can be made to fail."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from pyspark.sql import SparkSession

from sterna.config.secrets import environment_secrets
from sterna.replication.replica.region import RegionContext, open_region
from sterna.servers.airflow import Airflow
from sterna.servers.spark import add_catalog, spark_environment, start_session
from sterna.servers.stack import Deployment, deployment
from sterna.storage.rclone.transfer import find_rclone
from tests.support.otlp import Collector, collector
from tests.support.pages import chromium

DAG = "sterna_sync"
_DAGS = Path(__file__).parents[2] / "dags"
_WAIT_SECONDS = 240.0
_BROWSER_TIMEOUT_MS = 60_000.0  # milliseconds for a browser: eu's Airflow has work to do beside
_ENDED = ("success", "failed")
# A user's own DAG: it runs when the table is fresh in eu.
_CONSUMER = """\
from airflow.sdk import DAG, task
from sterna.airflow.assets import replica_asset

with DAG("consumer", schedule=[replica_asset("eu", "shop.orders")], catchup=False) as dag:
    @task
    def tell(triggering_asset_events=None):
        return [event.extra for events in triggering_asset_events.values() for event in events]

    tell()
"""
# A second region's sync in the same Airflow, which seeds one table at a time; it stays paused until a test wants it.
_SEED = """\
from sterna.airflow.dags import sync_dag

# an airflow dag
dag = sync_dag(region="us", dag_id="seed_us", params={"seed_group": 1}, is_paused_upon_creation=True)
"""
# Another sync of eu, whose runs follow for a while; it stays paused until a test wants it.
_LINGERING = """\
from sterna.airflow.dags import sync_dag

# an airflow dag
dag = sync_dag(dag_id="lingering", lanes=True, follow_for="45s", is_paused_upon_creation=True)
"""
# Three layers, for a DAG that stays paused until a test wants it.
_FLOWS = [
    {
        "name": "dwd",
        "from": "layers.ods",
        "into": "layers.dwd",
        "mode": "append",
        "sql": "SELECT id, day, lower(user) AS user FROM changes WHERE user IS NOT NULL",
        "every": "1s",
        "spark": "local[1]",
    },
    {
        "name": "dws",
        "from": "layers.dwd",
        "into": "layers.dws",
        "mode": "replace(day)",
        "sql": "SELECT day, count(*) AS pv, count(DISTINCT user) AS uv FROM changes GROUP BY day",
        "every": "1s",
        "spark": "local[1]",
    },
]
# rclone, but for copies while a file named "broken", "slow" or "hangs" lies beside it: one fails, one takes its time,
# and the last ends and doesn't say so.
_RCLONE = """\
#!/bin/sh
if [ -e "{folder}/broken" ]; then case " $* " in *" copy "*) echo "broken for a test" >&2; exit 7;; esac; fi
if [ -e "{folder}/slow" ]; then case " $* " in *" copy "*) exec "{rclone}" "$@" --bwlimit 60k;; esac; fi
if [ -e "{folder}/hangs" ]; then case " $* " in *" copy "*)
  "{rclone}" "$@"; status=$?; touch "{folder}/hung"; while [ -e "{folder}/hangs" ]; do sleep 0.1; done; exit $status
esac; fi
exec "{rclone}" "$@"
"""


@dataclass
class World:
    """The deployment, a Spark that writes, and eu's Airflow."""

    stage: Deployment
    spark: SparkSession
    airflow: Airflow
    folder: Path
    logins: dict[str, str]
    traces: Collector

    @property
    def context(self) -> RegionContext:
        return open_region(self.stage.registry, "eu", environment_secrets({**self.stage.environment, **self.logins}))

    @property
    def rclone_is_broken(self) -> Path:
        """As long as this file exists, no copy succeeds."""
        return self.folder / "broken"

    @contextmanager
    def slow_copies(self) -> Iterator[None]:
        """Let copies that begin within this block take their time."""
        slow = self.folder / "slow"
        slow.touch()
        try:
            yield
        finally:
            slow.unlink()

    @contextmanager
    def hanging_copy(self) -> Iterator[psutil.Process]:
        """Wait for a copy whose files arrive, but whose rclone does not end within this block.

        Yield the process of its task.
        """
        hangs, hung = self.folder / "hangs", self.folder / "hung"
        hung.unlink(missing_ok=True)
        hangs.touch()
        try:
            self.wait_until("a copy that hangs", hung.exists)
            (child,) = self.copies()
            task = child.parent()
            assert task is not None
            yield task
        finally:
            hangs.unlink()
            hung.unlink(missing_ok=True)

    def copies(self) -> list[psutil.Process]:
        """The copies that are under way: children of the scheduler's, whose executor runs them."""
        below = psutil.Process(self.airflow.processes[1].pid).children(recursive=True)
        return [process for process in below if _is_copy(process)]

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def runs(self, dag: str = DAG) -> list[dict[str, Any]]:
        """A DAG's runs, the newest first."""
        runs: list[dict[str, Any]] = self.airflow.get(f"/dags/{dag}/dagRuns", order_by="-run_after", limit=100)[
            "dag_runs"
        ]
        return runs

    def tasks(self, run: str) -> dict[str, list[dict[str, Any]]]:
        tasks: dict[str, list[dict[str, Any]]] = {}
        for task in self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances", limit=100)["task_instances"]:
            tasks.setdefault(task["task_id"], []).append(task)
        return tasks

    def wait_until(self, what: str, answer: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            if outcome := answer():
                return outcome
            time.sleep(0.5)
        states = [
            (
                run["dag_run_id"],
                run["state"],
                {k: [t["state"] for t in v] for k, v in self.tasks(run["dag_run_id"]).items()},
            )
            for run in self.runs()
        ]
        raise AssertionError(f"{what}: not within {_WAIT_SECONDS:.0f} s; runs: {states}")

    def wait_for_publication(self, before: set[str]) -> dict[str, Any]:
        """Wait for a run that isn't among those known before, and that published; return it."""

        def published() -> dict[str, Any] | None:
            for run in self.runs():
                if run["dag_run_id"] not in before and run["state"] in _ENDED:
                    assert run["state"] == "success", self.tasks(run["dag_run_id"])
                    if self.tasks(run["dag_run_id"])["publish"][0]["state"] == "success":
                        return run
            return None

        run: dict[str, Any] = self.wait_until("a run that publishes", published)
        return run

    @contextmanager
    def paused(self, dag: str = DAG) -> Iterator[None]:
        """Once nothing runs, no more runs of a DAG begin while the block runs."""
        self.wait_until_idle()
        self.airflow.patch(f"/dags/{dag}", {"is_paused": True})
        yield
        self.airflow.patch(f"/dags/{dag}", {"is_paused": False})

    def wait_until_idle(self) -> set[str]:
        """Wait until no run is under way; return the ids of all."""
        self.wait_until(
            "the end of all runs", lambda: self.runs() and all(run["state"] in _ENDED for run in self.runs())
        )
        return {run["dag_run_id"] for run in self.runs()}


def _is_copy(process: psutil.Process) -> bool:
    try:
        return any("rclone/child.py" in word for word in process.cmdline())
    except psutil.Error:  # it has just ended
        return False


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with deployment(folder, ("us", "ap", "eu"), airflow=True) as stage, collector() as traces:
        with_iceberg = spark_environment(folder)
        spark = start_session(with_iceberg)
        for region in stage.regions:
            add_catalog(
                spark, f"dag_{region}", stage.nessie.uri, "main", stage.warehouse(region), stage.combined_endpoint
            )
        add_catalog(
            spark, "dag_replica", stage.nessie.uri, "main_replica_eu", stage.warehouse("eu"), stage.endpoints["eu"]
        )
        # Both tables are there before eu's Airflow is: its first run finds files in two regions.
        for region, name in (("us", "orders"), ("ap", "items")):
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS dag_{region}.shop")
            spark.sql(
                f"CREATE TABLE dag_{region}.shop.{name} USING iceberg AS SELECT id, concat('n', id) AS name FROM "
                "range(100)"
            )
        logins = _ingestion(folder, stage)
        tracing = {"AIRFLOW__TRACES__OTEL_ON": "True", **traces.environment}
        airflow = stage.start_airflow(
            "eu", _dags(folder), env={**_environment(folder, stage), **logins, **with_iceberg, **tracing}
        )
        yield World(stage, spark, airflow, folder, logins, traces)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=_BROWSER_TIMEOUT_MS)
    with chromium() as started:
        yield started


@pytest.fixture
def signed_in(browser: Browser, world: World) -> Iterator[BrowserContext]:
    """A browser's session in eu's Airflow."""
    context = browser.new_context(locale="en-GB", base_url=world.airflow.url)
    context.set_default_timeout(_BROWSER_TIMEOUT_MS)
    login = httpx.get(f"{world.airflow.url}/auth/token", trust_env=False).raise_for_status().json()
    context.add_cookies([{"name": "_token", "value": login["access_token"], "url": world.airflow.url}])
    yield context
    context.close()


def _dags(folder: Path) -> Path:
    dags = folder / "dags"
    shutil.copytree(_DAGS, dags, ignore=shutil.ignore_patterns("__pycache__"))
    (dags / "consumer.py").write_text(_CONSUMER)
    (dags / "seed_us.py").write_text(_SEED)
    (dags / "lingering.py").write_text(_LINGERING)
    return dags


def _ingestion(folder: Path, stage: Deployment) -> dict[str, str]:
    """Let eu take rows in; return the login at its tracker."""
    assert stage.postgres is not None
    database = stage.postgres.create_database("ingest_eu")
    tracker = {"credential_id": "ingest_eu", "hosts": [f"{database.host}:{database.port}"], "name": database.name}
    region = {"inbox": f"{stage.warehouse('eu')}-inbox", "spark": "local[1]", "database": tracker}
    ingest = {
        "regions": {"eu": region},
        "tenants": {"posted": {"namespaces": ["posted"]}},
        "tables": [{"match": "posted.*", "rules": {"files": 3}}],
    }
    (folder / "services.yaml").write_text(json.dumps({"ingest": ingest, "transforms": _FLOWS}))
    login = {"conn_type": "postgres", "login": database.user, "password": database.password}
    return {"AIRFLOW_CONN_INGEST_EU": json.dumps(login)}


def _environment(folder: Path, stage: Deployment) -> dict[str, str]:
    shim = folder / "bin" / "rclone"
    shim.parent.mkdir()
    shim.write_text(_RCLONE.format(folder=folder, rclone=find_rclone()))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return {
        "PATH": os.pathsep.join([str(shim.parent), stage.environment["PATH"]]),
        "AIRFLOW__STERNA__POLL_INTERVAL": "1",
        # Airflow's first request of all can take longer than its own five seconds on a busy machine: the task would
        # fail unseen.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__STERNA__SERVICES": str(folder / "services.yaml"),
        "AIRFLOW__STERNA__INGEST_FOLLOW_FOR": "",
        "AIRFLOW__STERNA__INGEST_SCHEDULE": "",
        # Only commits start runs here.
        "AIRFLOW__STERNA__SCHEDULE": "",
    }
