"""Commits all the time, and one sync after the other: how far behind the replica is, and whether that stays so."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import Result, percentile, report, rounded
from bench.regions import Pair, pair, report_progress
from bench.writer import SmallTable, open_writer
from sterna.catalog.model import Commit
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import parse_head
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

BOUNDED = 1.5
"""Lag of the last third by lag of the first third, up to which it counts as bounded."""
_LOOK_SECONDS = 0.2
_WRITERS = 4


@dataclass(frozen=True)
class Load:
    """The rate of commits.

    Args:
        tables: how many tables are written, in turn.
        per_minute: commits a minute, of all tables together.
    """

    tables: int
    per_minute: int

    @property
    def case(self) -> str:
        """Its name in the results."""
        return f"{self.per_minute} commits a minute, {self.tables} table{'s' if self.tables > 1 else ''}"


LOADS = (Load(20, 60), Load(1, 30))


def bench(loads: Sequence[Load], minutes: float, work: Path | None) -> None:
    """Measure some loads, for so many minutes each."""
    for load in loads:
        with pair(work) as world, world.context() as context:
            tables = [SmallTable(world, open_writer(world), f"t{number}").create() for number in range(load.tables)]
            sync(context, SyncOptions(), report_progress)
            measure(world, context, load, tables, minutes)


def measure(world: Pair, context: RegionContext, load: Load, tables: Sequence[SmallTable], minutes: float) -> None:
    """Commit and sync for some minutes, and report the lag of each commit."""
    before = world.catalog.reference(SOURCE_BRANCH).hash
    ended = threading.Event()
    with ThreadPoolExecutor(_WRITERS + 1) as pool:
        syncs = pool.submit(sync_on, context, ended)
        late = _commit(pool, load, tables, minutes)
        ended.set()
        runs = syncs.result()
    lags = _lags(world, context, before)
    third = max(1, len(lags) // 3)
    sides = {"lag, first third": tuple(lags[:third]), "lag, last third": tuple(lags[-third:])}
    details: dict[str, Any] = {
        "commits": len(lags),
        "syncs that published": runs,
        "lag p50": rounded(percentile(lags, 0.5)),
        "lag p99": rounded(percentile(lags, 0.99)),
        "longest lag": rounded(max(lags)),
        "commits that came late, for the writers could not keep up": late,
        "minutes": minutes,
    }
    growth = median(sides["lag, last third"]) / median(sides["lag, first third"])
    report(Result("churn", load.case, BOUNDED, "at most", "times", sides, growth, details))


def _commit(pool: ThreadPoolExecutor, load: Load, tables: Sequence[SmallTable], minutes: float) -> int:
    """Commit at the pace of a load; return how many commits began more than one interval late."""
    interval = 60 / load.per_minute
    start = time.monotonic()
    # One table has one writer: two would only meet in conflicts.
    locks = [threading.Lock() for _ in tables]
    late = count()

    def one(number: int, due: float) -> None:
        with locks[number % len(tables)]:
            if time.monotonic() - due > interval:
                next(late)
            tables[number % len(tables)].append()

    commits = []
    for number in range(round(minutes * load.per_minute)):
        due = start + number * interval
        time.sleep(max(0.0, due - time.monotonic()))
        commits.append(pool.submit(one, number, due))
    for commit in commits:
        commit.result()
    return next(late)


def commit_on(load: Load, tables: Sequence[SmallTable], ended: threading.Event) -> int:
    """Commit at the pace of a load, one commit after the other, until the event is set; return how many.

    Args:
        load: its tables in turn.
        ended: set when the load is over.
    """
    for number in count():
        due = time.monotonic() + 60 / load.per_minute
        tables[number % len(tables)].append()
        if ended.wait(max(0.0, due - time.monotonic())):
            return number + 1
    raise AssertionError("numbers have no end")


def sync_on(context: RegionContext, ended: threading.Event) -> int:
    """Sync whenever there is something new, and once more at the end; return how many syncs published."""
    published, seen = 0, ""
    while True:
        last = ended.is_set()
        head = context.primary.reference(SOURCE_BRANCH).hash
        if head != seen:
            report = sync(context, SyncOptions(), lambda line: None)
            published, seen = published + (report.outcome == "published"), head
        elif not last:
            time.sleep(_LOOK_SECONDS)
        if last:
            return published


def _lags(world: Pair, context: RegionContext, before: str) -> list[float]:
    """Return, for each commit of `main`, the seconds until the replica was at it or at a later one."""
    commits = list(reversed(_history(world, SOURCE_BRANCH, before)))
    places = {commit.hash: place for place, commit in enumerate(commits)}
    lags: list[float] = []
    for replica in reversed(_history(world, context.region.replica_branch, None)):
        for commit in commits[len(lags) : places.get(parse_head(replica).watermark, -1) + 1]:
            lags.append(_between(commit.commit_time, replica.commit_time))
    assert len(lags) == len(commits), (len(lags), len(commits))
    return lags


def _history(world: Pair, branch: str, until: str | None) -> list[Commit]:
    return list(
        world.catalog.history(f"{branch}@{world.catalog.reference(branch).hash}", operations=False, until=until)
    )


def _between(first: datetime, second: datetime) -> float:
    return (second - first).total_seconds()
