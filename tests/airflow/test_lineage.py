"""Lineage in a real Airflow: what its OpenLineage provider writes of runs, by the transport to a file."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import DAG, World

AIRFLOW = Path(sysconfig.get_path("scripts")) / "airflow"


@pytest.fixture
def paused(world: World) -> Iterator[None]:
    """The scheduler leaves the DAG to this test."""
    world.airflow.wait_for_dag(DAG)
    with world.paused():
        yield


def _ended(world: World, folder: Path, dag: str) -> dict[str, dict[str, Any]]:
    """Run a DAG in a process of its own; return the events with which its tasks ended, by job."""
    file = folder / f"{dag}.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    more = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "AIRFLOW__STERNA__TRANSFORMS_FOLLOW_FOR": ""}
    ran = subprocess.run(
        [AIRFLOW, "dags", "test", dag],
        env={**os.environ, **world.airflow.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}


def _location(world: World, table: str) -> str:
    """A table's location, as Iceberg's Spark has it."""
    rows = world.sql(f"DESCRIBE TABLE EXTENDED {table}")
    return next(str(row[1]) for row in rows if row[0] == "Location")


def _tables(datasets: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Of each dataset its URI, and its catalog and name there."""
    tables = []
    for dataset in datasets:
        (link,) = dataset["facets"]["symlinks"]["identifiers"]
        tables.append((f"{dataset['namespace']}/{dataset['name']}", link["namespace"], link["name"]))
    return tables


def test_a_run_of_the_sync_names_the_tables_that_it_put(world: World, paused: None, tmp_path: Path) -> None:
    world.sql("INSERT INTO dag_us.shop.orders VALUES (3000, 'named')")
    ended = _ended(world, tmp_path, DAG)
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 3000") == [("named",)]
    published, catalog = ended.pop(f"{DAG}.publish"), world.stage.nessie.uri
    on_main, replica = _location(world, "dag_us.shop.orders"), _location(world, "dag_replica.shop.orders")
    assert _tables(published["inputs"]) == [(on_main, catalog, "shop.orders")]
    assert _tables(published["outputs"]) == [(replica, catalog, "shop.`orders@main_replica_eu`")]
    (snapshot,) = world.sql("SELECT snapshot_id FROM dag_us.shop.orders.snapshots ORDER BY committed_at DESC LIMIT 1")
    for dataset in (*published["inputs"], *published["outputs"]):
        assert dataset["facets"]["version"]["datasetVersion"] == str(snapshot[0])
    assert ended and not any(event["inputs"] or event["outputs"] for event in ended.values())


@pytest.mark.rare
def test_a_transform_names_its_source_in_the_replica_and_its_target(world: World, paused: None, tmp_path: Path) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS dag_us.layers")
    staged = "TBLPROPERTIES ('write.wap.enabled'='true')"
    world.sql("CREATE TABLE dag_us.layers.ods (id BIGINT, day DATE, user STRING) USING iceberg")
    world.sql(f"CREATE TABLE dag_us.layers.dwd (id BIGINT, day DATE, user STRING) USING iceberg {staged}")
    world.sql(
        f"CREATE TABLE dag_us.layers.dws (day DATE, pv BIGINT, uv BIGINT) USING iceberg PARTITIONED BY (day) {staged}"
    )
    world.sql("INSERT INTO dag_us.layers.ods VALUES (1, DATE'2026-01-01', 'A')")
    try:
        _ended(world, tmp_path, DAG)
        followed = _ended(world, tmp_path, "sterna_flows")["sterna_flows.follow"]
        source, target = _location(world, "dag_replica.layers.ods"), _location(world, "dag_us.layers.dwd")
        catalog = world.stage.nessie.uri
        assert _tables(followed["inputs"]) == [(source, catalog, "layers.`ods@main_replica_eu`")]
        assert _tables(followed["outputs"]) == [(target, catalog, "layers.dwd")]
    finally:
        for table in ("ods", "dwd", "dws"):
            world.sql(f"DROP TABLE dag_us.layers.{table}")
        world.sql("DROP NAMESPACE dag_us.layers")
