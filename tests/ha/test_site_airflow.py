"""A node of a region's Airflow dies.

With two schedulers and two triggerers over a Postgres with a standby, syncs go on.
"""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sterna.replication.replica.lag import measure_lag
from sterna.servers.airflow import Airflow, create_airflow_tables, start_airflow
from sterna.servers.process import Process, start_process
from tests.support.faults.pair import Pair, pair_in
from tests.support.servers.patroni import Cluster, start_cluster

WAIT_SECONDS = 300
DAGS = Path(__file__).parents[2] / "dags"
TWICE = ("scheduler", "triggerer")
# The defaults are 300 seconds each: so long the tasks of a scheduler that died count as running, and block the next
# run.
SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
}

pytestmark = pytest.mark.rare  # each run kills the nodes of a site in test_site.py


@dataclass
class Site:
    """Two regions; eu's Airflow has its tables in a Postgres cluster, and two of each component that may die.

    Args:
        pair: the regions.
        cluster: Postgres.
        airflow: one of each component.
        components: all of them, by the name of their log.
    """

    pair: Pair
    cluster: Cluster
    airflow: Airflow
    components: dict[str, Process]

    def start(self, log: str) -> None:
        """Start a component; its log is named after it."""
        program, home, name = (
            Path(sysconfig.get_path("scripts")) / "airflow",
            self.airflow.home,
            log.removeprefix("second-"),
        )
        command = [program, name, *(["--skip-serve-logs"] if name in TWICE else [])]
        self.components[log] = start_process(log, command, log=home / f"{log}.log", env=self.airflow.environ, cwd=home)

    def kill(self, log: str) -> None:
        self.components[log].popen.kill()
        self.components.pop(log).stop()

    def wait_until_running(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.airflow.get("/dags/sterna_sync/dagRuns", state="running")["dag_runs"]:
            assert time.monotonic() < deadline, f"no run within {WAIT_SECONDS} s"
            time.sleep(0.1)

    def wait_for_sync(self, *, watched: bool = False) -> None:
        """Wait until Airflow has brought eu up to main.

        A component that ends meanwhile is started again when it is watched.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._is_synced():
            for log in [log for log, process in self.components.items() if watched and not process.is_alive()]:
                self.components[log].stop()
                self.start(log)
            if time.monotonic() > deadline:
                tails = [process.log_tail() for process in self.components.values()]
                raise AssertionError(
                    f"eu was not up to main within {WAIT_SECONDS} s; the logs end:\n" + "\n\n".join(tails)
                )
            time.sleep(0.5)

    def _is_synced(self) -> bool:
        with self.pair.context() as context:
            return measure_lag(context) == 0.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    work = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        pair = stack.enter_context(pair_in(work / "pair"))
        pair.create()
        cluster = start_cluster(work)
        stack.callback(cluster.stop)
        shutil.copytree(DAGS, work / "dags", ignore=shutil.ignore_patterns("__pycache__"))
        env = {
            **pair.stage.environment,
            **SETTINGS,
            "AIRFLOW__STERNA__REGION": "eu",
            "AIRFLOW__STERNA__REGISTRY": str(pair.stage.registry),
            "AIRFLOW__STERNA__SCHEDULE": "",  # only commits start runs here
        }
        tables = cluster.create_database("airflow")
        create_airflow_tables(tables, work)
        airflow = start_airflow(work, "eu", tables, work / "dags", env=env)
        airflow_site = Site(pair, cluster, airflow, {process.log.stem: process for process in airflow.processes})
        stack.callback(lambda: [process.stop() for process in airflow_site.components.values()])
        for name in TWICE:
            airflow_site.start(f"second-{name}")
        airflow.wait_for_dag("sterna_sync")
        airflow_site.wait_for_sync()
        yield airflow_site


def test_a_scheduler_and_a_triggerer_may_die_in_the_middle_of_a_run(site: Site) -> None:
    table = site.pair.create()
    site.wait_until_running()
    # The first triggerer is the one that watches main: the second one found nothing to watch.
    for name in TWICE:
        site.kill(name)
    site.pair.append(table)
    site.wait_for_sync()
    site.pair.assert_equal()


def test_the_primary_of_airflows_database_may_die(site: Site) -> None:
    site.cluster.wait_until_safe()
    site.cluster.primary().kill()
    site.pair.append(site.pair.create())
    site.wait_for_sync(watched=True)
    site.pair.assert_equal()
