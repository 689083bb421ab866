"""From a commit to every client that waits for it: server-sent events of a gateway, against nchan and polling."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import uvloop

from bench.common import Result, percentile, report, rounded
from bench.nchan import nchan, publishing
from bench.regions import Pair, pair, report_progress
from bench.sse import Streams
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.replica.head import read_head

GOAL_MAIN = 1.0  # the median, from `main` in us to a client in eu
GOAL_NCHAN = 1.5  # times its 99th percentile
GOALS = ((1_000, 0.5), (10_000, 2.0))  # the 99th percentile of so many clients
POLL_SECONDS = 1.5
_MAX_WAIT_SECONDS = 120.0
_WARM_UP_COMMITS = 5  # the catalog's first answers take the double, which the first kind alone would meet
_BRANCH = "main_replica_eu"
OURS, NCHAN, POLLERS = "server-sent events", "nchan, fed by a poller", f"polling each {POLL_SECONDS} s"


@dataclass
class Seen:
    """What clients of one kind saw.

    Args:
        replica: seconds from the replica commit, by client and round.
        main: seconds from the commit on `main`.
        rounds: the 99th percentile of each round, from the replica commit.
        main_rounds: the median of each round, from `main`.
        kib: memory of the gateway a client, in KiB.
        processor_seconds: of the clients' own process, from the first one's event to the last one's, by round.
    """

    replica: list[float] = field(default_factory=list)
    main: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    main_rounds: list[float] = field(default_factory=list)
    kib: float = 0.0
    processor_seconds: list[float] = field(default_factory=list)


Measured = dict[str, Seen]
"""What each kind of clients saw."""


@dataclass(frozen=True)
class _Workload:
    """What is to be measured: so many clients of each kind, and commits; where nchan was unpacked to."""

    clients: int
    commits: int
    nchan: Path | None


def bench(clients: int, commits: int, unpacked: Path | None, work: Path | None) -> None:
    """Measure so many clients of each kind, over so many commits each."""
    with pair(work) as world:
        table = SmallTable(world, open_writer(world), "notify").create()
        with process(world, "follow", "--region", "eu"), gateway(world, clients) as (url, served):
            _wait_until_served(world)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                workload = _Workload(clients, commits, unpacked)
                measured = runner.run(_measure(world, table, url, served, workload))
    _report(clients, measured)


async def _poll(address: str, last_head: str, ended: asyncio.Event) -> tuple[str, float]:
    """Poll the branch's head from the catalog each 1.5 s, over one connection, until it changes."""
    at = urlsplit(address)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    await asyncio.sleep(random.uniform(0, POLL_SECONDS))
    request = f"GET {at.path}/trees/{_BRANCH} HTTP/1.1\r\nHost: {at.netloc}\r\nAccept: application/json\r\n\r\n"
    while True:
        writer.write(request.encode())
        head = json.loads(await _body(reader))["reference"]["hash"]
        if head != last_head or ended.is_set():
            writer.close()
            return head, time.time()
        await asyncio.sleep(POLL_SECONDS)


async def _body(reader: asyncio.StreamReader) -> bytes:
    headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in headers.split("\r\n") if line.startswith("content-length:"))
    return await reader.readexactly(int(length.partition(":")[2]))


async def _measure(world: Pair, table: SmallTable, url: str, served: psutil.Process, workload: _Workload) -> Measured:
    """Let each kind of clients wait for commits, one kind after the other."""
    measured: Measured = {}
    before = served.memory_info().rss
    async with Streams(f"{url}/v1/events?tables={NAMESPACE}.*", workload.clients) as streams:
        kib = (served.memory_info().rss - before) / workload.clients / 1024
        report_progress(f"{workload.clients} streams are open, {kib:.1f} KiB each")
        measured[OURS] = await _rounds(world, workload, OURS, partial(_streamed, table, streams))
        measured[OURS].kib, measured[OURS].processor_seconds = kib, streams.processor_seconds[_WARM_UP_COMMITS:]
    if workload.nchan is not None:
        with nchan(workload.nchan, world.stage.work / "nchan", workload.clients) as rival:
            branch = f"{world.stage.nessie.uri}/trees/{_BRANCH}"
            async with Streams(f"{rival}/events", workload.clients) as streams, publishing(rival, branch):
                measured[NCHAN] = await _rounds(world, workload, NCHAN, partial(_streamed, table, streams))
                measured[NCHAN].processor_seconds = streams.processor_seconds[_WARM_UP_COMMITS:]
    measured[POLLERS] = await _rounds(world, workload, POLLERS, partial(_polled, world, table, workload.clients))
    return measured


