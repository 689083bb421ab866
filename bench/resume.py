"""Clients that reconnect all at once, and receive every event that they missed."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from pathlib import Path

import httpx

from bench.common import Result, percentile, report, rounded
from bench.notify import gateway
from bench.regions import Pair, pair, report_progress
from bench.sse import open_stream
from bench.writer import NAMESPACE, SmallTable, open_writer
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync

GOAL = 10.0
_TABLES = 50  # that change with each sync: an event a table
_MAX_WAIT_SECONDS = 300.0


def bench(clients: int, events: int, work: Path | None) -> None:
    """Measure so many clients, each of which missed so many events."""
    with pair(work) as world:
        writer = open_writer(world)
        tables = [SmallTable(world, writer, f"t{number}").create() for number in range(min(_TABLES, events))]
        _sync(world)
        with gateway(world, clients) as (url, _):
            cursor = httpx.get(f"{url}/v1/tables").json()["cursor"]
            _make(world, tables, events)
            address = f"{url}/v1/events?tables={NAMESPACE}.*&delivery=all"
            wanted = _missed(url, cursor, events)
            seconds, received = asyncio.run(_come_back(address, cursor, clients, events))
    lost = {ids for ids in received if ids != wanted}
    assert not lost, f"{len(lost)} clients received other events"
    details = {"p50": rounded(percentile(seconds, 0.5)), "slowest": rounded(max(seconds)), "lost": 0}
    sides = {"the last client has everything": (max(seconds),)}
    report(Result("resume", f"{clients} clients, {events} events", GOAL, "at most", "s", sides, max(seconds), details))


def _sync(world: Pair) -> None:
    with world.context() as context:
        sync(context, SyncOptions(), lambda line: None)


def _make(world: Pair, tables: list[SmallTable], events: int) -> None:
    for first in range(0, events, len(tables)):
        for table in tables[: events - first]:
            table.append(1)
        _sync(world)
        report_progress(f"{min(events, first + len(tables))} of {events} events")


def _missed(url: str, cursor: str, events: int) -> str:
    """Return the digest of all missed events, as long polls return them."""
    ids: list[str] = []
    while len(ids) < events:
        answer = httpx.get(f"{url}/v1/events", params={"after": cursor, "wait": 5, "tables": f"{NAMESPACE}.*"}).json()
        assert answer["events"], f"{len(ids)} of {events} events were received"
        ids += [event["id"] for event in answer["events"]]
        cursor = answer["cursor"]
    assert max(Counter(ids).values()) == 1
    return _digest("\n".join(ids).encode())


async def _come_back(url: str, cursor: str, clients: int, events: int) -> tuple[list[float], set[str]]:
    """Reconnect all clients; return when each had every event, and what they received."""
    started = time.monotonic()
    async with asyncio.timeout(_MAX_WAIT_SECONDS):
        outcomes = await asyncio.gather(*(_one(url, cursor, events, started) for _ in range(clients)))
    return [seconds for seconds, _ in outcomes], {ids for _, ids in outcomes}


async def _one(url: str, cursor: str, events: int, started: float) -> tuple[float, str]:
    reader, writer = await open_stream(url, Last_Event_ID=cursor)
    ids: list[bytes] = []
    rest = b""
    while len(ids) < events:
        data = await reader.read(1 << 18)
        assert data, "the stream ended"
        *lines, rest = (rest + data).split(b"\n")
        ids += [line[4:].strip() for line in lines if line.startswith(b"id: ")]
    writer.close()
    return time.monotonic() - started, _digest(b"\n".join(ids))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
