"""The DAG that promotes a region, in a real Airflow: it waits for a person, and does what the person says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import NotPrimary
from sterna.replication.failover.promote import plan_promotion
from sterna.servers.airflow import Airflow, create_airflow_tables, start_airflow
from sterna.text.catalog import promotion_text
from tests.ha.failover.cluster import Cluster

DAG = "sterna_promote"
_FILE = Path(__file__).parents[3] / "dags" / "sterna_promote.py"
_WAIT_SECONDS = 300.0
_DECISION_SECONDS = 3.0
_ENDED = ("success", "failed")


@dataclass
class Promoting:
    """Regions us, the primary, eu, whose Airflow can promote it, and ap.

    Args:
        regions: all regions' catalogs.
        airflow: eu's.
    """

    regions: Cluster
    airflow: Airflow

    def trigger(self) -> str:
        """Start the planned promotion of eu and return the run's id."""
        run = self.airflow.post(f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": {"planned": True}})
        return str(run["dag_run_id"])

    def wait_for_question(self, run: str) -> dict[str, Any]:
        """Wait until the run waits for a person, and return what stands under *Required Actions*."""
        self._wait(run, lambda: self.states(run).get("approve") == "awaiting_input")
        (question,) = self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/hitlDetails", response_received=False)[
            "hitl_details"
        ]
        assert question["task_instance"]["task_id"] == "approve"
        return dict(question)

    def answer(self, run: str, option: str, end: str = "success") -> None:
        """Answer as the page's button does, and wait until the run is over, in this state."""
        # Airflow hears from its executor that the question was asked within a second or so. An answer before that
        # queues the task again, and it takes the two together for a failure: no person is that fast.
        time.sleep(_DECISION_SECONDS)
        body = {"chosen_options": [option], "params_input": {}}
        self.airflow.patch(f"/dags/{DAG}/dagRuns/{run}/taskInstances/approve/-1/hitlDetails", body)
        self._wait(run, lambda: self._state(run) == end)

    def give_up(self) -> None:
        """End the runs that a test which failed left waiting.

        There is one at a time, and the next would wait for it.
        """
        for run in self.airflow.get(f"/dags/{DAG}/dagRuns", state=["queued", "running"])["dag_runs"]:
            self.airflow.patch(f"/dags/{DAG}/dagRuns/{run['dag_run_id']}", {"state": "failed"})

    def mark(self, run: str, task: str) -> None:
        """Mark a task as success, as a person does."""
        self.airflow.patch(f"/dags/{DAG}/dagRuns/{run}/taskInstances/{task}", {"new_state": "success"})

    def clear(self, run: str, *tasks: str) -> None:
        """Clear some tasks of a run, and no others."""
        asked = {"dry_run": False, "dag_run_id": run, "only_failed": False, "task_ids": list(tasks)}
        self.airflow.post(f"/dags/{DAG}/clearTaskInstances", asked)

    def look_again(self, run: str) -> None:
        """Clear the first task alone, and wait until it has looked."""
        self.clear(run, "look")
        self._wait(run, lambda: self.states(run)["look"] == "success")

    def ended(self, run: str) -> dict[str, str | None]:
        """Wait until a run is over, and return the state of each task."""
        self._wait(run, lambda: self._state(run) in _ENDED)
        return self.states(run)

    def task_log(self, run: str, task: str) -> str:
        """Return the log of a task's newest try."""
        tasks = self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances")["task_instances"]
        (tried,) = (item["try_number"] for item in tasks if item["task_id"] == task)
        return str(self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances/{task}/logs/{tried}"))

    def states(self, run: str) -> dict[str, str | None]:
        """Return the state of each task."""
        tasks = self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def returned(self, run: str, task: str) -> str:
        """Return what a task returned."""
        return str(
            self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value")["value"]
        )

    def assert_primary(self, primary: str, copy: str) -> None:
        """One region takes commits, and the others follow it; a copy takes none and shows them."""
        assert self.regions.primary() == primary
        assert {name for name, site in self.regions.read_sites().items() if site.writable} == {primary}
        self.regions.wait_until_replicated(self.regions.commit(primary))
        with pytest.raises(NotPrimary):  # not before it is in step: of another head it would speak of a conflict
            self.regions.commit(copy)

    def _state(self, run: str) -> str:
        return str(self.airflow.get(f"/dags/{DAG}/dagRuns/{run}")["state"])

    def _wait(self, run: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not true():
            ended = self._state(run) in _ENDED
            if (ended and not true()) or time.monotonic() > deadline:
                raise AssertionError(f"the run is {self._state(run)}, its tasks {self.states(run)}; {self._logs(run)}")
            time.sleep(0.5)

    def _logs(self, run: str) -> dict[str, str]:
        tried = [task for task, state in self.states(run).items() if state in ("failed", "up_for_retry")]
        return {task: str(self.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances/{task}/logs/1")) for task in tried}


@pytest.fixture(scope="module")
def airflow(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Eu's Airflow, which has the DAG."""
    running.heal()
    work = tmp_path_factory.mktemp("promoting")
    dags = work / "dags"
    dags.mkdir()
    shutil.copy(_FILE, dags)
    # Airflow's tables stand beside the region's own catalog: what a promotion does to that server it does to
    # Airflow's, too.
    tables = running.sites.by_region["eu"].postgres.create_database("airflow")
    create_airflow_tables(tables, work)
    env = {
        **running.sites.environment,
        "AIRFLOW__STERNA__REGION": "eu",
        "AIRFLOW__STERNA__REGISTRY": str(running.sites.registry),
    }
    started = start_airflow(work, "eu", tables, dags, env=env)
    try:
        started.wait_for_dag(DAG)
        yield started
    finally:
        started.stop()


@pytest.fixture
def promoting(cluster: Cluster, airflow: Airflow) -> Promoting:
    """Regions us, the primary, eu and ap, in step, and eu's Airflow, which waits for nobody."""
    promoting = Promoting(cluster, airflow)
    promoting.give_up()
    return promoting


def test_a_region_is_promoted_once_a_person_has_approved(promoting: Promoting) -> None:
    regions = promoting.regions
    promotion = plan_promotion(regions.registry, regions.sites.secrets, "eu", planned=True)
    run = promoting.trigger()
    question = promoting.wait_for_question(run)
    assert question["subject"] == "Make region eu's catalog the primary?"
    assert question["options"] == ["Approve", "Reject"]
    report = promoting.returned(run, "look")
    assert report == promotion_text(promotion)
    assert question["body"] == f"```text\n{report}\n```"
    assert f"eu becomes the primary: term {promotion.term} begins" in report
    # Until somebody has approved us is the primary; what it takes meanwhile comes along.
    promoting.assert_primary("us", "eu")
    meanwhile = regions.head("us")
    promoting.answer(run, "Approve")
    assert promoting.states(run) == {"look": "success", "approve": "success", "promote": "success"}
    assert promoting.returned(run, "promote") == (
        f"eu is the primary, term {promotion.term}\n  us follows it\n  ap follows it"
    )
    assert regions.head("eu") == meanwhile
    promoting.assert_primary("eu", "us")


def test_nothing_is_promoted_when_the_person_rejects(promoting: Promoting) -> None:
    before = promoting.regions.read_sites()
    run = promoting.trigger()
    assert promoting.wait_for_question(run)["subject"] == "Make region eu's catalog the primary?"
    promoting.answer(run, "Reject")
    assert promoting.states(run) == {"look": "success", "approve": "success", "promote": "skipped"}
    assert {name: site.term for name, site in promoting.regions.read_sites().items()} == {
        name: site.term for name, site in before.items()
    }
    promoting.assert_primary("us", "eu")


def test_what_a_person_marks_as_success_promotes_nothing(promoting: Promoting) -> None:
    """Not a look that nobody took, nor an approval that nobody gave."""
    promoting.airflow.patch(f"/dags/{DAG}", {"is_paused": True})
    run = promoting.trigger()
    promoting.mark(run, "look")
    promoting.airflow.patch(f"/dags/{DAG}", {"is_paused": False})
    assert promoting.ended(run) == {"look": "success", "approve": "failed", "promote": "upstream_failed"}
    assert "there is no preview of the promotion" in promoting.task_log(run, "approve")
    run = promoting.trigger()
    promoting.wait_for_question(run)
    promoting.mark(run, "approve")
    assert promoting.ended(run) == {"look": "success", "approve": "success", "promote": "failed"}
    assert "this promotion is not approved" in promoting.task_log(run, "promote")
    promoting.assert_primary("us", "eu")


def test_an_approval_is_good_for_that_very_promotion_and_no_later_one(promoting: Promoting) -> None:
    run = promoting.trigger()
    promoting.wait_for_question(run)
    promoting.answer(run, "Approve")
    promoting.clear(run, "promote")
    assert promoting.ended(run)["promote"] == "success", "the same steps again do no harm"
    promoting.assert_primary("eu", "us")
    promoting.regions.promote("us", planned=True)
    promoting.clear(run, "promote")
    assert promoting.ended(run)["promote"] == "failed"
    assert "another promotion was approved" in promoting.task_log(run, "promote")
    promoting.assert_primary("us", "eu")


@pytest.mark.rare
def test_an_answer_is_for_what_was_shown_though_another_look_says_something_else(promoting: Promoting) -> None:
    run = promoting.trigger()
    shown = promoting.wait_for_question(run)["body"]
    promoting.regions.promote("eu", planned=True)
    promoting.regions.promote("us", planned=True)
    promoting.look_again(run)
    assert promoting.returned(run, "look") not in shown
    assert promoting.wait_for_question(run)["body"] == shown, "the page shows what it showed"
    promoting.answer(run, "Approve", end="failed")
    assert promoting.states(run) == {"look": "success", "approve": "success", "promote": "failed"}
    assert "another promotion was approved" in promoting.task_log(run, "promote")
    promoting.assert_primary("us", "eu")
