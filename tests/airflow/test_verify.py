"""A replica that is verified and repaired by a real Airflow: a copy is damaged, found, and restored from `main`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sterna.text.lines import NOTHING_CHANGED
from tests.airflow.conftest import World

VERIFY, REPAIR = "sterna_verify", "sterna_repair"


@pytest.fixture
def started(world: World) -> Iterator[None]:
    """Both DAGs take runs, and eu is at rest."""
    world.wait_for_publication(set())
    for dag in (VERIFY, REPAIR):
        world.airflow.wait_for_dag(dag)
        world.airflow.patch(f"/dags/{dag}", {"is_paused": False})
    with world.paused():
        yield
    for dag in (VERIFY, REPAIR):
        world.airflow.patch(f"/dags/{dag}", {"is_paused": True})


def ended(world: World, dag: str, **conf: Any) -> tuple[str, dict[str, Any], str]:
    """Run a DAG as its form in Airflow does; return how its task ended, its counts and its log."""
    run = world.airflow.post(f"/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
    path = f"/dags/{dag}/dagRuns/{run}"
    world.wait_until("the run's end", lambda: world.airflow.get(path)["state"] in ("success", "failed"))
    task = f"{path}/taskInstances/{dag.removeprefix('sterna_')}"
    counts = world.airflow.get(f"{task}/xcomEntries/return_value")["value"]
    return world.airflow.get(task)["state"], counts, str(world.airflow.get(f"{task}/logs/1"))


def test_a_damaged_copy_is_found_shown_and_mended(world: World, started: None) -> None:
    (uri,) = world.sql("SELECT file_path FROM dag_replica.shop.orders.data_files ORDER BY 1 LIMIT 1")[0]
    objects = world.context.objects
    good = objects.read(uri)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    objects.overwrite(uri, damaged)
    chosen = {"tables": ["shop.ord*"], "deep": True}
    state, counts, log = ended(world, VERIFY, sample="1/1")
    assert (state, counts["faults"]) == ("failed", 1)
    assert f"shop.orders: differs: {uri}: " in log
    state, counts, log = ended(world, REPAIR, dry_run=True, **chosen)
    assert (state, counts["mends"], counts["faults_left"]) == ("success", 1, 1)
    assert f"shop.orders: copy: {uri} from s3://" in log and NOTHING_CHANGED in log
    assert objects.read(uri) == damaged
    assert ended(world, REPAIR, **chosen)[:2] == (
        "success",
        {"dry_run": False, "faults": 1, "mends": 1, "faults_left": 0},
    )
    assert objects.read(uri) == good
    state, counts, _ = ended(world, VERIFY, **chosen)
    assert (state, counts["tables"], counts["faults"]) == ("success", 1, 0)
