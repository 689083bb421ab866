"""Batches a minute into one table, from one region and from two at once, against Sparks that append."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.common import Result, percentile, report, rounded
from bench.intake import LINES, Door, check_rows, gateways, make_table, waited, working
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer
from sterna.config.environment import temporary_environment
from sterna.servers.spark import catalog_settings, spark_environment

GOAL = 5.0
_RETRIES = {"commit.retry.num-retries": "30"}
_SCHEMA = pa.schema([("id", pa.int64())])
_MAX_WAIT_SECONDS = 600.0
_PER_MINUTE = 60


def bench(minutes: float, work: Path | None) -> None:
    """Measure one region, then two at once, each beside as many Sparks."""
    with pair(work, postgres=True) as world, gateways(world, ("us", "eu")) as doors:
        make_table(world, f"{NAMESPACE}.warm_rival", _SCHEMA)
        with working(world, doors["eu"]):
            one = _ours(world, [doors["eu"]], "one", minutes)
            with working(world, doors["us"]):
                two = _ours(world, list(doors.values()), "two", minutes)
        for regions, ours in ((1, one), (2, two)):
            _report(world, regions, ours, minutes)


def _ours(world: Pair, doors: Sequence[Door], name: str, minutes: float) -> tuple[list[float], int]:
    """Send a row a batch; return how long each took from durable to on `main`, and how many were tried again."""
    table = f"{NAMESPACE}.{name}"
    make_table(world, table, _SCHEMA)
    rows = _shared(minutes, len(doors))

    def send(door: Door, ids: list[int]) -> None:
        content = [(f"{name}-{id}", b'{"id": %d}\n' % id) for id in ids]
        asyncio.run(door.send(table, content, _PER_MINUTE / 60 / len(doors), LINES))

    with ThreadPoolExecutor() as pool:
        list(pool.map(send, doors, rows))
    batches = [
        batch
        for door, ids in zip(doors, rows, strict=True)
        for batch in door.published(table, len(ids), _MAX_WAIT_SECONDS)
    ]
    assert len(batches) == sum(map(len, rows)), "drops were put into one batch"
    check_rows(world, table, len(batches))
    seconds = waited(batches)
    report_progress(f"{name}: {len(batches)} batches, p99 {percentile(seconds, 0.99):.2f} s")
    return seconds, sum(batch.attempts > 1 for batch in batches)


def _report(world: Pair, regions: int, ours: tuple[list[float], int], minutes: float) -> None:
    theirs, failed, lost = _theirs(world, regions, minutes)
    latencies, again = ours
    details: dict[str, Any] = {
        "of ours": "from durable until on main, closing the batch included; none failed, none lost",
        "batches": len(latencies),
        "batches tried again": again,
        "p99": rounded(percentile(latencies, 0.99)),
        "rival, p99": rounded(percentile(theirs, 0.99)),
        "rival, failed": failed,
        "rival, rows acknowledged and not there": lost,
    }
    rate = "60 a minute from one region" if regions == 1 else "30 a minute from each of two regions"
    case = f"{rate}, {minutes:g} min, p99"
    sides = {"sterna": tuple(latencies), f"{regions} Spark, appending": tuple(theirs)}
    report(Result("commits", case, GOAL, "at most", "s", sides, percentile(latencies, 0.99), details))


def _theirs(world: Pair, sparks: int, minutes: float) -> tuple[list[float], int, int]:
    """Append a row a commit; return the seconds of each, how many failed, and how many were lost."""
    table = f"{NAMESPACE}.rival_{sparks}"
    make_table(world, table, _SCHEMA)
    with open_writer(world).load_table(table).transaction() as change:
        change.set_properties(_RETRIES)
    with ExitStack() as stack:
        rows = _shared(minutes, sparks)
        running = [stack.enter_context(_appender(world, table, ids, number, sparks)) for number, ids in enumerate(rows)]
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "ready\n", "a rival doesn't come up"
        with ThreadPoolExecutor() as pool:
            outcomes = [json.loads(text) for text in pool.map(_go, running)]
    failed = sum(len(outcome["failed"]) for outcome in outcomes)
    rows_there = open_writer(world).load_table(table).scan().to_arrow().num_rows
    sent = sum(map(len, rows))
    return [seconds for outcome in outcomes for seconds in outcome["seconds"]], failed, sent - failed - rows_there


@contextmanager
def _appender(world: Pair, table: str, ids: Sequence[int], number: int, sparks: int) -> Iterator[subprocess.Popen[str]]:
    name = "rival"
    settings = catalog_settings(
        name, world.stage.nessie.uri, "main", world.stage.warehouse("us"), world.stage.endpoints["us"]
    )
    job = {
        "settings": settings,
        "table": f"{name}.{table}",
        "warm": f"{name}.{NAMESPACE}.warm_rival",
        "ids": list(ids),
        "every": 60 / _PER_MINUTE * sparks,
    }
    log = world.stage.work / f"appender-{sparks}-{number}.log"
    with (
        temporary_environment(spark_environment(world.stage.work)),
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "bench.appender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _go(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline()


def _shared(minutes: float, writers: int) -> list[list[int]]:
    """Return the ids of each writer."""
    return [list(range(first, round(minutes * _PER_MINUTE), writers)) for first in range(writers)]
