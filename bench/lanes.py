"""Small commits while a large table is being copied, against the same commits alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import psutil
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
_SHOWN_COMMITS = 4
_STORE_NICENESS = 10
_MAX_WAIT_SECONDS = 120.0
_SMALL = SyncOptions(lane="small")


def bench(commits: int, gigabytes: float, megabytes_per_second: float, work: Path | None) -> None:
    """Measure so many small commits alone, and beside a copy of so much over a link of that speed."""
    with pair(work) as world:
        _restart_stores(world)
        writer = open_writer(world)
        small = SmallTable(world, writer, "small").create()
        registry = _registry(world, megabytes_per_second)
        with world.context() as context:
            sync(context, SyncOptions(), report_progress)
            alone = _measure_commits(context, small, commits)
            size = _large(world, SmallTable(world, writer, "large").create(), gigabytes)
            sync(context, _SMALL, report_progress)
            with _large_lane(context, registry) as running:
                beside = _measure_commits(context, small, commits, running)
            done = sync(context, SyncOptions(), report_progress)
        assert f"{NAMESPACE}.large" in done.published, done
    runs = {"beside a large copy": beside, "alone": alone}
    sides = {name: tuple(commit.seconds for commit in published) for name, published in runs.items()}
    details: dict[str, Any] = {f"p99 {name}": rounded(percentile(lags, 0.99)) for name, lags in sides.items()}
    times = details["p99 beside a large copy"] / details["p99 alone"]
    details |= {f"slowest {name}": _describe_slowest(published) for name, published in runs.items()}
    details["bytes copied"] = size
    case = f"{commits} commits, {gigabytes:g} GB at {megabytes_per_second:g} MB/s"
    report(Result("lanes", case, GOAL_TIMES, "at most", "times", sides, times, details))


def _restart_stores(world: Pair) -> None:
    """Let the stores do for a large copy what stores elsewhere do, and leave the processors to what is measured.

    They answer HEAD and listings without reading each file for its MD5. Their processes have the large lane's
    priority: they take four times the processor time of the copy itself, which in a region is not on these cores.
    """
    for endpoint in world.stage.endpoints.values():
        endpoint.start("--etag-hash", "")
        assert endpoint.process is not None
        server = psutil.Process(endpoint.process.pid)
        for process in (server, *server.children(recursive=True)):
            process.nice(_STORE_NICENESS)


@dataclass(frozen=True)
class _Commit:
    """A small commit until it was published.

    Args:
        lines: the sync's own lines, each with the seconds from the commit until then.
    """

    seconds: float
    lines: tuple[tuple[float, str], ...]


def _measure_commits(
    context: RegionContext, table: SmallTable, commits: int, going_on: Callable[[], bool] = lambda: True
) -> list[_Commit]:
    """Commit a row so many times, each published before the next one."""
    published = []
    for _ in range(commits):
        table.append()
        lines: list[tuple[float, str]] = []
        started = time.monotonic()

        def record(line: str, lines: list[tuple[float, str]] = lines, started: float = started) -> None:
            lines.append((time.monotonic() - started, line))

        done = sync(context, _SMALL, record)
        published.append(_Commit(time.monotonic() - started, tuple(lines)))
        assert going_on(), "the large copy ended first: give it more gigabytes"
        assert done.published == (f"{NAMESPACE}.small",), done
        time.sleep(_PAUSE)
    return published


def _describe_slowest(published: list[_Commit]) -> list[str]:
    """Describe what the slowest commits waited for: the longest stretch without a line, and the lines around it."""
    slowest = sorted(published, key=lambda commit: -commit.seconds)[:_SHOWN_COMMITS]
    return [_describe_longest_step(commit) for commit in slowest]


def _describe_longest_step(commit: _Commit) -> str:
    steps = [(0.0, "commit"), *commit.lines, (commit.seconds, "published")]
    (start, before), (end, after) = max(pairwise(steps), key=lambda step: step[1][0] - step[0][0])
    return f"{commit.seconds:.3f} s, of it {end - start:.3f} s from {before!r} to {after!r}"


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
