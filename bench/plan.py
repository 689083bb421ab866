"""Listing what to copy: the plan stage of a sync, against Spark's reading of the table's file paths.

The stage reads the same manifests as Spark does, and beyond that checks in the region's own store which of the files
are there already, cuts the rest into batches and writes the list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.common import Result, alternate, peak_memory, report, rounded
from bench.regions import Regions, regions, report_progress
from bench.tables import BigTable, build_table
from sterna.catalog.model import key_name
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages

GOAL = 5.0


def bench(entries: list[int], rounds: int, cores: int, per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many entries."""
    with regions(work, cores=cores) as world:
        for count in entries:
            measure(world, build_table(world, count, per_manifest=per_manifest), rounds)


def measure(world: Regions, table: BigTable, rounds: int) -> None:
    """Measure one table and report it.

    The rival is Spark's faster way: the paths are read and dropped in the JVM. Bringing them to Python is shown beside
    it.
    """
    with world.context() as context, peak_memory() as peaks:
        sides = {
            "sterna plan": lambda: plan(world, context, table),
            "select file_path (noop)": select(world, table, collect=False),
            "select file_path (to Arrow)": select(world, table, collect=True),
        }
        timings = alternate(sides, rounds, report_progress)
    ours, _, collected = timings.values()
    details = {
        "ratio to Arrow": rounded(median(theirs / mine for mine, theirs in zip(ours, collected, strict=True))),
        "manifests": len(table.manifests()),
        "peak MiB": {kind: round(peak) for kind, peak in peaks.items()},
    }
    report(Result("plan", f"{table.entries} entries", GOAL, "at least", "times", timings, details=details))


def plan(world: Regions, context: RegionContext, table: BigTable) -> float:
    """Run sterna's stage once; return its seconds."""
    started = time.monotonic()
    planned = stages.plan(context, SyncOptions(tables=(key_name(table.key),)), lambda line: None)
    seconds = time.monotonic() - started
    assert sum(batch.files for batch in planned.batches) == table.entries, planned
    world.remove(context.region.replica_root)
    return seconds


def select(world: Regions, table: BigTable, *, collect: bool) -> Callable[[], float]:
    """Return a run of the rival's query."""

    def run() -> float:
        started = time.monotonic()
        paths = world.spark.sql(f"SELECT file_path FROM {table.name}.files")
        if collect:
            assert paths.toArrow().num_rows == table.entries
        else:
            paths.write.format("noop").mode("overwrite").save()
        return time.monotonic() - started

    return run
