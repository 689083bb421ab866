"""A clean-up beside writers: commits all the time, one sync after the other, and garbage that has to go down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from bench.churn import Load, commit_on, sync_on
from bench.common import Result, report, rounded
from bench.regions import Pair, pair, report_progress
from bench.writer import SmallTable, open_writer
from sterna.maintenance.deletion.model import MIN_GRACE
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.run import run_gc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

AT_MOST = 5.0
"""The longest time of a clean-up beside writers and syncs, as a multiple of that of one alone."""
LOAD = Load(20, 60)
_LOOK_SECONDS = 1.0
_OPTIONS = GcOptions(keep=timedelta(0), grace=MIN_GRACE, delete=True)
_LONG_AGO = 30 * 86_400


def bench(files: int, work: Path | None) -> None:
    """Delete so much garbage alone, and as much beside writers and syncs."""
    with pair(work) as world, world.context() as context:
        tables = [SmallTable(world, open_writer(world), f"t{number}").create() for number in range(LOAD.tables)]
        sync(context, SyncOptions(), report_progress)
        _plant(world, context, files)
        alone, _ = _clean(context)
        folder = _plant(world, context, files)
        _beside(context, tables, folder, files, alone)


def _beside(context: RegionContext, tables: Sequence[SmallTable], folder: Path, files: int, alone: float) -> None:
    """Clean up beside writers, and report."""
    ended = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        writes = pool.submit(commit_on, LOAD, tables, ended)
        syncs = pool.submit(sync_on, context, ended)
        left = pool.submit(_watch, folder, ended)
        try:
            seconds, collected = _clean(context)
        finally:
            ended.set()
    details = {
        "garbage, files": files,
        "deleted": collected.deleted.files,
        "left at the end": _left(folder),
        "left, second by second": left.result(),
        "commits meanwhile": writes.result(),
        "syncs that published": syncs.result(),
    }
    report_progress(f"{seconds:.1f} s beside writers, {alone:.1f} s alone")
    sides = {"beside writers": (rounded(seconds),), "alone": (rounded(alone),)}
    case = f"{files} files, {LOAD.case}"
    report(Result("clean", case, AT_MOST, "at most", "times", sides, seconds / alone, details))


def _plant(world: Pair, context: RegionContext, files: int) -> Path:
    """Put garbage of long ago below the replica root, which a clean-up of long ago has seen; return its folder."""
    root = context.region.replica_root
    folder = world.path(f"{root}/us-lake/garbage")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / f"{number}.parquet").write_bytes(b"garbage")
    _age(folder)
    world.stage.endpoints["eu"].start()  # it would not see what was put there behind its back
    run_gc(context, GcOptions(keep=timedelta(0), grace=MIN_GRACE, delete=False))
    _age(world.path(f"{root}/_sterna/collect"))
    world.stage.endpoints["eu"].start()
    return folder


def _age(folder: Path) -> None:
    before = time.time() - _LONG_AGO
    for path in folder.iterdir():
        os.utime(path, (before, before))


def _clean(context: RegionContext) -> tuple[float, GcReport]:
    started = time.monotonic()
    collected = run_gc(context, _OPTIONS, report_progress)
    return time.monotonic() - started, collected


def _watch(folder: Path, ended: threading.Event) -> list[int]:
    """Return how many files of garbage were left, second by second."""
    left = []
    while not ended.wait(_LOOK_SECONDS):
        left.append(_left(folder))
    return left


def _left(folder: Path) -> int:
    """Return how many files are in a folder, which the store takes away with the last of them."""
    try:
        return len(list(folder.iterdir()))
    except FileNotFoundError:
        return 0
