"""Figures at exactly one snapshot, over HTTP: one asker against reading the table into pandas, and many at once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.common import Result, alternate, percentile, report, rounded
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer, properties
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync

GOAL_TIMES = 3.0
GOAL_CACHED_SECONDS = 0.05
_KEY = (NAMESPACE, "fact_events")
_FILES = 10
_SPREAD_SECONDS = 5.0
_SERVICES = f"""
queries:
  revenue:
    sql: SELECT sum(price) AS total_revenue FROM {".".join(_KEY)} WHERE id >= $n
    params: {{n: long}}
"""


def bench(rows: int, askers: int, rounds: int, work: Path | None) -> None:
    """Measure a table of these many rows."""
    with pair(work, postgres=False) as world:
        fill(world, rows)
        with world.context() as context:
            sync(context, SyncOptions(), report_progress)
            branch = context.region.replica_branch
        content = world.catalog.contents(branch, world.catalog.reference(branch).hash, [_KEY])[_KEY]
        with served(world) as url:
            endpoint = Endpoint(world, url, content.metadata_location or "", int(content.payload["snapshotId"]))
            measure_figure(endpoint, rows, rounds)
            measure_askers(endpoint, rows, askers, rounds)


def fill(world: Pair, rows: int) -> None:
    """Write the table in us."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    writer = open_writer(world)
    writer.create_namespace_if_not_exists(NAMESPACE)
    table = None
    for first in range(0, rows, size := max(1, -(-rows // _FILES))):
        ids = np.arange(first, min(first + size, rows))
        part = pa.table(
            {
                "id": ids,
                "price": random.gamma(2.0, 30.0, len(ids)),
                "shop": pa.array(np.char.add("shop ", random.integers(0, 500, len(ids)).astype(str))),
                "day": pa.array(random.integers(19_000, 20_000, len(ids)).astype("int32"), pa.date32()),
                "seen": pa.array(ids * 1_000_003, pa.timestamp("us")),
            }
        )
        table = table or writer.create_table(".".join(_KEY), part.schema)
        table.append(part)
        report_progress(f"{first + len(ids)} rows written")


@contextmanager
def served(world: Pair) -> Iterator[str]:
    """Run `sterna serve` as a process of its own, with the limits that queries have by default; yield its address."""
    services = world.stage.work / "services.yaml"
    services.write_text(_SERVICES)
    command = [sys.executable, "-m", "sterna.cli.main", "serve", "--region", "eu", "--only", "queries", "--port", "0"]
    command += ["--registry", str(world.stage.registry), "--services", str(services)]
    log = world.stage.work / "serve.log"
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            url = _address(log)
            while httpx.get(f"{url}/health").status_code != 200:
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _address(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if "running on " in line:
                return str(json.loads(line)["message"]).partition("running on ")[2].split()[0]
        time.sleep(0.05)
    raise TimeoutError(f"the gateway doesn't come up: {log.read_text()[-1000:]}")


@dataclass
class Endpoint:
    """A gateway, and the table of its query."""

    world: Pair
    url: str
    metadata: str
    snapshot: int

    def path(self, least: int) -> str:
        """Return the request for rows from an id on: each differs from all earlier ones."""
        return f"/kpi?snapshotId={self.snapshot}&n={least}"

    def executions(self) -> int:
        """Return how many runs there were."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith("sterna_query_seconds_count"))


def measure_figure(endpoint: Endpoint, rows: int, rounds: int) -> None:
    """Measure and report one client with new requests, against a read of the full table in pandas."""
    figures: dict[str, list[float]] = {"ours": [], "theirs": []}
    least = {side: count() for side in figures}
    client = httpx.Client(timeout=120)

    def ours() -> float:
        started = time.monotonic()
        answer = client.get(endpoint.url + endpoint.path(next(least["ours"])))
        seconds = time.monotonic() - started
        figures["ours"].append(answer.raise_for_status().json()["kpi"]["total_revenue"])
        return seconds

    def theirs() -> float:
        from pyiceberg.table import StaticTable

        started = time.monotonic()
        table = StaticTable.from_metadata(endpoint.metadata, properties(endpoint.world.stage.endpoints["eu"]))
        frame = table.scan(snapshot_id=endpoint.snapshot).to_pandas()
        figures["theirs"].append(float(frame[frame["id"] >= next(least["theirs"])]["price"].sum()))
        return time.monotonic() - started

    timings = alternate({"GET /kpi": ours, "scan().to_pandas()": theirs}, rounds, report_progress)
    for mine, other in zip(*figures.values(), strict=True):
        assert abs(mine - other) <= 1e-9 * abs(other), (mine, other)
    report(Result("kpi", f"a figure of {rows} rows", GOAL_TIMES, "at least", "times", timings))


def measure_askers(endpoint: Endpoint, rows: int, askers: int, rounds: int) -> None:
    """Measure and report the same question of many: all at once, before and after its answer is kept, and spread."""
    port = int(endpoint.url.rpartition(":")[2])
    sides: dict[str, list[list[float]]] = {"cached": [], "cached, all at once": [], "one run, all at once": []}
    for number in range(rounds):
        path, before = endpoint.path(1_000_000 + number), endpoint.executions()
        sides["one run, all at once"].append(asyncio.run(ask(port, path, askers, 0.0)))
        sides["cached, all at once"].append(asyncio.run(ask(port, path, askers, 0.0)))
        sides["cached"].append(asyncio.run(ask(port, path, askers, _SPREAD_SECONDS)))
        assert endpoint.executions() == before + 1, "more than one run for all"
        slowest = (f"{side} {percentile(measured[-1], 0.99):.3f} s" for side, measured in sides.items())
        report_progress(f"round {number + 1}: {', '.join(slowest)}")
    p99_seconds = {
        f"{side}, p99": tuple(percentile(seconds, 0.99) for seconds in times) for side, times in sides.items()
    }
    halves = {
        f"{side}, p50": rounded(median(percentile(seconds, 0.5) for seconds in times)) for side, times in sides.items()
    }
    details = {**halves, "executions a round": 1, "rows": rows, "seconds of cached": _SPREAD_SECONDS}
    report(Result("kpi", f"{askers} askers", GOAL_CACHED_SECONDS, "at most", "s", p99_seconds, details=details))


async def ask(port: int, path: str, askers: int, spread: float) -> list[float]:
    """Send many requests, each over its own connection, at fixed times that don't wait for other responses.

    Args:
        port: of the gateway, on the loopback.
        path: of the request.
        spread: seconds over which they come; 0: all at once.

    Returns:
        The seconds from the time that was fixed to the whole answer, of each.
    """
    links: Sequence[Any] = [await asyncio.open_connection("127.0.0.1", port) for _ in range(askers)]
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    begin = asyncio.get_running_loop().time()

    async def one(number: int) -> float:
        reader, writer = links[number]
        due = begin + number * spread / askers
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        return asyncio.get_running_loop().time() - due

    try:
        return list(await asyncio.gather(*map(one, range(askers))))
    finally:
        for _, writer in links:
            writer.close()
