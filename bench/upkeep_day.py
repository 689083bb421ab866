"""Commits all day, with upkeep and without: what planning a read, a sync and a commit cost in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from bench.common import Result, report, rounded
from bench.regions import Regions, regions, report_progress
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.config.secrets import environment_secrets
from sterna.config.sections.maintenance import Maintenance
from sterna.maintenance.tables.run import run_maintenance
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import open_region
from sterna.replication.sync.run import sync

GOAL = 1.5
_HOURS = 24
_LOOKS = 48
"""How often a read is planned and a sync is done, in a day."""


@dataclass
class _Costs:
    """Seconds of each thing, in the order of the day."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, name: str, work: Callable[[], object]) -> None:
        started = time.monotonic()
        work()
        self.seconds.setdefault(name, []).append(time.monotonic() - started)

    def thirds(self, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        values = self.seconds[name]
        third = max(1, len(values) // 3)
        return tuple(values[:third]), tuple(values[-third:])

    def growth(self, name: str) -> float:
        first, last = self.thirds(name)
        return median(last) / median(first)


def bench(commits: int, work: Path | None) -> None:
    """Play a day of so many commits twice, and report what grew."""
    with regions(work) as world:
        with_upkeep = _day(world, "kept", commits, kept=True)
        without = _day(world, "left", commits, kept=False)
    for name in with_upkeep.seconds:
        if name == "upkeep":
            continue
        first, last = with_upkeep.thirds(name)
        sides = {"last third": last, "first third": first}
        details = {
            "without upkeep": rounded(without.growth(name)),
            "without upkeep, last third": rounded(median(without.thirds(name)[1])),
            "seconds of upkeep, all together": rounded(sum(with_upkeep.seconds.get("upkeep", [0.0]))),
        }
        case = f"{name}, {commits} commits"
        report(Result("upkeep_day", case, GOAL, "at most", "times", sides, with_upkeep.growth(name), details))


def _day(world: Regions, name: str, commits: int, *, kept: bool) -> _Costs:
    costs, writer = _Costs(), open_writer(world)
    table = SmallTable(world, writer, name).create()
    with world.context("here") as context:
        sync(context, SyncOptions(), lambda line: None)
        for number in range(1, commits + 1):
            costs.timed("a commit", table.append)
            if number % max(1, commits // _LOOKS) == 0:
                costs.timed(
                    "planning a read", lambda: list(writer.load_table(f"{NAMESPACE}.{name}").scan().plan_files())
                )
                costs.timed("a sync", lambda: sync(context, SyncOptions(), lambda line: None))
            if kept and number % max(1, commits // _HOURS) == 0:
                costs.timed("upkeep", lambda: _upkeep(world, name))
                # What it rewrote is shipped once; the syncs that are measured come after commits.
                sync(context, SyncOptions(), lambda line: None)
            if number % 50 == 0:
                report_progress(f"{name}: {number} commits")
    return costs


def _upkeep(world: Regions, name: str) -> None:
    settings = Maintenance.model_validate(
        {"tables": [{"match": [f"{NAMESPACE}.{name}"], "min_age": "1s"}], "spark": "local"}
    )
    with open_region(world.stage.registry, "us", environment_secrets()) as context:
        done = run_maintenance(
            context, settings, (), lambda line: None, dry_run=False, now=datetime.now(UTC) + timedelta(hours=1)
        )
    assert not done.failed, done
