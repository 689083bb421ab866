"""From a commit to every client that waits for it: server-sent events of a gateway, against clients that poll."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from bench.common import Result, percentile, report, rounded
from bench.regions import Pair, pair, say
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import read_head

GOAL_MAIN = 1.0  # the median, from `main` in us to a client in eu
GOALS = ((1_000, 0.5), (10_000, 2.0))  # the 99th percentile of so many clients
POLL_SECONDS = 1.5
_PATIENCE = 120.0
_BRANCH = "main_replica_eu"


@dataclass
class Seen:
    """What clients of one kind saw.

    Args:
        replica: seconds from the replica commit, by client and round.
        main: seconds from the commit on `main`.
        rounds: the 99th percentile of each round.
        kib: memory of the gateway a client, in KiB.
    """

    replica: list[float] = field(default_factory=list)
    main: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    kib: float = 0.0


def bench(clients: int, commits: int, work: Path | None) -> None:
    """Measure so many clients of each kind, over so many commits each."""
    with pair(work) as world:
        table = SmallTable(world, open_writer(world), "notify").create()
        with _process(world, "follow", "--region", "eu"), _gateway(world, clients) as (url, served):
            _wait_until_served(world)
            streams, pollers = asyncio.run(_measure(world, table, url, served, clients, commits))
    _report(clients, streams, pollers)


@dataclass
class _Streams:
    """Clients of the gateway."""

    url: str
    count: int
    seen: asyncio.Queue[tuple[str, float]] = field(default_factory=asyncio.Queue)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def connect(self) -> None:
        gate = asyncio.Semaphore(100)
        await asyncio.gather(*(self._connect(gate) for _ in range(self.count)))

    async def _connect(self, gate: asyncio.Semaphore) -> None:
        at = urlsplit(self.url)
        async with gate:
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            writer.write(f"GET /v1/events?tables={NAMESPACE}.* HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode())
            assert b" 200 " in await reader.readline()
            while not (await reader.readline()).startswith((b"retry:", b"id:")):
                pass
        self.tasks.append(asyncio.create_task(self._read(reader, writer)))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            async for line in reader:
                if line.startswith(b"data:"):
                    now = time.time()
                    self.seen.put_nowait((json.loads(line[5:])["data"]["replica_hash"], now))
        writer.close()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks)


async def _poll(address: str, known: str, ended: asyncio.Event) -> tuple[str, float]:
    """Ask the catalog each 1.5 s for the branch's head, over a connection that stays open, until it is another one."""
    at = urlsplit(address)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    await asyncio.sleep(random.uniform(0, POLL_SECONDS))
    request = f"GET {at.path}/trees/{_BRANCH} HTTP/1.1\r\nHost: {at.netloc}\r\nAccept: application/json\r\n\r\n"
    while True:
        writer.write(request.encode())
        head = json.loads(await _body(reader))["reference"]["hash"]
        if head != known or ended.is_set():
            writer.close()
            return head, time.time()
        await asyncio.sleep(POLL_SECONDS)


async def _body(reader: asyncio.StreamReader) -> bytes:
    headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in headers.split("\r\n") if line.startswith("content-length:"))
    return await reader.readexactly(int(length.partition(":")[2]))


async def _measure(
    world: Pair, table: SmallTable, url: str, served: psutil.Process, clients: int, commits: int
) -> tuple[Seen, Seen]:
    """Let both kinds wait for commits, in turn; the gateway has its clients all the time."""
    before = served.memory_info().rss
    streams = _Streams(url, clients)
    await streams.connect()
    found = Seen(kib=(served.memory_info().rss - before) / clients / 1024), Seen()
    say(f"{clients} streams are open, {found[0].kib:.1f} KiB each")
    for number in range(-1, commits):
        for kind, seen in enumerate(found):
            times = await (_streamed(table, streams) if kind == 0 else _polled(world, table, clients))
            while not streams.seen.empty():
                streams.seen.get_nowait()
            if number >= 0:
                _take(world, times, seen)
        if number >= 0:
            say(f"round {number + 1}: streams {found[0].rounds[-1]:.3f} s, pollers {found[1].rounds[-1]:.3f} s")
    await streams.close()
    return found


