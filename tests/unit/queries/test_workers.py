"""The processes that run queries: warm, capped, and replaced when one dies or doesn't end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import NeedsSpark, OutOfTime, QueryEnded, QueryFailed
from sterna.serving.queries import worker_pool as query_children
from sterna.serving.queries.worker_pool import QueryWorkerPool
from tests.support.patching import replace_functions
from tests.support.small_world import World
from tests.unit.queries.tables import ROWS, in_place, job, pinned, sales, with_deletes, written

COUNT = "SELECT count(*) AS n FROM ns.sales"
ENDLESS = "SELECT sum(a.range * b.range) AS n FROM range(10000000) a, range(10000000) b, ns.sales"


@pytest.fixture
def children() -> Iterator[QueryWorkerPool]:
    pool = QueryWorkerPool(1)
    yield pool
    pool.close()


def pid_of(children: QueryWorkerPool) -> int | None:
    """The only process; None: there is none."""
    return next(iter(children.pids), None)


def is_there(pid: int | None) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_process_lives_through_what_goes_wrong_and_is_replaced_when_it_dies(
    world: World, children: QueryWorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "secret")
    table = in_place(world, written(world, sales()))

    def ask(sql: str, uri: str = table, **fields: Any) -> Any:
        return children.run(job(world, sql, pinned(uri), kpi=True, **fields))["rows"][0]

    children.grace_seconds = 60.0
    children.warm()
    first = pid_of(children)
    assert first is not None
    assert ask(COUNT) == {"n": str(ROWS)} and pid_of(children) == first
    environment = Path(f"/proc/{first}/environ").read_text()
    assert "AIRFLOW_CONN_OTHER" not in environment
    assert "OTEL_" not in environment
    with pytest.raises(QueryFailed, match="Catalog"):
        ask("SELECT 1 AS n FROM ns.nope")
    with pytest.raises(NeedsSpark, match="equality"):
        ask(COUNT, with_deletes(table, "equality"))
    with pytest.raises(OutOfTime):
        ask(ENDLESS, seconds=3.0)
    with pytest.raises(QueryFailed, match="memory"):
        ask("SELECT list(a.range) AS n FROM range(100000000) a", memory=64 << 20)
    assert ask(COUNT) == {"n": str(ROWS)}
    assert pid_of(children) == first  # it ended each of these by itself

    os.kill(first, signal.SIGKILL)
    with pytest.raises(QueryFailed, match="died"):
        ask(COUNT)
    assert pid_of(children) is None and ask(COUNT) == {"n": str(ROWS)}

    # One that hangs where nothing interrupts it is ended from here.
    children.grace_seconds = 0.2
    stopped = pid_of(children)
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(OutOfTime):
        ask(COUNT, seconds=0.3)
    assert not is_there(stopped) and pid_of(children) is None


def test_a_process_that_does_not_start_is_ended(children: QueryWorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    real = subprocess.Popen

    def popen(*args: Any, **options: Any) -> Any:
        started.append(real(["sleep", "60"], **options))
        return started[0]

    replace_functions(monkeypatch, query_children, subprocess, Popen=popen)
    children.starting_seconds = 0.2
    with pytest.raises(QueryFailed, match="didn't start"):
        children.warm()
    assert started[0].poll() is not None and pid_of(children) is None


def test_its_address_space_is_capped(world: World, children: QueryWorkerPool) -> None:
    table = in_place(world, written(world, sales()))
    children.run(job(world, COUNT, pinned(table), memory=64 << 20))
    with open(f"/proc/{pid_of(children)}/limits") as file:
        line = next(line for line in file if line.startswith("Max address space"))
    assert 0 < int(line.split()[3]) < 3 << 30


def test_one_process_runs_one_query_at_a_time(world: World, children: QueryWorkerPool) -> None:
    table = in_place(world, written(world, sales()))
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(children.run(job(world, COUNT, pinned(table)))["rows"]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert answers == [[{"n": str(ROWS)}]] * 4
    pid = pid_of(children)
    children.close()
    assert not is_there(pid)


def test_the_end_ends_a_query_at_work_and_no_other_is_begun(world: World, children: QueryWorkerPool) -> None:
    table = in_place(world, written(world, sales()))
    children.warm()
    pid, errors = pid_of(children), list[BaseException]()

    def ask() -> None:
        try:
            children.run(job(world, ENDLESS, pinned(table)))
        except QueryFailed as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while children.idle:
        time.sleep(0.01)
    children.close()
    asking.join(10)
    assert len(errors) == 1 and not is_there(pid)
    with pytest.raises(QueryEnded):
        children.run(job(world, COUNT, pinned(table)))
    with pytest.raises(QueryEnded):
        children.warm()
