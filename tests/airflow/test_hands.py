"""What a person may do to a run in a real Airflow: what comes of it is right, or refused with the reason.

The table in docs/airflow.md says the same for people. All runs are of a DAG of their own, which is the sync's but
that nothing but a hand starts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import psutil
import pytest

from sterna.errors import EngineError
from sterna.replication.replica.head import read_head
from tests.airflow.conftest import DAG, World
from tests.support.often import often

HAND = "by_hand"
GC = "sterna_gc"
_FILE = """\
from datetime import timedelta
from sterna.airflow.dags import _sync_params, _sync_tasks, new_dag
from sterna.airflow.settings import get_option

with new_dag("by_hand", "eu", "### By hand", {"schedule": None, "params": _sync_params(lanes=False)}) as dag:
    _sync_tasks(get_option("region"), get_option("registry"), timedelta())
"""
_NUMBERS = count(5000)
PUBLISHED = {"plan": "success", "copy": "success", "localize": "success", "publish": "success", "announce": "success"}


class AirflowUser:
    """A person before eu's Airflow."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.airflow = world.airflow

    def commit(self) -> None:
        """Two tables change on `main`, whose files are in two regions: a sync copies two batches."""
        number = next(_NUMBERS)
        self.world.sql(f"INSERT INTO dag_us.shop.orders VALUES ({number}, 'hand')")
        self.world.sql(f"INSERT INTO dag_ap.shop.items VALUES ({number}, 'hand')")

    def begin(self, dag: str = HAND) -> str:
        return str(self.airflow.post(f"/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"])

    @contextmanager
    def paused(self, dag: str = HAND) -> Iterator[None]:
        """Runs wait until the block is over: whoever clears and then marks is faster than the scheduler."""
        self.airflow.patch(f"/dags/{dag}", {"is_paused": True})
        try:
            yield
        finally:
            self.airflow.patch(f"/dags/{dag}", {"is_paused": False})

    @contextmanager
    def copying(self) -> Iterator[str]:
        """A run whose copies have arrived and don't end within this block."""
        hangs, hung = self.world.folder / "hangs", self.world.folder / "hung"
        hung.unlink(missing_ok=True)  # a copy that arrived after the last such block left it
        hangs.touch()
        try:
            run = self.begin()
            self.world.wait_until("copies that hang", hung.exists)
            self.world.wait_until("both copies", lambda: self.states(run)["copy"] == "running")
            yield run
        finally:
            hangs.unlink()
            hung.unlink(missing_ok=True)

    def copy_at_work(self, run: str) -> tuple[str, psutil.Process]:
        """One of a run's copies whose rclone is under way: as `mark` takes it, and the process of its task."""

        def running_copy() -> tuple[str, psutil.Process] | None:
            parents = {child.ppid() for child in self.world.copies()}
            tasks = self.airflow.get(f"/dags/{HAND}/dagRuns/{run}/taskInstances", limit=100)["task_instances"]
            copies = (task for task in tasks if task["task_id"] == "copy" and task["pid"] in parents)
            return next(((f"copy/{task['map_index']}", psutil.Process(task["pid"])) for task in copies), None)

        running: tuple[str, psutil.Process] = self.world.wait_until("a copy's program", running_copy)
        return running

    def mark(self, run: str, task: str, dag: str = HAND) -> None:
        """Mark a task as success; `copy/0` is one of several."""
        self.airflow.patch(f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}", {"new_state": "success"})

    def clear(self, run: str, *tasks: str, dag: str = HAND) -> None:
        """Clear some tasks of a run, and no others; none: the whole run."""
        asked = {"dry_run": False, "dag_run_id": run, "only_failed": False}
        self.airflow.post(f"/dags/{dag}/clearTaskInstances", asked | ({"task_ids": list(tasks)} if tasks else {}))

    def ended(self, run: str, dag: str = HAND) -> dict[str, str]:
        """Wait until a run is over; return the states of its tasks, and under "" its own."""
        path = f"/dags/{dag}/dagRuns/{run}"
        state = self.world.wait_until("the run's end", lambda: self._over(path))
        return {**self.states(run, dag), "": state}

    def states(self, run: str, dag: str = HAND) -> dict[str, str]:
        """The state of each task; several of a mapped one with commas between them."""
        by_task: dict[str, set[str]] = {}
        for task in self.airflow.get(f"/dags/{dag}/dagRuns/{run}/taskInstances", limit=100)["task_instances"]:
            by_task.setdefault(task["task_id"], set()).add(str(task["state"]))
        return {task: ", ".join(sorted(states)) for task, states in by_task.items()}

    def returned(self, run: str, task: str = "publish", dag: str = HAND) -> dict[str, Any]:
        xcom = self.airflow.get(f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value")
        value: dict[str, Any] = xcom["value"]
        return value

    def task_log(self, run: str, task: str) -> str:
        (tried,) = (
            item["try_number"]
            for item in self.airflow.get(f"/dags/{HAND}/dagRuns/{run}/taskInstances")["task_instances"]
            if item["task_id"] == task
        )
        return str(self.airflow.get(f"/dags/{HAND}/dagRuns/{run}/taskInstances/{task}/logs/{tried}"))

    @property
    def head(self) -> str:
        return self.world.context.catalog.reference("main_replica_eu").hash

    @property
    def is_up_to_date(self) -> bool:
        catalog = self.world.context.catalog
        return read_head(catalog, "main_replica_eu").watermark == catalog.reference("main").hash

    def _over(self, path: str) -> str:
        state = str(self.airflow.get(path)["state"])
        return state if state in ("success", "failed") else ""


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def hands(world: World) -> Iterator[AirflowUser]:
    """Eu's Airflow, in which no commit starts a run any more."""
    (world.folder / "dags" / "by_hand.py").write_text(_FILE)
    world.airflow.wait_for_dag(HAND)
    world.airflow.wait_for_dag(DAG)
    world.wait_until_idle()
    hands = AirflowUser(world)
    with hands.paused(DAG):
        hands.ended(hands.begin())
        yield hands


@pytest.fixture(scope="module")
def finished(hands: AirflowUser) -> str:
    """A run that published."""
    hands.commit()
    run = hands.begin()
    assert hands.ended(run) == {**PUBLISHED, "": "success"}
    return run


def test_of_two_started_at_once_the_second_waits_and_finds_nothing_to_do(hands: AirflowUser) -> None:
    hands.commit()
    with hands.paused():
        runs = [hands.begin(), hands.begin()]
    assert hands.ended(runs[0])["publish"] == "success"
    assert {task: hands.ended(runs[1])[task] for task in ("plan", "publish", "")} == {
        "plan": "success",
        "publish": "skipped",
        "": "success",
    }
    assert hands.is_up_to_date


@pytest.mark.parametrize("task", often(["publish", "localize", "copy", "plan", "announce"], ["publish", "copy"]))
def test_a_task_of_a_finished_run_that_is_cleared_alone_changes_nothing(
    hands: AirflowUser, finished: str, task: str
) -> None:
    before = hands.head
    hands.clear(finished, task)
    assert hands.ended(finished)[""] == "success"
    assert hands.head == before
    assert hands.returned(finished)["outcome"] == "published", "by the commit that it made the first time"


def test_an_old_plan_is_not_published_once_more(hands: AirflowUser, finished: str) -> None:
    """The whole run is cleared, and its plan marked as success before it is made anew: its last one stands."""
    hands.commit()
    other = hands.begin()
    assert hands.ended(other)["publish"] == "success"
    before = hands.head
    with hands.paused():
        hands.clear(finished)
        hands.mark(finished, "plan")
    hands.ended(finished)
    assert hands.head == before
    assert hands.is_up_to_date


def test_a_plan_that_is_marked_as_success_leaves_nothing_to_go_on_with(hands: AirflowUser) -> None:
    hands.commit()
    before = hands.head
    with hands.paused():
        run = hands.begin()
        hands.mark(run, "plan")
    assert hands.ended(run) == {**dict.fromkeys(PUBLISHED, "upstream_failed"), "plan": "success", "": "failed"}
    assert hands.head == before


def test_a_localize_that_is_marked_as_success_is_noticed_by_publish(hands: AirflowUser) -> None:
    hands.commit()
    before = hands.head
    with hands.paused():
        run = hands.begin()
        hands.mark(run, "localize")
    assert hands.ended(run)["publish"] == "failed"
    assert "the localize stage was left out" in hands.task_log(run, "publish")
    assert hands.head == before


def test_a_copy_that_is_marked_as_success_while_it_runs_is_noticed_by_publish(hands: AirflowUser) -> None:
    hands.commit()
    before = hands.head
    with hands.copying() as run:
        name, process = hands.copy_at_work(run)
        hands.mark(run, name)
        # Airflow asks it to end with its next heartbeat, and ends it by force 5 s later. Had it ended by itself before
        # that, all would be copied.
        hands.world.wait_until("the end of that task", lambda: not _lives(process))
    assert hands.ended(run)["publish"] == "failed"
    assert "a copy batch was left out" in hands.task_log(run, "publish")
    assert hands.head == before


@pytest.mark.parametrize("task", often(["publish", "announce"], ["publish"]))
def test_what_was_only_marked_as_success_is_made_up_for_by_the_next_run(hands: AirflowUser, task: str) -> None:
    hands.commit()
    before = hands.head
    with hands.paused():
        run = hands.begin()
        hands.mark(run, task)
    assert hands.ended(run)[""] == "success"
    assert (hands.head == before) == (task == "publish")
    after = hands.begin()
    assert hands.ended(after)[""] == "success"
    assert hands.returned(after, "announce") == 2
    assert hands.is_up_to_date


def test_a_run_that_is_marked_as_success_while_it_copies_publishes_nothing(hands: AirflowUser) -> None:
    hands.commit()
    before = hands.head
    with hands.copying() as run:
        hands.airflow.patch(f"/dags/{HAND}/dagRuns/{run}", {"state": "success"})
    assert hands.ended(run) == {
        **dict.fromkeys(PUBLISHED, "skipped"),
        "plan": "success",
        "copy": "success",
        "": "success",
    }
    assert hands.head == before


@pytest.mark.parametrize(
    "tasks", [(), pytest.param(("copy",), marks=pytest.mark.rare)], ids=["the whole run", "its copies"]
)
def test_a_run_that_is_cleared_while_it_copies_ends_well(hands: AirflowUser, tasks: tuple[str, ...]) -> None:
    hands.commit()
    with hands.copying() as run:
        hands.clear(run, *tasks)
    states = hands.ended(run)
    assert (states["publish"], states[""]) == ("success", "success")
    assert hands.is_up_to_date


@pytest.mark.parametrize("dag", often([DAG, GC, "sterna_lag_alert", "sterna_promote"], [DAG]))
def test_none_is_backfilled(hands: AirflowUser, dag: str) -> None:
    now = datetime.now(UTC)
    asked = {"dag_id": dag, "from_date": f"{now - timedelta(days=2):%FT%TZ}", "to_date": f"{now:%FT%TZ}"}
    with pytest.raises(EngineError, match=r"does not (allow backfill runs|support backfills)"):
        hands.airflow.post("/backfills", {**asked, "dag_run_conf": {}})


def test_clean_ups_started_at_once_follow_one_another_and_one_that_is_cleared_is_another_clean_up(
    hands: AirflowUser,
) -> None:
    with hands.paused(GC):
        runs = [hands.begin(GC), hands.begin(GC)]
    assert [hands.ended(run, GC)[""] for run in runs] == ["success", "success"]
    passes = [hands.returned(run, "gc", GC)["pass_id"] for run in runs]
    hands.clear(runs[0], dag=GC)
    assert hands.ended(runs[0], GC)[""] == "success"
    assert len({*passes, hands.returned(runs[0], "gc", GC)["pass_id"]}) == 3


def test_a_clean_up_that_is_marked_as_success_has_cleaned_nothing(hands: AirflowUser) -> None:
    before = hands.head
    with hands.paused(GC):
        run = hands.begin(GC)
        hands.mark(run, "gc", GC)
    assert hands.ended(run, GC) == {"gc": "success", "": "success"}
    assert hands.head == before
