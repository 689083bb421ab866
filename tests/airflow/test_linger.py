"""A run that lingers, in a real Airflow: commits that follow one another need no run each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.replication.replica.head import read_head
from tests.airflow.conftest import World

LINGERING = "lingering"


@pytest.fixture
def lingering(world: World) -> Iterator[None]:
    """The DAG that lingers in place of the other one; both look at the same head of `main`."""
    world.airflow.wait_for_dag(LINGERING)
    with world.paused():
        yield
        world.airflow.patch(f"/dags/{LINGERING}", {"is_paused": True})


def test_commits_that_follow_one_another_are_published_by_one_run(world: World, lingering: None) -> None:
    heard = len(world.runs("consumer"))
    world.airflow.patch(f"/dags/{LINGERING}", {"is_paused": False})
    world.sql("INSERT INTO dag_us.shop.orders VALUES (2000, 'first')")

    def tasks() -> dict[str, str]:
        runs = [run for run in world.runs(LINGERING) if run["state"] == "running"]
        path = f"/dags/{LINGERING}/dagRuns/{runs[0]['dag_run_id']}/taskInstances" if runs else ""
        instances = world.airflow.get(path, limit=100)["task_instances"] if path else []
        return {task["task_id"]: task["state"] for task in instances}

    world.wait_until("a run that lingers", lambda: tasks().get("linger") == "running")
    # The run's own table is announced by then.
    world.wait_until("the user's DAG", lambda: len(world.runs("consumer")) > heard)
    heard = len(world.runs("consumer"))
    for number in range(2):
        world.sql(f"INSERT INTO dag_us.shop.orders VALUES ({2001 + number}, 'next')")
        head = world.context.catalog.reference("main").hash
        world.wait_until(
            "the replica", lambda head=head: read_head(world.context.catalog, "main_replica_eu").watermark == head
        )
        assert tasks().get("linger") == "running"
    assert world.sql("SELECT count(*) FROM dag_replica.shop.orders WHERE id BETWEEN 2001 AND 2002") == [(2,)]
    # What was published meanwhile is announced at its end.
    world.wait_until("the user's DAG", lambda: len(world.runs("consumer")) > heard)
