"""A worker in a place of its own, for as long as somebody wants: he goes on where another region is the primary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from sterna.errors import SternaError
from sterna.ingest.closing import close_due
from sterna.ingest.consolidate import Consolidated
from sterna.ingest.counts import Counts, count_states, total
from sterna.ingest.heartbeat import STALL
from sterna.ingest.lost import LostLook
from sterna.ingest.region import RegionIngest
from sterna.ingest.shop import open_shop
from sterna.ingest.worker import Worked, Worker
from sterna.replica.region import RegionContext


def work(
    context: RegionContext,
    ingest: RegionIngest,
    done: Callable[[Consolidated], object],
    say: Callable[[str], object],
    seconds: float | None = None,
    *,
    once: bool = False,
) -> Worked:
    """Put closed batches on `main`, and once more those that it has lost.

    Args:
        context: the region.
        ingest: what it takes in.
        done: called with each batch that is settled.
        say: called with a line where one is given back.
        seconds: for how long to look for more; None: for ever.
        once: only what is closed now.

    Raises:
        SternaError: as `open_shop` and `Worker.run`.
    """
    end = None if seconds is None else time.monotonic() + seconds
    settled: tuple[Consolidated, ...] = ()
    while True:
        with context.anew() as fresh, open_shop(fresh, ingest) as shop:
            own = replace(ingest, context=fresh)
            close, stall = (lambda: close_due(ingest.pool, ingest.rules)), STALL + shop.reading.seconds
            worker = Worker(shop, done, say, close, LostLook(own), stall=stall)
            worked = worker.run(None if end is None else max(end - time.monotonic(), 0.0), once=once)
        settled += worked.done
        if not worked.moved:
            return replace(worked, done=settled, counts=_counts(ingest, once=once))
        say(f"{worked.moved} is the primary by now: the worker goes on there")


def _counts(ingest: RegionIngest, *, once: bool) -> Counts | None:
    try:
        return total(count_states(ingest.pool).values())
    except SternaError:
        if once:
            raise
        return None  # what a worker has done for long stays done, and whoever waits sees it by `status`
