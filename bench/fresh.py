"""A commit on `main` until another region serves it online: replica, feature store, gateway."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa

from bench.common import Result, percentile, report, rounded
from bench.intake import _process, services_of
from bench.kpi import _address
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.servers.spark import spark_environment
from sterna.servers.valkey import ValkeyServer, start_valkey

FOLLOW, AIRFLOW = 3.0, 10.0
_DAGS = Path(__file__).parents[1] / "dags"
_USED = ("sterna_sync", "sterna_features")
_WARM_UP = 3
_LOOK = 0.02
_MAX_WAIT_SECONDS = 240.0


def bench(commits: int, airflow: int, work: Path | None) -> None:
    """Measure so many commits with `sterna follow`, then so many through Airflow; none where that is 0."""
    with pair(work, airflow=airflow > 0) as world:
        valkey = start_valkey(world.stage.work / "valkey")
        login = {"AIRFLOW_CONN_VALKEY_EU": json.dumps({"conn_type": "generic", "password": valkey.password})}
        spark = spark_environment(world.stage.work, memory="1g")
        try:
            with temporary_environment({**login, **spark}):
                users = _Users.make(world, valkey)
                with _served(world) as url:
                    if commits:
                        with _following(world):
                            users.measure(url, "with follow", FOLLOW, commits)
                    if airflow:
                        with _scheduled(world, login):
                            users.measure(url, "through Airflow", AIRFLOW, airflow)
        finally:
            valkey.stop()


@dataclass
class _Users:
    """A table of users in us, served online in eu.

    Args:
        last: the newest user.
    """

    world: Pair
    last: int = 0

    @classmethod
    def make(cls, world: Pair, valkey: ValkeyServer) -> _Users:
        """Make the table and the services file, and sync eu."""
        users = cls(world)
        writer = open_writer(world)
        writer.create_namespace_if_not_exists(NAMESPACE)
        writer.create_table(f"{NAMESPACE}.users", _row(0).schema).append(_row(0))
        view = {"name": "user", "entity": "user", "table": f"{NAMESPACE}.users", "features": ["city"], "unique": True}
        section = {
            "online": {"eu": {"url": valkey.url, "credential_id": "valkey_eu"}},
            "entities": [{"name": "user", "key": {"user_id": "long"}}],
            "views": [view],
        }
        services_of(world).write_text(json.dumps({"version": 1, "features": section}))
        with world.context() as context:
            sync(context, SyncOptions(), lambda line: None)
        return users

    def measure(self, url: str, case: str, goal: float, commits: int) -> None:
        """Commit one user after the other, and report the seconds from each one's commit until it is served."""
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            latencies = tuple(self._one(client) for _ in range(commits + _WARM_UP))[_WARM_UP:]
        details = {
            "p50": rounded(percentile(latencies, 0.5)),
            "p99": rounded(percentile(latencies, 0.99)),
            "look every": _LOOK,
        }
        report(Result("fresh", case, goal, "at most", "s", {"sterna": latencies}, percentile(latencies, 0.5), details))

    def _one(self, client: httpx.Client) -> float:
        self.last += 1
        table = open_writer(self.world).load_table(f"{NAMESPACE}.users")
        before = self.world.catalog.reference(SOURCE_BRANCH).hash
        table.append(_row(self.last))
        committed = time.monotonic()  # PyIceberg has the answer: the commit was made a moment before
        assert self.world.catalog.reference(SOURCE_BRANCH).hash != before
        while client.get(f"/features/user/{self.last}").headers.get("X-Sterna-Cache") != "hit":
            assert time.monotonic() < committed + _MAX_WAIT_SECONDS, f"user {self.last} is not served"
            time.sleep(_LOOK)
        seconds = time.monotonic() - committed
        report_progress(f"user {self.last}: {seconds:.2f} s")
        return seconds


def _row(user: int) -> pa.Table:
    return pa.table({"user_id": pa.array([user], pa.int64()), "city": [f"city {user}"]})


@contextmanager
def _following(world: Pair) -> Iterator[None]:
    """Run `sterna follow` and `sterna features materialize`, one beside the other."""
    follow = _sterna(world, "follow", services=False)
    fill = [*_sterna(world, "features", "materialize"), "--for", "1h"]
    with _process(follow, world.stage.work / "follow.log"), _process(fill, world.stage.work / "materialize.log"):
        yield


@contextmanager
def _served(world: Pair) -> Iterator[str]:
    log = world.stage.work / "serve.log"
    with _process([*_sterna(world, "serve"), "--only", "features", "--port", "0"], log):
        yield _address(log)


@contextmanager
def _scheduled(world: Pair, login: Mapping[str, str]) -> Iterator[None]:
    """Run eu's Airflow, with the DAGs that sync and that fill the store; the latter lingers, as it is shipped."""
    dags = world.stage.work / "fresh-dags"
    dags.mkdir()
    for name in _USED:
        shutil.copy(_DAGS / f"{name}.py", dags)
    settings = {"SCHEDULE": "", "FEATURES_SCHEDULE": "", "SERVICES": str(services_of(world))}
    environ = {f"AIRFLOW__STERNA__{name}": value for name, value in settings.items()}
    airflow = world.stage.start_airflow("eu", dags, env={**environ, **login})
    for name in _USED:
        airflow.wait_for_dag(name)
        airflow.patch(f"/dags/{name}", {"is_paused": False})
    yield


def _sterna(world: Pair, *words: str, services: bool = True) -> list[str]:
    command = [sys.executable, "-m", "sterna.cli.main", *words, "--region", "eu"]
    command += ["--registry", str(world.stage.registry)]
    return [*command, "--services", str(services_of(world))] if services else command
