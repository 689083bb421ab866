"""A small table's first seed while the metadata of a very large one is seeded, against the same seed alone.

The large lane is a process of its own, as in Airflow, with its own Spark on the same cores. No data file of the large
table exists: the bulk run's end gets a report that all were copied.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import yaml

from bench.common import Result, report, rounded
from bench.regions import Regions, regions, report_progress
from bench.scale import plan_of
from bench.tables import BigTable, build_table
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.catalog.model import key_name
from sterna.config.secrets import environment_secrets
from sterna.replication.execution.spark_executor import spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync

GOAL = 2.0
_FILES = 10
_LARGE = 64 << 20  # bytes: a table with more to copy is the large lane's
_SMALL = SyncOptions(lane="small")


def bench(entries: int, rounds: int, work: Path | None) -> None:
    """Seed so many small tables alone, and then others while one of so many files is seeded."""
    with regions(work) as world:
        _split_lanes(world)
        with world.context() as context:
            numbers = count()
            _seed_small(world, context, next(numbers))  # a warm-up
            alone = [_seed_small(world, context, next(numbers))[0] for _ in range(rounds)]
            beside = _beside(world, context, build_table(world, entries), numbers)
    sides = {"beside a large seed": tuple(beside), "alone": tuple(alone)}
    middle = {name: sorted(seconds)[len(seconds) // 2] for name, seconds in sides.items()}
    details = {
        "slowest beside": rounded(max(beside)),
        "slowest alone": rounded(max(alone)),
        "which finds it": rounded(beside[0]),
        "which publishes it": rounded(beside[-1]),
        "tables beside": len(beside),
        "files each": _FILES,
    }
    times = middle["beside a large seed"] / middle["alone"]
    report(Result("beside", f"{entries} entries", GOAL, "at most", "times", sides, times, details))


def _split_lanes(world: Regions) -> None:
    document = yaml.safe_load(world.stage.registry.read_text())
    for region in document["regions"]:
        region["bulk_copy_threshold"] = _LARGE
    world.stage.registry.write_text(yaml.safe_dump(document))


def _beside(world: Regions, context: RegionContext, large: BigTable, numbers: Iterator[int]) -> list[float]:
    """Seed small tables from the sync that finds a large one to the sync that publishes that."""
    name = key_name(large.key)
    with _large_lane(world, large) as process:
        assert process.stdin
        seconds, sync_report = _seed_small(world, context, next(numbers))
        assert [item.key for item in sync_report.transit] == [name], sync_report
        beside = [seconds]
        process.stdin.write("begin\n")
        process.stdin.flush()
        while name not in sync_report.published:
            assert not process.poll(), "the large lane failed"
            seconds, sync_report = _seed_small(world, context, next(numbers))
            beside.append(seconds)
        return beside


def _seed_small(world: Regions, context: RegionContext, number: int) -> tuple[float, Report]:
    """Make a table, and return the seconds until it is readable in eu, and the report of the sync."""
    table = SmallTable(world, open_writer(world), f"small{number}").create()
    for _ in range(_FILES - 1):
        table.append()
    started = time.monotonic()
    done = sync(context, _SMALL, lambda line: None)
    seconds = time.monotonic() - started
    assert f"{NAMESPACE}.{table.name}" in done.published, done
    report_progress(f"a table of {_FILES} files: {seconds:.2f} s")
    return seconds, done


@contextmanager
def _large_lane(world: Regions, table: BigTable) -> Iterator[subprocess.Popen[str]]:
    """Be at a large table in a process of its own, which waits for a line once its Spark is there."""
    command = [sys.executable, "-m", "bench.beside", str(world.stage.registry), str(table.entries)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline(), "the large lane did not begin"
            yield process
        finally:
            process.terminate()


def _large_round(registry: str, entries: str) -> None:
    """Run the large lane: print a line once Spark is ready, and sync what is in transit on the next line of input."""
    with (
        open_region(registry, "eu", environment_secrets()) as context,
        spark_engine(context, report_progress) as engine,
    ):
        list(engine(str.upper, ["a"], "warm-up"))
        print("Spark is there", flush=True)
        sys.stdin.readline()
        planned, copied = plan_of(context, SyncOptions(lane="large"), int(entries), engine)
        localized = stages.localize(context, planned.run, copied, report_progress, engine)
        stages.finish_bulk(context, planned.run, copied, localized, report_progress)


if __name__ == "__main__":
    _large_round(*sys.argv[1:3])
