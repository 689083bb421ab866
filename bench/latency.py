"""From one small commit on `main` to what the replica serves.

By the command line, and through Airflow, triggered by the commit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import Result, alternate, percentile, report, rounded
from bench.copy import run_rclone
from bench.regions import Pair, pair, report_progress, run_sterna, settle, sync_one_file
from bench.writer import SmallTable, open_writer
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import read_head
from sterna.replication.sync.run import sync
from sterna.servers.airflow import Airflow

GOAL_SECONDS_OVER = 2.0
GOAL_TIMES_AIRFLOW = 1.2
_DAGS = Path(__file__).parents[1] / "dags"
_SYNC, _EMPTY = "sterna_sync", "empty"
# As many tasks as a sync has, wired alike, that do nothing.
_EMPTY_DAG = """\
from airflow.sdk import DAG, task

with DAG("empty", schedule=None, catchup=False, max_active_runs=1) as dag:
    @task
    def plan():
        return [{"number": 0}]

    @task
    def copy(batch):
        return 1

    @task
    def localize(copied):
        return 1

    @task
    def publish(localized):
        return 1

    @task
    def announce(published):
        return 1

    announce(publish(localize(copy.expand(batch=plan()))))
"""
_LOOK_SECONDS = 0.05
_MAX_WAIT_SECONDS = 300.0


def bench(commits: int, airflow: int, work: Path | None) -> None:
    """Measure so many commits by the command line, then so many through Airflow; none where that is 0."""
    with pair(work, airflow=airflow > 0) as world:
        table = SmallTable(world, open_writer(world), "latency").create()
        with world.context() as context:
            sync(context, SyncOptions(), report_progress)
        command = measure_command(world, table, commits)
        if airflow:
            measure_airflow(world, table, airflow, command)


def measure_command(world: Pair, table: SmallTable, commits: int) -> Sequence[float]:
    """Measure and report the command line; return its seconds."""
    new: list[str] = []

    def process() -> float:
        before = table.files().keys()
        table.append()
        new[:] = table.files().keys() - before
        started = time.monotonic()
        output = run_sterna("sync", "--region", "eu", "--json")
        seconds = time.monotonic() - started
        assert '"published"' in output, output
        return seconds

    with world.context() as context:

        def warm() -> float:
            table.append()
            return sync_one_file(context)

        sides = {
            "sterna sync, a process": process,
            "plain rclone copy": lambda: plain_copy(world, table, new),
            "sync, warm process": warm,
        }
        timings = alternate(sides, commits, report_progress)
    ours, theirs, _ = timings.values()
    over = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    details = {**_percentiles(timings), "p99 over": rounded(percentile(over, 0.99))}
    report(Result("latency", "command line", GOAL_SECONDS_OVER, "at most", "s", timings, median(over), details))
    return ours


def plain_copy(world: Pair, table: SmallTable, names: Sequence[str]) -> float:
    """Copy the files of the last commit, as they are, with one rclone; return the seconds."""
    listed = world.stage.work / "latency-files"
    listed.write_text("".join(f"{name}\n" for name in names))
    with world.context() as context:
        target = f"{context.region.replica_root}-rival/copied"
        seconds = run_rclone(context, table.location(), target, ["--files-from-raw", str(listed), "--no-traverse"])
    assert all((world.path(target) / name).exists() for name in names)
    return seconds


@dataclass
class _Shares:
    """Where the seconds of runs went: until the commit was noticed, inside tasks, between them."""

    noticed: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)

    def take(self, committed: float, run: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> None:
        spans = sorted(
            (_seconds(task["start_date"]), _seconds(task["end_date"]))
            for task in tasks
            if task["task_id"] != "announce"
        )
        self.noticed.append(_seconds(run["queued_at"]) - committed)
        self.inside.append(sum(end - start for start, end in spans))
        self.between.append(spans[-1][1] - _seconds(run["queued_at"]) - self.inside[-1])

    def shown(self) -> dict[str, float]:
        return {name: rounded(median(values)) for name, values in vars(self).items()}


def measure_airflow(world: Pair, table: SmallTable, commits: int, command: Sequence[float]) -> None:
    """Measure and report what a commit takes through Airflow."""
    airflow = _start(world)
    ours, empty = _Shares(), _Shares()
    sides: dict[str, Callable[[], float]] = {
        "through Airflow": lambda: _through_airflow(world, airflow, table, ours),
        "an empty DAG": lambda: _empty_run(airflow, empty),
    }
    timings = {**alternate(sides, commits, report_progress), "sterna sync, a process": tuple(command)}
    allowed = median(timings["an empty DAG"]) + median(command)
    details = {
        **_percentiles(timings),
        "empty DAG and command line, p50": rounded(allowed),
        "seconds, median": {"sync": ours.shown(), "empty DAG": empty.shown()},
    }
    figure = median(timings["through Airflow"]) / allowed
    report(Result("latency", "through Airflow", GOAL_TIMES_AIRFLOW, "at most", "times", timings, figure, details))


def _start(world: Pair) -> Airflow:
    dags = world.stage.work / "latency-dags"
    dags.mkdir()
    shutil.copy(_DAGS / f"{_SYNC}.py", dags)
    (dags / "empty.py").write_text(_EMPTY_DAG)
    airflow = world.stage.start_airflow("eu", dags, env={"AIRFLOW__STERNA__SCHEDULE": ""})
    for dag in (_SYNC, _EMPTY):
        airflow.wait_for_dag(dag)
    settle()
    return airflow


def _through_airflow(world: Pair, airflow: Airflow, table: SmallTable, shares: _Shares) -> float:
    earlier_runs = {run["dag_run_id"] for run in _ended_runs(airflow, _SYNC)}
    table.append()
    committed = time.time()
    head = world.catalog.reference(SOURCE_BRANCH).hash
    with world.context() as context:
        _wait(lambda: read_head(context.catalog, context.region.replica_branch).watermark == head, _LOOK_SECONDS)
    seconds = time.time() - committed
    (run,) = (run for run in _ended_runs(airflow, _SYNC) if run["dag_run_id"] not in earlier_runs)
    shares.take(committed, run, _tasks(airflow, run))
    return seconds


def _empty_run(airflow: Airflow, shares: _Shares) -> float:
    started = time.time()
    airflow.post(f"/dags/{_EMPTY}/dagRuns", {"logical_date": None})
    run = _ended_runs(airflow, _EMPTY)[0]
    tasks = _tasks(airflow, run)
    shares.take(started, run, tasks)
    (publish,) = (task for task in tasks if task["task_id"] == "publish")
    return _seconds(publish["end_date"]) - started


def _ended_runs(airflow: Airflow, dag: str) -> list[dict[str, Any]]:
    """Wait until all runs of a DAG have ended; return them, the newest first."""

    def ended() -> list[dict[str, Any]] | None:
        runs: list[dict[str, Any]] = airflow.get(f"/dags/{dag}/dagRuns", order_by="-run_after", limit=100)["dag_runs"]
        states = {run["state"] for run in runs}
        assert "failed" not in states, f"a run of {dag} failed: see its log"
        return runs if states <= {"success"} else None

    runs: list[dict[str, Any]] = _wait(ended, 0.5)
    return runs


def _tasks(airflow: Airflow, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    path = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances"
    tasks: list[dict[str, Any]] = airflow.get(path, limit=100)["task_instances"]
    return tasks


def _wait(answer: Callable[[], Any], every: float) -> Any:
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while (outcome := answer()) is None or outcome is False:
        assert time.monotonic() < deadline, f"not within {_MAX_WAIT_SECONDS:.0f} s"
        time.sleep(every)
    return outcome


def _percentiles(timings: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        name: {side: rounded(percentile(values, share)) for side, values in timings.items()}
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
