"""A commit of one file, in ever larger tables, catalogs and histories.

Its time, the requests and the bytes that it costs.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.common import Result, report, rounded
from bench.regions import Regions, regions, report_progress, sync_one_file
from bench.tables import BigTable, build_table, insert_row, place_files
from sterna.catalog.model import Content, Key, Put
from sterna.catalog.nessie.http import NessieHttp
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

GOAL = 1.3
_FILE_SIZE = 1024
_SMALL = 1000  # files of the table whose catalog or history grows
_PUTS = 1000  # in one commit
_UNIT = {"tables": "files", "catalogs": "tables", "histories": "snapshots"}
# With its usual cache the endpoint lists a folder again each second. With 43,200 files that takes longer than a second,
# so that it does nothing else. And it would read each file for its MD5 once more.
_LARGE_FOLDERS = ("--dir-cache-time", "24h", "--etag-hash", "")
# What a commit of one file is: engines' merging of manifests would be one of many.
_SETTINGS = "ALTER TABLE {} SET TBLPROPERTIES ('commit.manifest-merge.enabled'='false')"


def bench(kind: str, sizes: list[int], rounds: int, work: Path | None) -> None:
    """Measure commits at each size of one kind: `tables`, `catalogs` or `histories`."""
    build: Callable[[Regions, int], BigTable] = {"tables": _table, "catalogs": _catalog, "histories": _history}[kind]
    sides: dict[str, tuple[float, ...]] = {}
    costs: dict[str, Any] = {}
    for size in sizes:
        with regions(work, memory="2g", postgres=True, count_requests=True) as world:
            table = build(world, size)
            world.spark.sql(_SETTINGS.format(table.name))
            sides[f"{size} {_UNIT[kind]}"], costs[f"{size} {_UNIT[kind]}"] = measure(world, table, rounds)
    medians = [median(values) for values in sides.values()]
    goal = None if kind == "histories" else GOAL
    case = f"{kind} of {' / '.join(map(str, sizes))} {_UNIT[kind]}"
    report(
        Result("growth", case, goal, "at most", "times", sides, medians[-1] / medians[0], {"a commit, median": costs})
    )


def measure(world: Regions, table: BigTable, rounds: int) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Seed the replica, then measure commits; return their seconds, and what one costs."""
    seconds: list[float] = []
    costs: list[dict[str, float]] = []
    with world.context() as context, spark_engine(context, report_progress) as engine:
        seeded = sync(context, SyncOptions(seed_group=1_000_000), report_progress, engine=engine)
        assert not seeded.held, seeded.held[:3]
        for number in range(-1, rounds):
            insert_row(world, table.name)
            cost = _sync(world, context, engine)
            report_progress(f"{'warm-up' if number < 0 else f'commit {number + 1}'}: {cost}")
            if number >= 0:
                seconds.append(cost.pop("seconds"))
                costs.append(cost)
        shown = {name: rounded(median(cost.get(name, 0) for cost in costs)) for name in costs[-1]}
        return tuple(seconds), {**shown, **_metadata_alone(world, context, table)}


def _metadata_alone(world: Regions, context: RegionContext, table: BigTable) -> dict[str, float]:
    """Return how large metadata.json is, and what it takes to read it there and write it here.

    No replication can do without.
    """
    uri = _content(world, table.key).metadata_location or ""
    started = time.monotonic()
    data = context.objects.read(uri)
    context.objects.write_new(f"{context.region.replica_root}/bench-{len(data)}", data)
    return {
        "metadata.json, MB": rounded(len(data) / 1e6),
        "metadata.json alone, s": rounded(time.monotonic() - started),
    }


def _sync(world: Regions, context: RegionContext, engine: Engine) -> dict[str, float]:
    marks = {name: len(endpoint.requests()) for name, endpoint in world.stage.endpoints.items()}
    with _counted_calls() as calls:
        seconds = sync_one_file(context, engine)
    cost: dict[str, float] = {"seconds": seconds, "Nessie calls": sum(calls.values())}
    for name, endpoint in world.stage.endpoints.items():
        requests = endpoint.requests(marks[name])
        cost[f"requests to {name}"] = len(requests)
        if name == "us":
            cost["MB read from us"] = (
                sum(world.path(f"s3://{r.bucket}/{r.key}").stat().st_size for r in requests if r.method == "GET") / 1e6
            )
    return cost


@contextmanager
def _counted_calls() -> Iterator[Counter[str]]:
    calls: Counter[str] = Counter()
    send = NessieHttp._send

    def counted(self: NessieHttp, method: str, path: str, params: Mapping[str, str | int] | None, body: Any) -> Any:
        calls[method] += 1
        return send(self, method, path, params, body)

    with patch.object(NessieHttp, "_send", counted):
        yield calls


def _table(world: Regions, files: int) -> BigTable:
    # Manifests as large as engines make them, 8 MB.
    table = build_table(world, files, per_manifest=min(files, 10_000), file_size=_FILE_SIZE)
    with world.context() as context:
        place_files(world, table, context.mapping.replica_uri(table.location))
    return table


def _catalog(world: Regions, tables: int) -> BigTable:
    """Return one table of a catalog of many.

    The others name the same metadata, so that they are soon made and seeded.
    """
    table = _table(world, _SMALL)
    content = _content(world, table.key)
    others: list[Put] = [Put(("bench", f"other{number:05}"), content.with_id(None)) for number in range(tables - 1)]
    for start in range(0, len(others), _PUTS):
        world.catalog.commit(
            "main", world.catalog.reference("main").hash, others[start : start + _PUTS], "bench: more tables"
        )
    return table


def _history(world: Regions, snapshots: int) -> BigTable:
    """Return a table of many snapshots, each with a manifest list of its own."""
    world.keep_on_disk("eu")  # `rclone serve s3` needs a minute and more to list 43,200 files that it was sent
    table = _table(world, _SMALL)
    document = json.loads(world.path(table.metadata).read_text())
    (last,) = document["snapshots"]
    folder, start = table.metadata.rpartition("/")[0], last["timestamp-ms"] - 60_000 * snapshots
    manifest_list = world.path(last["manifest-list"]).read_bytes()
    for number in range(1, snapshots):
        uri = f"{folder}/snap-{number:06}.avro"
        world.path(uri).write_bytes(manifest_list)
        document["snapshots"].append(
            {**last, "snapshot-id": number, "timestamp-ms": start + 60_000 * number, "manifest-list": uri}
        )
    document["snapshot-log"] = [
        {"snapshot-id": item["snapshot-id"], "timestamp-ms": item["timestamp-ms"]}
        for item in sorted(document["snapshots"], key=lambda item: item["timestamp-ms"])
    ]
    target = f"{folder}/00010-{snapshots:08}-0000-0000-0000-000000000000.metadata.json"
    world.path(target).write_text(json.dumps(document))
    world.stage.endpoints["us"].start(*_LARGE_FOLDERS)
    changed = _content(world, table.key).with_metadata_location(target)
    world.catalog.commit(
        "main", world.catalog.reference("main").hash, [Put(table.key, changed)], "bench: a long history"
    )
    return replace(table, metadata=target)


def _content(world: Regions, key: Key) -> Content:
    return world.catalog.contents("main", world.catalog.reference("main").hash, [key])[key]
