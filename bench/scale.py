"""All metadata of a table's first seed, plan to publication, against Iceberg's `rewrite_table_path`.

Both run on one Spark application with the same cores, read every manifest from an S3 endpoint and write it to one, and
list what is to be copied. No data file exists: publish gets a report that all were copied.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count, pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from bench.common import Result, alternate, peak_memory, report, rounded
from bench.regions import MAIN, Regions, regions, report_progress
from bench.tables import BigTable, build_table
from sterna.catalog.model import Key, Put, key_name
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages

GOAL = 5.0
_CORES_GOAL = 1.7
_CORES = (1, 2)
_STAGING = "s3://us-lake/rival-staging"
_MOST = 1024.0  # MiB of each process of sterna's
_OURS = ("driver", "worker")
_STAGES = ("plan", "localize", "publish")


def bench(entries: list[int], rounds: int, cores: int, per_manifest: int, work: Path | None, *, alone: bool) -> None:
    """Measure tables of these many entries.

    Args:
        entries: how many, a table each.
        rounds: how often.
        cores: of Spark.
        per_manifest: entries of a manifest.
        work: a folder for everything; None: a temporary one.
        alone: without the rival and without a warm-up, for what would take hours; the goal is memory then.
    """
    with regions(work, cores=cores) as world:
        world.start_stores()
        for number in entries:
            started = time.monotonic()
            table = build_table(world, number, per_manifest=per_manifest)
            report_progress(f"a table of {number} entries, built in {time.monotonic() - started:.1f} s")
            measure(world, table, rounds, alone=alone)


def measure(world: Regions, table: BigTable, rounds: int, *, alone: bool) -> None:
    """Measure one table and report it."""
    numbers = count()
    taken: dict[str, list[float]] = {name: [] for name in _STAGES}
    peaks: dict[str, float] = {}
    with world.context() as context, spark_engine(context, report_progress) as engine:

        def ours() -> float:
            key = _commit_again(world, table, next(numbers))
            with peak_memory(every=0.2) as sampled_peaks:
                seconds = _seed(context, key, table.entries, engine)
            peaks.update({kind: max(peak, peaks.get(kind, 0.0)) for kind, peak in sampled_peaks.items()})
            for name, duration in zip(_STAGES, seconds, strict=True):
                taken[name].append(duration)
            world.remove(context.region.replica_root)
            world.start_stores()
            return sum(seconds)

        sides = {"sterna": ours} if alone else {"sterna": ours, "rewrite_table_path": rival(world, table)}
        timings = alternate(sides, rounds, report_progress, warm_up=0 if alone else 1)
    details = {
        "microseconds an entry": {side: round(median(all_) / table.entries * 1e6, 1) for side, all_ in timings.items()},
        "manifests": len(table.manifests()),
        "stages, seconds": {name: rounded(median(durations[-rounds:])) for name, durations in taken.items()},
        "peak MiB": {kind: round(peak) for kind, peak in sorted(peaks.items())},
    }
    if alone:
        memory = {kind: (peaks[kind],) for kind in _OURS}
        most, case = max(peaks[kind] for kind in _OURS), f"{table.entries} entries, alone"
        report(Result("scale", case, _MOST, "at most", "MiB", memory, measured=most, details=details))
        return
    report(Result("scale", f"{table.entries} entries", GOAL, "at least", "times", timings, details=details))


def bench_cores(entries: int, rounds: int, work: Path | None) -> None:
    """Measure a table with one core and with two, where stores take no processor time: they are folders.

    Args:
        entries: of the table.
        rounds: how often with each.
        work: as in `bench`.
    """
    timings = {cores: _seed_with_processors(entries, rounds, cores, work and work / str(cores)) for cores in _CORES}
    sides = {f"{cores} cores": seconds for cores, seconds in timings.items()}
    gain = median(timings[1]) / median(timings[2])
    report(Result("scale", f"{entries} entries, 1 and 2 cores", _CORES_GOAL, "at least", "times", sides, gain))


def _seed_with_processors(entries: int, rounds: int, cores: int, work: Path | None) -> tuple[float, ...]:
    """Measure in a process of its own that has so many processors.

    With one task at a time a worker's threads would use the others, too.
    """
    processors = sorted(os.sched_getaffinity(0))[:cores]
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=os.sched_setaffinity, initargs=(0, processors)
    ) as pool:
        return pool.submit(_seed_on_disk, entries, rounds, cores, work).result()


def _seed_on_disk(entries: int, rounds: int, cores: int, work: Path | None) -> tuple[float, ...]:
    numbers = count()
    with regions(work, cores=cores) as world:
        world.keep_on_disk("eu")
        for name, value in (
            ("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"),
            ("warehouse", world.keep_on_disk("us")),
        ):
            world.spark.conf.set(f"spark.sql.catalog.{MAIN}.{name}", value)
        table = build_table(world, entries)
        with world.context() as context, spark_engine(context, report_progress) as engine:

            def seed() -> float:
                key = _commit_again(world, table, next(numbers))
                seconds = sum(_seed(context, key, entries, engine))
                world.remove(context.region.replica_root)
                return seconds

            return alternate({f"{cores} cores": seed}, rounds, report_progress)[f"{cores} cores"]


def plan_of(
    context: RegionContext, options: SyncOptions, entries: int, engine: Engine
) -> tuple[stages.PlannedRun, StageReport]:
    """Plan a sync of a table of so many files, none of which exists; return the plan, and the word that all came."""
    planned = stages.plan(context, options, report_progress, engine=engine)
    files = sum(batch.files for batch in planned.batches)
    assert files == entries, files
    return planned, StageReport(files=files, bytes=sum(batch.bytes for batch in planned.batches))


def _seed(context: RegionContext, key: Key, entries: int, engine: Engine) -> list[float]:
    """Sync a table's metadata, and return the seconds of each stage."""
    times = [time.monotonic()]
    planned, copied = plan_of(context, SyncOptions(tables=(key_name(key),)), entries, engine)
    times.append(time.monotonic())
    localized = stages.localize(context, planned.run, copied, report_progress, engine)
    times.append(time.monotonic())
    done = stages.publish(context, planned.run, copied, localized, report_progress)
    times.append(time.monotonic())
    assert key_name(key) in done.published, done
    return [after - before for before, after in pairwise(times)]


def _commit_again(world: Regions, table: BigTable, number: int) -> Key:
    """Commit the table under another key: one that no replica has."""
    key = ("bench", f"seed{table.entries}x{number}")
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [table.key])[table.key]
    world.catalog.commit("main", head, [Put(key, content.with_id(None))], "bench: the same table again")
    return key


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
