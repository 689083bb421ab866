"""A first seed of a catalog of many tables: until the first can be read, and until all can."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import httpx

from bench.common import Result, report, rounded
from bench.copy import plain_copy
from bench.regions import MAIN, Regions, regions, report_progress
from sterna.replication.execution.spark_executor import spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync

_ROWS = 1000
_RIVAL_FLAGS = "--checksum --transfers 32 --checkers 64"


def bench(tables: int, rounds: int, group: int, work: Path | None) -> None:
    """Measure a catalog of so many small tables, seeded in groups."""
    with regions(work, memory="1g", postgres=True) as world:
        world.spark.sql(f"CREATE NAMESPACE {MAIN}.bench")
        for number in range(tables):
            world.spark.sql(
                f"CREATE TABLE {MAIN}.bench.t{number:04} USING iceberg AS SELECT id, concat('n', id) AS name FROM "
                f"range({_ROWS})"
            )
        measure(world, tables, rounds, group)


def measure(world: Regions, tables: int, rounds: int, group: int) -> None:
    """Measure and report."""
    first: list[float] = []
    whole: list[float] = []
    rival: list[float] = []
    with world.context() as context, spark_engine(context, report_progress) as engine:
        branch = context.region.replica_branch
        for number in range(-1, rounds):
            copied = plain_copy(context, world.stage.warehouse("us"), _RIVAL_FLAGS)
            world.remove(context.region.replica_root)
            started = time.monotonic()
            done = sync(context, SyncOptions(seed_group=group), lambda line: None, until_done=False, engine=engine)
            readable = time.monotonic() - started
            if done.more:
                done = sync(context, SyncOptions(seed_group=group), lambda line: None, engine=engine)
            seconds = time.monotonic() - started
            assert done.outcome == "published" and not done.held, done
            entries = [
                content for _, content in world.catalog.entries(branch, done.replica_hash) if content.metadata_location
            ]
            assert len(entries) == tables, len(entries)
            report_progress(
                f"round {number + 1}: first {readable:.2f} s, all {seconds:.2f} s, plain rclone {copied:.2f} s"
            )
            if number >= 0:
                first.append(readable)
                whole.append(seconds)
                rival.append(copied)
            # sterna itself has no way to delete a branch.
            httpx.delete(f"{world.stage.nessie.uri}/trees/{branch}@{done.replica_hash}").raise_for_status()
            world.remove(context.region.replica_root)
    sides = {
        "all readable": tuple(whole),
        "first group readable": tuple(first),
        "plain rclone copy of all files": tuple(rival),
    }
    details = {"tables a group": group, "tables a second": rounded(tables / median(whole))}
    report(Result("seed", f"{tables} tables", None, "at most", "s", sides, details=details))
