"""A sync with nothing to do.

In a process that is warm already, as a command, and one round trip to the catalog beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.common import Result, alternate, report, rounded
from bench.regions import MAIN, Regions, regions, report_progress, run_sterna
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync

GOAL = 0.5


def bench(tables: int, rounds: int, work: Path | None) -> None:
    """Measure a catalog of a few tables, all of them replicated."""
    with regions(work, memory="1g", postgres=True) as world:
        world.spark.sql(f"CREATE NAMESPACE {MAIN}.bench")
        for number in range(tables):
            world.spark.sql(f"CREATE TABLE {MAIN}.bench.t{number} USING iceberg AS SELECT * FROM range(10)")
        with world.context() as context:
            sync(context, SyncOptions(), report_progress)
        measure(world, tables, rounds)


def measure(world: Regions, tables: int, rounds: int) -> None:
    """Measure and report."""
    with world.context() as context:
        sides = {
            "sync, warm": timed(lambda: _idle(sync(context, SyncOptions(), lambda line: None).outcome)),
            "Nessie round trip": timed(lambda: context.primary.reference(SOURCE_BRANCH)),
            "sterna sync, a process": timed(lambda: command(world)),
            "sterna --help, a process": timed(lambda: run_sterna("--help")),
        }
        timings = alternate(sides, rounds, report_progress)
    trips = [sync / trip for sync, trip in zip(timings["sync, warm"], timings["Nessie round trip"], strict=True)]
    details = {"tables": tables, "in Nessie round trips": rounded(median(trips))}
    report(Result("idle", f"{tables} tables", GOAL, "at most", "s", timings, details=details))


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Return a run of a call."""

    def run() -> float:
        started = time.monotonic()
        call()
        return time.monotonic() - started

    return run


def command(world: Regions) -> None:
    """Run `sterna sync` as a process of its own."""
    output = run_sterna("sync", "--registry", str(world.stage.registry), "--region", "eu", "--json")
    assert '"idle"' in output, output


def _idle(outcome: str) -> None:
    assert outcome == "idle", outcome
