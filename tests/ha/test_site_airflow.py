"""A node of a region's Airflow dies: with two schedulers and two triggerers over a Postgres with a standby, syncs go on."""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sterna.errors import EngineError
from sterna.local.airflow import Airflow, create_airflow_database, start_airflow
from sterna.local.patroni import Cluster, start_cluster
from sterna.local.process import Process, start_process
from sterna.sync.lag import measure_lag
from tests.faults.pair import Pair, pair_in

PATIENCE = 300
DAGS = Path(__file__).parents[2] / "dags"
TWICE = ("scheduler", "triggerer")


@dataclass
class Site:
    """Two regions; eu's Airflow has its tables in a Postgres cluster, and its components that may die twice.

    Args:
        pair: the regions.
        cluster: Postgres.
        airflow: one of each component.
        seconds: the further ones, by name.
    """

    pair: Pair
    cluster: Cluster
    airflow: Airflow
    seconds: dict[str, Process]

    def first(self, name: str) -> Process:
        (found,) = [process for process in self.airflow.processes if name in process.log.name]
        return found

    def wait_for_sync(self) -> None:
        """Wait until Airflow has brought eu up to main."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with self.pair.context() as context:
                if measure_lag(context) == 0.0:
                    return
            if time.monotonic() > deadline:
                tails = [process.log_tail() for process in (*self.airflow.processes, *self.seconds.values())]
                raise AssertionError(f"eu was not up to main within {PATIENCE} s; the logs end:\n" + "\n\n".join(tails))
            time.sleep(0.5)


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
            "AIRFLOW__STERNA__REGION": "eu",
            "AIRFLOW__STERNA__REGISTRY": str(pair.stage.registry),
            "AIRFLOW__STERNA__SCHEDULE": "",  # only commits start runs here
        }
        airflow = start_airflow(work, "eu", create_airflow_database(cluster, work), work / "dags", env=env)
        stack.callback(airflow.stop)
        seconds = {name: second(airflow, name) for name in TWICE}
        stack.callback(lambda: [process.stop() for process in seconds.values()])
        airflow.wait_for_dag("sterna_sync")
        made = Site(pair, cluster, airflow, seconds)
        made.wait_for_sync()
        yield made


def second(airflow: Airflow, name: str) -> Process:
    program = Path(sysconfig.get_path("scripts")) / "airflow"
    log = airflow.home / f"second-{name}.log"
    return start_process(f"the second {name}", [program, name, "--skip-serve-logs"], log=log, env=airflow.environ, cwd=airflow.home)


def test_a_scheduler_and_a_triggerer_may_die(site: Site) -> None:
    # The first triggerer is the one that watches main: the second one found nothing to watch.
    for name in TWICE:
        site.first(name).popen.kill()
        site.first(name).stop()
    site.pair.append(site.pair.create())
    site.wait_for_sync()
    site.pair.assert_equal()
    assert all(process.is_alive() for process in site.seconds.values())


def test_the_database_s_primary_may_die(site: Site) -> None:
    site.cluster.wait_until_safe()
    site.cluster.primary().kill()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            site.cluster.primary()
            break
        except EngineError:
            time.sleep(0.5)
    site.pair.append(site.pair.create())
    site.wait_for_sync()
    site.pair.assert_equal()
