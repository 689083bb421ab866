"""Small commits while a large table is being copied, against the same commits alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import yaml

from bench.common import Result, percentile, report, rounded
from bench.regions import Pair, pair, report_progress, settle
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.operations.status.read import read_alarm_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

GOAL_TIMES = 2.0
_FILE = 32 << 20
_PAUSE = 0.5
_MAX_WAIT_SECONDS = 120.0
_SMALL = SyncOptions(lane="small")


def bench(commits: int, gigabytes: float, megabytes_per_second: float, work: Path | None) -> None:
    """Measure so many small commits alone, and beside a copy of so much over a link of that speed."""
    with pair(work) as world:
        _cheap_etags(world)
        writer = open_writer(world)
        small = SmallTable(world, writer, "small").create()
        registry = _registry(world, megabytes_per_second)
        with world.context() as context:
            sync(context, SyncOptions(), report_progress)
            alone = _lags(context, small, commits)
            size = _large(world, SmallTable(world, writer, "large").create(), gigabytes)
            sync(context, _SMALL, report_progress)
            with _large_lane(context, registry) as running:
                beside = _lags(context, small, commits, running)
            done = sync(context, SyncOptions(), report_progress)
        assert f"{NAMESPACE}.large" in done.published, done
    sides = {"beside a large copy": tuple(beside), "alone": tuple(alone)}
    times = percentile(beside, 0.99) / percentile(alone, 0.99)
    details = {f"p99 {name}": rounded(percentile(seconds, 0.99)) for name, seconds in sides.items()}
    details["bytes copied"] = size
    case = f"{commits} commits, {gigabytes:g} GB at {megabytes_per_second:g} MB/s"
    report(Result("lanes", case, GOAL_TIMES, "at most", "times", sides, times, details))


def _cheap_etags(world: Pair) -> None:
    """Let endpoints answer HEAD and listings as stores do.

    By default these read each file for its MD5 on every such request: of a large copy that is gigabytes at once, on the
    cores that are measured.
    """
    for endpoint in world.stage.endpoints.values():
        endpoint.start("--etag-hash", "")


def _lags(
    context: RegionContext, table: SmallTable, commits: int, going_on: Callable[[], bool] = lambda: True
) -> list[float]:
    """Return the seconds from each commit until it is published."""
    lags = []
    for _ in range(commits):
        table.append()
        started = time.monotonic()
        done = sync(context, _SMALL, lambda line: None)
        lags.append(time.monotonic() - started)
        assert done.published == (f"{NAMESPACE}.small",), done
        assert going_on(), "the large copy ended first: give it more gigabytes"
        time.sleep(_PAUSE)
    return lags


def _large(world: Pair, table: SmallTable, gigabytes: float) -> int:
    """Commit files of random numbers; return their bytes."""
    numbers, key = Random(1), f"{NAMESPACE}.large"
    for _ in range(max(2, round(gigabytes * 1e9 / _FILE))):
        ids = pa.Array.from_buffers(pa.int64(), _FILE // 8, [None, pa.py_buffer(numbers.randbytes(_FILE))])
        rows = pa.table({"id": ids, "name": pa.nulls(len(ids), pa.string())})
        table.writer.load_table(key).append(rows)
    settle()
    return sum(path.stat().st_size for path in table.files().values() if path.suffix == ".parquet")


def _registry(world: Pair, megabytes_per_second: float) -> Path:
    """Write a registry whose copies go over the link; return its path."""
    document = yaml.safe_load(world.stage.registry.read_text())
    for region in document["regions"]:
        region["bulk_copy_threshold"] = 2 * _FILE - 1
    world.stage.registry.write_text(yaml.safe_dump(document))
    for location in document["locations"]:
        location["bandwidth"] = f"{megabytes_per_second * 1e6 / 2**20:.3f}M"
    path = world.stage.work / "over-the-link.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def _large_lane(context: RegionContext, registry: Path) -> Iterator[Callable[[], bool]]:
    """Run the large lane as a process of its own; yield a function that returns whether it is still copying."""
    command = [sys.executable, "-m", "sterna.cli.main", "sync", "--region", "eu", "--lane", "large"]
    with subprocess.Popen([*command, "--registry", str(registry)], stdout=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + _MAX_WAIT_SECONDS
            while not any(item.under_way for item in read_alarm_status(context).transit):
                assert time.monotonic() < end and process.poll() is None, "the large lane did not begin"
                time.sleep(_PAUSE)
            yield lambda: process.poll() is None
            report_progress("waiting for the large copy")
            assert process.wait() == 0
        finally:
            process.terminate()
