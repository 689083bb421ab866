"""A sweep of a large table's files, one in a hundred of which nothing needs, against Iceberg's remove_orphan_files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from bench.common import Result, alternate, report, rounded
from bench.regions import MAIN, Regions, regions, report_progress
from bench.tables import BigTable, build_table, place_files
from sterna.catalog.model import key_name
from sterna.config.secrets import environment_secrets
from sterna.config.sections.maintenance import Maintenance
from sterna.maintenance.tables.orphan_files import sweep
from sterna.maintenance.tables.results import SweepReport
from sterna.replication.replica.region import open_region

GOAL = 1.0
_FILE_SIZE = 1024  # bytes: the endpoint reads a file to list it
_LONG_AGO = 30 * 86_400
_LATER = timedelta(days=1, hours=3)  # than a pass that is made now
_SETTINGS = Maintenance.model_validate({"tables": [{"match": ["**"]}], "exclude_regions": ["us", "eu"]})


def bench(files: int, rounds: int, work: Path | None) -> None:
    """Sweep a table of so many files, 1 % garbage beside them."""
    with regions(work) as world:
        world.stage.endpoints["us"].start("--etag-hash", "")  # object stores have theirs at hand
        _opt_in(world)
        table = build_table(world, files, file_size=_FILE_SIZE)
        place_files(world, table, table.location)
        _age(world.path(table.location))
        firsts: list[float] = []
        sides = {"sweep": _ours(world, table, firsts), "remove_orphan_files": _rivals(world, table)}
        timings = alternate(sides, rounds, report_progress, warm_up=0)
        details = {
            "garbage, files": files // 100,
            "the pass before, which finds and writes down, s": [rounded(seconds) for seconds in firsts],
        }
        report(Result("sweep", f"{files} files, 1 % garbage", GOAL, "at least", "times", timings, details=details))


def _ours(world: Regions, table: BigTable, firsts: list[float]) -> Callable[[], float]:
    def run() -> float:
        _plant(world, table)
        seconds, swept = _swept(world, delete=False)
        firsts.append(seconds)
        assert swept.unreachable.files >= table.entries // 100, swept
        seconds, swept = _swept(world, delete=True)
        # At first a few more: what building the table left.
        assert swept.deleted.files >= table.entries // 100 and not swept.failed, swept
        return seconds

    return run


def _rivals(world: Regions, table: BigTable) -> Callable[[], float]:
    before = f"TIMESTAMP '{datetime.now(UTC) - timedelta(days=3):%Y-%m-%d %H:%M:%S}'"
    world.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('gc.enabled'='true')")  # it refuses without
    call = f"table => '{key_name(table.key)}', older_than => {before}, prefix_listing => true"

    def run() -> float:
        _plant(world, table)
        started = time.monotonic()
        orphan_count = world.spark.sql(f"CALL {MAIN}.system.remove_orphan_files({call})").count()
        seconds = time.monotonic() - started
        assert orphan_count >= table.entries // 100, orphan_count
        return seconds

    return run


def _swept(world: Regions, *, delete: bool) -> tuple[float, SweepReport]:
    started = time.monotonic()
    with open_region(world.stage.registry, "us", environment_secrets()) as context:
        swept = sweep(context, _SETTINGS, delete=delete, progress=report_progress, now=datetime.now(UTC) + _LATER)
    return time.monotonic() - started, swept


def _plant(world: Regions, table: BigTable) -> None:
    """Put garbage of long ago into the table's folder."""
    folder = world.path(f"{table.location}/data/garbage")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(table.entries // 100):
        (folder / f"{number}.parquet").write_bytes(b"garbage")
    _age(world.path(table.location))
    world.stage.endpoints["us"].start("--etag-hash", "")  # it would not see what was put there behind its back


def _age(folder: Path) -> None:
    before = time.time() - _LONG_AGO
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (before, before))


def _opt_in(world: Regions) -> None:
    registry: dict[str, Any] = yaml.safe_load(world.stage.registry.read_text())
    for location in registry["locations"]:
        location["sweep"] = location["region"] == "us"
    world.stage.registry.write_text(yaml.safe_dump(registry))