async def _streamed(table: SmallTable, streams: _Streams) -> list[tuple[str, float]]:
    await asyncio.to_thread(table.append)
    async with asyncio.timeout(_PATIENCE):
        return [await streams.seen.get() for _ in range(streams.count)]


async def _polled(world: Pair, table: SmallTable, clients: int) -> list[tuple[str, float]]:
    known, ended = world.catalog.reference(_BRANCH).hash, asyncio.Event()
    address = world.stage.nessie.uri
    tasks = [asyncio.create_task(_poll(address, known, ended)) for _ in range(clients)]
    await asyncio.sleep(POLL_SECONDS)
    await asyncio.to_thread(table.append)
    async with asyncio.timeout(_PATIENCE):
        times = list(await asyncio.gather(*tasks))
    await asyncio.sleep(1.0)  # until the streams have it, too
    return times


def _take(world: Pair, times: Sequence[tuple[str, float]], seen: Seen) -> None:
    (head,) = {hash for hash, _ in times}
    commit = next(iter(world.catalog.history(f"{_BRANCH}@{head}", operations=False)))
    source = commit.properties["sterna.source-hash"]
    main = next(iter(world.catalog.history(f"{SOURCE_BRANCH}@{source}", operations=False)))
    since = [moment - commit.commit_time.timestamp() for _, moment in times]
    seen.replica += since
    seen.rounds.append(percentile(since, 0.99))
    seen.main += [moment - main.commit_time.timestamp() for _, moment in times]


def _report(clients: int, streams: Seen, pollers: Seen) -> None:
    goal = next((goal for most, goal in GOALS if clients <= most), None)
    sides = {"server-sent events": tuple(streams.rounds), f"polling each {POLL_SECONDS} s": tuple(pollers.rounds)}
    details: dict[str, Any] = {
        "what": "99th percentile of the clients, by round, from the replica commit",
        "p50": [rounded(percentile(each.replica, 0.5)) for each in (streams, pollers)],
        "p99": [rounded(percentile(each.replica, 0.99)) for each in (streams, pollers)],
        "catalog requests a second, at most": [5, rounded(clients / POLL_SECONDS)],
        "KiB a client": rounded(streams.kib),
    }
    figure = percentile(streams.replica, 0.99)
    report(Result("notify", f"{clients} clients", goal, "at most", "s", sides, figure, details))
    main = {"server-sent events": tuple(streams.main[::clients]), "polling": tuple(pollers.main[::clients])}
    details = {
        f"p{share * 100:.0f}": [rounded(percentile(each.main, share)) for each in (streams, pollers)]
        for share in (0.5, 0.99)
    }
    figure = percentile(streams.main, 0.5)
    name = f"main to {clients} clients, with follow"
    report(Result("notify", name, GOAL_MAIN, "at most", "s", main, figure, details))


def _wait_until_served(world: Pair) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        names = {reference.name for reference in world.catalog.references()}
        head = world.catalog.reference(SOURCE_BRANCH).hash
        if _BRANCH in names and read_head(world.catalog, _BRANCH).watermark == head:
            return
        assert time.monotonic() < end, "sterna follow publishes nothing"
        time.sleep(0.1)


@contextmanager
def _gateway(world: Pair, clients: int) -> Iterator[tuple[str, psutil.Process]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--connections", str(clients + 10)]
    with _process(world, "serve", "--region", "eu", *options) as process:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            assert time.monotonic() < end and process.poll() is None, "the gateway doesn't come up"
            time.sleep(0.1)
        yield url, psutil.Process(process.pid)


@contextmanager
def _process(world: Pair, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    log = world.stage.work / f"notify-{arguments[0]}.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "sterna.cli.main", *arguments, "--registry", str(world.stage.registry)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)
