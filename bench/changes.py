"""The rows of one commit, in small tables and in large ones, and against reading the table twice and subtracting."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.common import Result, alternate, report
from bench.regions import MAIN, Regions, regions, report_progress
from bench.tables import BigTable, build_table, insert_row
from sterna.pipelines.changes import between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROWTH = 1.3
"""Times what the same commit costs in the small table."""
SMALL = 1_000
TIMES_AS_FAST = 3.0
_FILES = 60
_ROWS = 20_000  # of each


def bench(files: list[int], rounds: int, work: Path | None) -> None:
    """Measure one commit in a table of 1,000 files and in those of so many, then against the rival."""
    with regions(work, memory="4g") as world:
        for count in files:
            _grown(world, count, rounds)
        _against_twice(world, rounds)


def _grown(world: Regions, count: int, rounds: int) -> None:
    sides = {f"in {size} files": _committed(world, size, f"c{count}_{size}") for size in (count, SMALL)}
    runs = {name: partial(_changes, world.spark, *commit) for name, commit in sides.items()}
    timings = alternate(runs, rounds, report_progress, warm_up=3)
    times = median(large / small for large, small in zip(*timings.values(), strict=True))
    report(Result("changes", f"one commit in {count} files", GROWTH, "at most", "times", timings, times))


def _committed(world: Regions, size: int, name: str) -> tuple[str, int, int]:
    """Make a table and commit one row to it; return its name and the two snapshots."""
    table: BigTable = build_table(world, size, name=name)
    for _ in range(2):  # the first one also merges the manifests that were made
        insert_row(world, table.name)
    start, end = _snapshots(world.spark, table.name)[-2:]
    return table.name, start, end


def _changes(spark: SparkSession, table: str, start: int, end: int) -> float:
    started = time.monotonic()
    rows = between(spark, table, start, end).collect()
    seconds = time.monotonic() - started
    assert len(rows) == 1, len(rows)
    return seconds


def _against_twice(world: Regions, rounds: int) -> None:
    """One deleted row in a table that has its data: ours, and both versions read and subtracted."""
    spark, table = world.spark, f"{MAIN}.bench.twice"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    rows = spark.range(0, _FILES * _ROWS, 1, _FILES).selectExpr("id", "concat('v', id) AS v")
    rows.writeTo(table).append()
    spark.sql(f"DELETE FROM {table} WHERE id = 77777")
    start, end = _snapshots(spark, table)

    def twice() -> float:
        started = time.monotonic()
        old, new = (spark.sql(f"SELECT * FROM {table} VERSION AS OF {one}") for one in (start, end))
        deleted, added = old.exceptAll(new).collect(), new.exceptAll(old).collect()
        seconds = time.monotonic() - started
        assert (len(deleted), len(added)) == (1, 0)
        return seconds

    timings = alternate(
        {"sterna": lambda: _changes(spark, table, start, end), "both versions": twice}, rounds, report_progress
    )
    report(Result("changes", f"one deleted row, {_FILES} files", TIMES_AS_FAST, "at least", "times", timings))


def _snapshots(spark: SparkSession, table: str) -> list[int]:
    query = f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at"
    return [row[0] for row in spark.sql(query).collect()]
