"""One row: from when it is accepted until it is on `main`, and until the other region's replica serves it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pyarrow as pa

from bench.common import Result, percentile, report, rounded
from bench.intake import LINES, Door, check_rows, gateways, make_table, working
from bench.notify import process
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.replication.replica.head import read_head

GOAL_MAIN, GOAL_REPLICA = 5.0, 1.0
_TABLE = f"{NAMESPACE}.arrive"
_LOOK = 0.05
_WARM_UP = 2
_MAX_WAIT_SECONDS = 120.0


def bench(rows: int, work: Path | None) -> None:
    """Post so many rows in us, one after the other; `sterna follow` runs in eu."""
    with pair(work, postgres=True) as world, gateways(world, ("us",)) as doors:
        make_table(world, _TABLE, pa.schema([("id", pa.int64())]))
        with working(world, doors["us"]), process(world, "follow", "--region", "eu"):
            with world.context() as context:
                branch = context.region.replica_branch
            latencies = [_one(world, doors["us"], branch, id) for id in range(rows + _WARM_UP)][_WARM_UP:]
        check_rows(world, _TABLE, rows + _WARM_UP)
    main, replica = (tuple(values) for values in zip(*latencies, strict=True))
    _report("accepted, until on main, p50", GOAL_MAIN, main)
    _report("on main, until eu serves it, with follow, p50", GOAL_REPLICA, replica)


def _one(world: Pair, door: Door, branch: str, id: int) -> tuple[float, float]:
    """Post one row; return the seconds until it is on `main`, and from then until eu serves it."""
    asyncio.run(door.send(_TABLE, [(str(id), b'{"id": %d}\n' % id)], kind=LINES))
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    seen, commit = 0.0, ""
    while not commit or not seen:
        assert time.monotonic() < deadline, f"row {id} doesn't arrive"
        newest = door.batches(_TABLE)[:1]
        if newest and newest[0].number == id + 1 and newest[0].settled is not None:
            commit = world.catalog.reference(SOURCE_BRANCH).hash
        if commit and read_head(world.catalog, branch).watermark == commit:
            seen = time.time()
        time.sleep(_LOOK)
    (batch,) = (batch for batch in door.batches(_TABLE) if batch.number == id + 1)
    assert batch.settled is not None
    main = (batch.settled - batch.oldest).total_seconds()
    report_progress(f"row {id}: {main:.2f} s, {seen - batch.settled.timestamp():.2f} s")
    return main, max(seen - batch.settled.timestamp(), 0.0)


def _report(case: str, goal: float, latencies: tuple[float, ...]) -> None:
    details = {
        "p50": rounded(percentile(latencies, 0.5)),
        "p99": rounded(percentile(latencies, 0.99)),
        "look every": _LOOK,
    }
    report(Result("arrive", case, goal, "at most", "s", {"sterna": latencies}, percentile(latencies, 0.5), details))
