"""Localizing a whole table: the stage of a sync, against Iceberg's `rewrite_table_path`.

Both run on one Spark application with the same cores, read every metadata file from an S3 endpoint and write it to one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.common import Result, alternate, peak_memory, report
from bench.regions import MAIN, Regions, regions, report_progress
from bench.tables import BigTable, build_table
from sterna.catalog.model import key_name
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages

GOAL = 10.0
_STAGING = "s3://us-lake/rival-staging"


def bench(entries: list[int], rounds: int, cores: int, per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many entries."""
    with regions(work, cores=cores) as world:
        for count in entries:
            started = time.monotonic()
            table = build_table(world, count, per_manifest=per_manifest)
            report_progress(f"a table of {count} entries, built in {time.monotonic() - started:.1f} s")
            measure(world, table, rounds)


def measure(world: Regions, table: BigTable, rounds: int) -> None:
    """Measure one table and report it."""
    with world.context() as context, spark_engine(context, report_progress) as engine, peak_memory() as peaks:
        sides = {
            "sterna localize": lambda: localize(world, context, table, engine),
            "rewrite_table_path": rival(world, table),
        }
        timings = alternate(sides, rounds, report_progress)
    per_second = {name: round(table.entries / sorted(seconds)[len(seconds) // 2]) for name, seconds in timings.items()}
    details = {
        "entries per second": per_second,
        "manifests": len(table.manifests()),
        "columns with statistics": 20,
        "peak MiB": {kind: round(peak) for kind, peak in peaks.items()},
    }
    report(Result("localize", f"{table.entries} entries", GOAL, "at least", "times", timings, details=details))


def localize(world: Regions, context: RegionContext, table: BigTable, engine: Engine) -> float:
    """Run sterna's stage once, over a plan of a whole table; return its seconds."""
    options = SyncOptions(tables=(key_name(table.key),))
    planned = stages.plan(context, options, lambda line: None)
    world.remove(f"{context.region.replica_root}/_localized")  # which the plan wrote
    started = time.monotonic()
    done = stages.localize(context, planned.run, StageReport(), lambda line: None, engine)
    seconds = time.monotonic() - started
    assert not done.failed, done.failed
    # All of it was written just now: nothing was left from the round before.
    assert done.files == len(table.manifests()) + 2 and done.sent == done.bytes, done
    world.remove(context.region.replica_root)
    return seconds


def rival(world: Regions, table: BigTable) -> Callable[[], float]:
    """Return a run of `rewrite_table_path` over the same table."""
    call = (
        f"CALL {MAIN}.system.rewrite_table_path(table => '{key_name(table.key)}', source_prefix => 's3://us-lake/', "
        f"target_prefix => 's3://eu-lake/replica/us-lake/', staging_location => '{_STAGING}/')"
    )

    def run() -> float:
        started = time.monotonic()
        rows = world.spark.sql(call).collect()
        seconds = time.monotonic() - started
        written = sum(1 for path in world.path(_STAGING).rglob("*.avro") if path.is_file())
        assert rows and written == len(table.manifests()) + 1, (rows, written)
        world.remove(_STAGING)
        return seconds

    return run
