"""Localizing a few manifests here, against a warm Spark and one that has to be started: where `localize: auto` changes
over.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.common import Result, alternate, report
from bench.regions import Regions, regions, report_progress
from bench.tables import BigTable, build_table
from sterna.catalog.model import key_name
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages

_START = "from sterna.spark.session import close_session, open_session; close_session(open_session('local[2]'))"


def bench(manifests: list[int], rounds: int, per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many manifests."""
    with regions(work) as world:
        cold = median(_start() for _ in range(rounds))
        report_progress(f"a Spark that is started for it: {cold:.1f} s more")
        for count in manifests:
            measure(world, count, rounds, per_manifest, cold)


def measure(world: Regions, manifests: int, rounds: int, per_manifest: int, cold: float) -> None:
    """Measure one table and report it."""
    table = build_table(world, manifests * per_manifest, per_manifest=per_manifest)
    with world.context("here") as here, world.context("spark") as spark, spark_engine(spark, report_progress) as engine:
        sides = {
            "here": lambda: _localize(world, here, table, engine),
            "a warm Spark": lambda: _localize(world, spark, table, engine),
        }
        timings = alternate(sides, rounds, report_progress)
    timings["a Spark that is started"] = tuple(seconds + cold for seconds in timings["a warm Spark"])
    case = f"{manifests} manifests of {per_manifest} entries"
    report(Result("place", case, 1.0, "at least", "times", timings, details={"start of Spark": round(cold, 2)}))


def _localize(world: Regions, context: RegionContext, table: BigTable, engine: Engine) -> float:
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


def _start() -> float:
    """Return the seconds that a process needs to start a local Spark, see that its workers are fit, and end it."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", _START], check=True, capture_output=True)
    return time.monotonic() - started
