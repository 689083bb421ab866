"""Localizing a few manifests here, against Spark that is warm and Spark that has to be started: where `localize.

Auto` changes over.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.common import Result, alternate, report
from bench.localize import localize
from bench.regions import Regions, regions, report_progress
from bench.tables import build_table
from sterna.replication.execution.spark_executor import spark_engine

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
            "here": lambda: localize(world, here, table, engine),
            "a warm Spark": lambda: localize(world, spark, table, engine),
        }
        timings = alternate(sides, rounds, report_progress)
    timings["a Spark that is started"] = tuple(seconds + cold for seconds in timings["a warm Spark"])
    case = f"{manifests} manifests of {per_manifest} entries"
    report(Result("place", case, 1.0, "at least", "times", timings, details={"start of Spark": round(cold, 2)}))


def _start() -> float:
    """Return the seconds that a process needs to start a local Spark, see that its workers are fit, and end it."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", _START], check=True, capture_output=True)
    return time.monotonic() - started
