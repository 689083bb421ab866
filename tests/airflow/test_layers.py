"""Three layers in a real Airflow: each follows the one below it over the replica, and a task that is killed costs
nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil

from tests.airflow.conftest import World

FLOWS = "sterna_flows"
AGAIN = "SELECT day, count(*), count(DISTINCT lower(user)) FROM dag_us.layers.ods WHERE user IS NOT NULL GROUP BY day"


def test_three_layers_follow_one_another_though_a_task_is_killed(world: World) -> None:
    world.airflow.wait_for_dag(FLOWS)
    world.sql("CREATE NAMESPACE IF NOT EXISTS dag_us.layers")
    staged = "TBLPROPERTIES ('write.wap.enabled'='true')"
    for table, columns, more in (
        ("ods", "id BIGINT, day DATE, user STRING", ""),
        ("dwd", "id BIGINT, day DATE, user STRING", staged),
        ("dws", "day DATE, pv BIGINT, uv BIGINT", f"PARTITIONED BY (day) {staged}"),
    ):
        world.sql(f"CREATE TABLE dag_us.layers.{table} ({columns}) USING iceberg {more}")
    world.airflow.patch(f"/dags/{FLOWS}", {"is_paused": False})
    try:
        world.sql("INSERT INTO dag_us.layers.ods VALUES (1, DATE'2026-01-01', 'A'), (2, DATE'2026-01-01', 'a')")
        task = world.wait_until("a task with a Spark", lambda: followers(world))[0]
        task.kill()
        world.wait_until("the third layer", lambda: third(world) == again(world))
        world.sql("INSERT INTO dag_us.layers.ods VALUES (3, DATE'2026-01-02', 'b'), (4, DATE'2026-01-01', 'C')")  # late
        world.wait_until("the third layer", lambda: third(world) == again(world))
        assert [row[1:] for row in third(world)] == [(3, 2), (1, 1)]
        assert world.sql("SELECT count(*), count(DISTINCT id) FROM dag_us.layers.dwd") == [(4, 4)]
    finally:
        world.airflow.patch(f"/dags/{FLOWS}", {"is_paused": True})
        for run in world.runs(FLOWS):
            if run["state"] == "running":  # it lingers
                world.airflow.patch(f"/dags/{FLOWS}/dagRuns/{run['dag_run_id']}", {"state": "failed"})
        for table in ("ods", "dwd", "dws"):
            world.sql(f"DROP TABLE dag_us.layers.{table}")
        world.sql("DROP NAMESPACE dag_us.layers")


def followers(world: World) -> list[psutil.Process]:
    """The tasks that have started a Spark for flows."""
    parents = []
    for process in psutil.Process(world.airflow.processes[1].pid).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended, or who started it
            if any("sterna-flow" in word for word in process.cmdline()) and (parent := process.parent()) is not None:
                parents.append(parent)
    return parents


def third(world: World) -> list[tuple[Any, ...]]:
    return sorted(world.sql("SELECT * FROM dag_us.layers.dws"))


def again(world: World) -> list[tuple[Any, ...]]:
    """What the third layer has to be: the same from the first one."""
    return sorted(world.sql(AGAIN))
