"""Two regions an ocean apart.

What copying and syncing cost over the link, and what a query gains from being at home.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml

from bench.common import Result, Run, alternate, report, rounded
from bench.copy import plain_copy
from bench.link import Link, link_to
from bench.regions import Pair, pair, report_progress, settle, sync_one_file
from bench.writer import NAMESPACE, SmallTable, open_writer, properties
from sterna.config.secrets import environment_secrets
from sterna.replication.execution.copy import copy_batch
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

ROUND_TRIP = 0.1
BYTES_PER_SECOND = 12.5e6
GOAL_COPY = 0.9
_TREE = "s3://us-lake/distance"
_FILES, _SIZE = 100, 1 << 20
_QUERIED = "queried"
_QUERIED_FILES, _QUERIED_ROWS = 20, 50_000


def bench(rounds: int, work: Path | None) -> None:
    """Measure the three of them."""
    with (
        pair(work) as world,
        link_to(world.stage.endpoints["us"].port, round_trip=ROUND_TRIP, bytes_per_second=BYTES_PER_SECOND) as link,
        _far(world, link) as context,
    ):
        measure_copy(world, context, link, rounds)
        writer = open_writer(world)
        measure_commit(world, context, link, SmallTable(world, writer, "distant").create(), rounds)
        measure_query(world, context, link, writer, rounds)


@contextmanager
def _far(world: Pair, link: Link) -> Iterator[RegionContext]:
    """Yield eu, which reaches us through the link alone."""
    registry = yaml.safe_load(world.stage.registry.read_text())
    (us,) = (location for location in registry["locations"] if location["region"] == "us")
    us["remote"]["options"]["endpoint"] = link.url
    path = world.stage.work / "registry-far.yaml"
    path.write_text(yaml.safe_dump(registry))
    with open_region(path, "eu", environment_secrets()) as context:
        yield context


def measure_copy(world: Pair, context: RegionContext, link: Link, rounds: int) -> None:
    """Measure a batch of a sync against plain rclone."""
    content = bytes(_SIZE)
    sources = [f"{_TREE}/{number:04}.parquet" for number in range(_FILES)]
    for source in sources:
        path = world.path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    settle()
    files = [CopyFile("bench.distance", source, context.mapping.replica_uri(source), _SIZE) for source in sources]

    def ours() -> float:
        started = time.monotonic()
        done = copy_batch(files, context.mapping, context.secrets, context.objects)
        seconds = time.monotonic() - started
        assert done.files == len(files), done
        world.remove(context.region.replica_root)
        return seconds

    def rival() -> float:
        seconds = plain_copy(context, _TREE, "--checksum --transfers 16 --checkers 32")
        world.remove(context.region.replica_root)
        return seconds

    timings, details = _in_turn({"sterna copy": ours, "rclone copy": rival}, rounds, link)
    case = f"copy {_FILES} x {_SIZE >> 20} MiB"
    report(Result("distance", case, GOAL_COPY, "at least", "times", timings, details=details))


def measure_commit(world: Pair, context: RegionContext, link: Link, table: SmallTable, rounds: int) -> None:
    """Measure the sync of a commit of one small file, and what of it crosses the link."""
    sync(context, SyncOptions(), report_progress)

    def commit() -> float:
        table.append()
        return sync_one_file(context)

    timings, details = _in_turn({"sync": commit}, rounds, link)
    trips = {"round trips' worth of time": rounded(median(timings["sync"]) / ROUND_TRIP)}
    report(
        Result("distance", "a commit of one small file", None, "at most", "s", timings, details={**details, **trips})
    )


def measure_query(world: Pair, context: RegionContext, link: Link, writer: Catalog, rounds: int) -> None:
    """Measure the same query in eu on `main` and on the replica."""
    rows = pa.table(
        {
            "id": pa.array(range(_QUERIED_ROWS), pa.int64()),
            "value": pa.array([number * 0.37 for number in range(_QUERIED_ROWS)]),
        }
    )
    table = writer.create_table(f"{NAMESPACE}.{_QUERIED}", rows.schema)
    for _ in range(_QUERIED_FILES):
        table.append(rows)
    sync(context, SyncOptions(), report_progress)
    eu, us = world.stage.endpoints["eu"], world.stage.endpoints["us"]
    sides: dict[str, Run] = {
        "on main_replica_eu": lambda: _query(world, context.region.replica_branch, properties(eu)),
        "on main": lambda: _query(world, "main", properties(us, link.url)),
    }
    timings, details = _in_turn(sides, rounds, link)
    report(Result("distance", "a query", None, "at least", "times", timings, details=details))


def _query(world: Pair, branch: str, settings: dict[str, str]) -> float:
    from pyiceberg.table import StaticTable

    key = (NAMESPACE, _QUERIED)
    started = time.monotonic()
    location = world.catalog.contents(branch, world.catalog.reference(branch).hash, [key])[key].metadata_location
    assert location
    answer = StaticTable.from_metadata(location, settings).scan(row_filter="id < 25000").to_arrow()
    seconds = time.monotonic() - started
    assert answer.num_rows == _QUERIED_FILES * 25_000
    return seconds


def _in_turn(sides: Mapping[str, Run], rounds: int, link: Link) -> tuple[dict[str, tuple[float, ...]], dict[str, Any]]:
    """Run the sides in turn; return their seconds, and the details: what of each crossed the link."""
    counted: dict[str, list[int]] = {name: [] for name in sides}

    def counting(name: str) -> Run:
        def run() -> float:
            before = link.sent
            seconds = sides[name]()
            counted[name].append(link.sent - before)
            return seconds

        return run

    timings = alternate({name: counting(name) for name in sides}, rounds, report_progress)
    megabytes = {name: rounded(median(values) / 1e6) for name, values in counted.items()}
    return timings, {
        "round trip": ROUND_TRIP,
        "MB per second of the link": BYTES_PER_SECOND / 1e6,
        "MB over the link": megabytes,
    }