async def _rounds(
    world: Pair, workload: _Workload, kind: str, one: Callable[[], Awaitable[list[tuple[str, float]]]]
) -> Seen:
    """Let one kind wait for its commits; the first rounds warm up, and aren't counted."""
    seen = Seen()
    for number in range(-_WARM_UP_COMMITS, workload.commits):
        times = await one()
        if number >= 0:
            _take(world, times, seen)
    report_progress(f"{kind}: p50 {percentile(seen.replica, 0.5):.3f} s, p99 {percentile(seen.replica, 0.99):.3f} s")
    return seen


async def _streamed(table: SmallTable, streams: Streams) -> list[tuple[str, float]]:
    await asyncio.sleep(random.uniform(0, POLL_SECONDS))
    streams.forget()
    await asyncio.to_thread(table.append)
    return await streams.wait_for_events(_MAX_WAIT_SECONDS)


async def _polled(world: Pair, table: SmallTable, clients: int) -> list[tuple[str, float]]:
    last_head, ended = world.catalog.reference(_BRANCH).hash, asyncio.Event()
    address = world.stage.nessie.uri
    tasks = [asyncio.create_task(_poll(address, last_head, ended)) for _ in range(clients)]
    await asyncio.sleep(POLL_SECONDS)
    await asyncio.to_thread(table.append)
    async with asyncio.timeout(_MAX_WAIT_SECONDS):
        return list(await asyncio.gather(*tasks))


def _take(world: Pair, times: Sequence[tuple[str, float]], seen: Seen) -> None:
    (head,) = {hash for hash, _ in times}
    commit = next(iter(world.catalog.history(f"{_BRANCH}@{head}", operations=False)))
    source = commit.properties["sterna.source-hash"]
    main = next(iter(world.catalog.history(f"{SOURCE_BRANCH}@{source}", operations=False)))
    since = [moment - commit.commit_time.timestamp() for _, moment in times]
    seen.replica += since
    seen.rounds.append(percentile(since, 0.99))
    since_main = [moment - main.commit_time.timestamp() for _, moment in times]
    seen.main += since_main
    seen.main_rounds.append(percentile(since_main, 0.5))


def _report(clients: int, measured: Measured) -> None:
    goal = next((goal for most, goal in GOALS if clients <= most), None)
    details: dict[str, Any] = {
        "what": "99th percentile of the clients, by round, from the replica commit",
        "p50": {kind: rounded(percentile(seen.replica, 0.5)) for kind, seen in measured.items()},
        "p99": {kind: rounded(percentile(seen.replica, 0.99)) for kind, seen in measured.items()},
        "catalog requests a second, at most": [5, rounded(clients / POLL_SECONDS)],
        "KiB a client": rounded(measured[OURS].kib),
        "processor seconds of the clients' own process, a commit": {
            kind: rounded(median(seen.processor_seconds)) for kind, seen in measured.items() if seen.processor_seconds
        },
    }
    sides = {kind: tuple(seen.rounds) for kind, seen in measured.items()}
    figure = percentile(measured[OURS].replica, 0.99)
    report(Result("notify", f"{clients} clients", goal, "at most", "s", sides, figure, details))
    if NCHAN in measured:
        times = figure / percentile(measured[NCHAN].replica, 0.99)
        two = {kind: sides[kind] for kind in (OURS, NCHAN)}
        report(Result("notify", f"{clients} clients, against nchan", GOAL_NCHAN, "at most", "times", two, times))
    main = {kind: tuple(seen.main_rounds) for kind, seen in measured.items()}
    shares = {f"p{share * 100:.0f}": share for share in (0.5, 0.99)}
    details = {
        name: {kind: rounded(percentile(seen.main, share)) for kind, seen in measured.items()}
        for name, share in shares.items()
    }
    name = f"main to {clients} clients, with follow"
    report(Result("notify", name, GOAL_MAIN, "at most", "s", main, percentile(measured[OURS].main, 0.5), details))


def _wait_until_served(world: Pair) -> None:
    end = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        names = {reference.name for reference in world.catalog.references()}
        head = world.catalog.reference(SOURCE_BRANCH).hash
        if _BRANCH in names and read_head(world.catalog, _BRANCH).watermark == head:
            return
        assert time.monotonic() < end, "sterna follow publishes nothing"
        time.sleep(0.1)


@contextmanager
def gateway(world: Pair, clients: int) -> Iterator[tuple[str, psutil.Process]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--connections", str(clients + 10)]
    with process(world, "serve", "--region", "eu", *options) as served:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            assert time.monotonic() < end and served.poll() is None, "the gateway doesn't come up"
            time.sleep(0.1)
        yield url, psutil.Process(served.pid)


@contextmanager
def process(world: Pair, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    log = world.stage.work / f"notify-{arguments[0]}.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "sterna.cli.main", *arguments, "--registry", str(world.stage.registry)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)
