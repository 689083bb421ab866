"""The model of `sterna capacity` against what syncs take here: how a sync's time grows with the number of its
tables."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench.common import Result, report, rounded
from bench.regions import MAIN, Regions, regions, report_progress
from sterna.operations.capacity import Costs, Load, sync_seconds
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

GOAL = 1.5
"""How far the model may be off."""
_SNAPSHOTS = 3  # of a table here, in the mean


def bench(sizes: list[int], rounds: int, work: Path | None) -> None:
    """Measure syncs of so many changed tables each."""
    with regions(work, memory="1g", postgres=True, count_requests=True) as world:
        world.spark.sql(f"CREATE NAMESPACE {MAIN}.bench")
        for number in range(max(sizes)):
            world.spark.sql(f"CREATE TABLE {MAIN}.bench.t{number:04} USING iceberg AS SELECT 1L AS id")
        with world.context() as context, spark_engine(context, report_progress) as engine:
            assert not sync(context, SyncOptions(seed_group=1_000_000), report_progress, engine=engine).held
            for size in sizes:
                measure(world, context, engine, size, rounds)


def measure(world: Regions, context: RegionContext, engine: Engine, size: int, rounds: int) -> None:
    """Measure and report one size."""
    seconds: list[float] = []
    requests: list[int] = []
    for number in range(-1, rounds):
        for table in range(size):
            world.spark.sql(f"INSERT INTO {MAIN}.bench.t{table:04} VALUES ({number + 2}L)")
        mark = len(world.stage.endpoints["eu"].requests())
        started = time.monotonic()
        done = sync(context, SyncOptions(), lambda line: None, engine=engine)
        took = time.monotonic() - started
        assert done.outcome == "published" and done.copied.files == size, done
        report_progress(f"{'warm-up' if number < 0 else f'round {number + 1}'}: {size} tables: {took:.3f} s")
        if number >= 0:
            seconds.append(took)
            requests.append(len(world.stage.endpoints["eu"].requests()) - mark)
    load = Load(file_bytes=1024, snapshots=_SNAPSHOTS, regions=1e9)
    model = sync_seconds(size, size, load)
    off = max(model / median(seconds), median(seconds) / model)
    costs = Costs()
    details = {
        "requests to eu": median(requests),
        "the model's requests": costs.sync_requests + size * (costs.table_requests + costs.file_requests / 2),
        "the model is off by, times": rounded(off),
    }
    sides = {"measured": tuple(seconds), "the model of sterna capacity": (model,) * rounds}
    case = f"a sync of {size} changed tables"
    report(Result("capacity", case, GOAL, "at most", "times", sides, measured=off, details=details))
