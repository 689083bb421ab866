"""Table and partition statistics: copied, and used by the engine that reads the replica."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.iceberg_java import items, load_table
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("statistics") as name:
        yield name


def insert(world: World, table: str, rows: range) -> None:
    world.sql(
        f"INSERT INTO main_us.{table} SELECT id, concat('n', id % 7), id % 3 FROM range({rows.start}, {rows.stop})"
    )


def compute(world: World, table: str) -> None:
    for kind in ("table", "partition"):
        world.sql(f"CALL main_us.system.compute_{kind}_stats(table => '{table}')")


def test_statistics_are_copied_and_used(world: World, ns: str):
    table = "statistics.used"
    world.sql(
        f"CREATE TABLE main_us.{table} (id BIGINT, name STRING, part BIGINT) USING iceberg PARTITIONED BY (part) "
        f"{MERGE_ON_READ}"
    )
    insert(world, table, range(50))
    compute(world, table)
    world.sync_and_compare(table)
    same_statistics(world, table, 1)
    insert(world, table, range(50, 60))
    compute(world, table)
    world.sync_and_compare(table)
    same_statistics(world, table, 2)
    # A partition's statistics are computed on from those of the last snapshot; expiry takes the older ones away.
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (3, 52)")
    compute(world, table)
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('gc.enabled'='true')")
    world.sql(f"CALL main_us.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)")
    world.sync_and_compare(table)
    same_statistics(world, table, 1)


def same_statistics(world: World, table: str, snapshots: int) -> None:
    """With us dark, the replica's files of statistics say what main's say, and Spark's planner takes their numbers."""
    with planning_by_cost(world):
        files, partitions = statistics(world, f"main_us.{table}")
        distinct = distinct_values(world, f"main_us.{table}")
        assert len(files) == 2 * snapshots
        assert distinct["name"] == 7
        with world.dark("us"), world.context() as context:
            copies, answered = statistics(world, f"replica_eu.{table}")
            assert [(context.mapping.content_uri(path), *rest) for path, *rest in files] == copies
            assert [context.objects.size(path) for path, _, size in copies] == [size for _, _, size in copies]
            assert answered == partitions
            assert distinct_values(world, f"replica_eu.{table}") == distinct


def statistics(world: World, table: str) -> tuple[list[tuple[str, int, int]], list[list[str]]]:
    """Return path, snapshot and size of each file of statistics, and what the partitions' newest ones say."""
    loaded = load_table(world.spark, table)
    files = [*loaded.statisticsFiles(), *loaded.partitionStatisticsFiles()]
    jvm: Any = world.spark._jvm
    value = jvm.java.lang.Class.forName("java.lang.Object")
    rows = items(loaded.newPartitionStatisticsScan().scan())
    partitions = [[str(row.get(field, value)) for field in range(row.size())] for row in rows]
    return [(file.path(), file.snapshotId(), file.fileSizeInBytes()) for file in files], sorted(partitions)


def distinct_values(world: World, table: str) -> dict[str, int]:
    """Return how many distinct values of each column Spark's planner assumes.

    It reads them from the statistics' Puffin file.
    """
    frame: Any = world.spark.table(table)
    columns = frame._jdf.queryExecution().optimizedPlan().stats().attributeStats().toString()
    return {name: int(number) for name, number in re.findall(r"(\w+)#\d+L? -> ColumnStat\(Some\((\d+)\)", columns)}


@contextmanager
def planning_by_cost(world: World) -> Iterator[None]:
    world.spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        yield
    finally:
        world.spark.conf.unset("spark.sql.cbo.enabled")
