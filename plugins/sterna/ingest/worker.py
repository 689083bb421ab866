"""A worker: takes closed batches, one after another, until there are none, or for a while.

While one batch is published the next one is prepared: read, and written as data files. They are published in the order
in which they were taken, by one thread.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from sterna.errors import EngineError, LeaseLost, OutOfTurn, Remedy, Rewound, SternaError
from sterna.ingest.consolidate import Consolidated, Consolidation, Shop
from sterna.ingest.counts import Counts
from sterna.ingest.heartbeat import BEATS, LEASE, STALL, Sign, beating
from sterna.ingest.lost import Looked
from sterna.ingest.model import Batch

log = logging.getLogger(__name__)
_SOON = 0.3
_LONGEST = 60.0  # seconds between two tries of what time may cure
_STOPPED = 300.0  # of what waits for somebody, who says `sterna ingest run --once` when it is mended
_IDLE = 0.5
_ONCE_SECONDS = 600.0


@dataclass(frozen=True)
class Worked:
    """What a worker has done.

    Args:
        done: batches that he settled.
        failed: batches that he gave back, by id, and why.
        stopped: why of those that wait for somebody.
        counts: what is in which state, whoever gave it back or has it; None: it wasn't counted.
        moved: the region that is the primary by now, where that is why he ended; "": it isn't.
    """

    done: tuple[Consolidated, ...]
    failed: dict[str, str]
    stopped: tuple[str, ...] = ()
    moved: str = ""
    counts: Counts | None = None


class Worker:
    """Works off batches in one region.

    Args:
        shop: where he works.
        done: called with each batch that he settled.
        say: called with a line where one is given back.
        close: closes batches that are due; called before each look.
        lost: looks for what `main` has lost, when it is time to; True: at once.
        sleep: waits.
        clock: seconds.
        lease: seconds for which he has a batch since his last sign of life.
        stall: seconds since his last step forward after which he gives no more signs, for longer than any step takes.
    """

    def __init__(
        self,
        shop: Shop,
        done: Callable[[Consolidated], object],
        say: Callable[[str], object],
        close: Callable[[], object] = lambda: None,
        lost: Callable[[bool], Looked] = lambda urgent: Looked(),
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        lease: float = LEASE,
        stall: float = STALL,
    ) -> None:
        self._shop, self._done, self._say, self._close, self._lost = shop, done, say, close, lost
        self._sleep, self._clock, self._lease, self._stall = sleep, clock, lease, stall
        self._stepped, self._stalled = clock(), False
        self._host, self._pid = socket.gethostname(), os.getpid()
        self.name = f"{self._host}-{self._pid}-{uuid.uuid4().hex[:8]}"
        self._settled: list[Consolidated] = []
        self._failed: dict[str, str] = {}
        self._stopped: dict[str, str] = {}
        self._again: set[str] = set()
        self._moved = ""
        self._mine: dict[str, Consolidation] = {}
        self._published: tuple[Consolidation, Future[Consolidated]] | None = None
        self._rng = Random()  # noqa: S311 - spreads waiting

    def run(self, seconds: float | None = None, *, once: bool = False) -> Worked:
        """Work off what is closed.

        Args:
            seconds: for how long to look for more; None: for ever.
            once: only what is closed now, also what was given back and would be taken later; and what waits for that
                to be published.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker doesn't answer; a worker that lingers waits for it.
        """
        end = self._clock() + (_ONCE_SECONDS if once else float("inf") if seconds is None else seconds)
        queue = self._shop.queue
        if once:
            queue.release()
        try:
            with beating(self.beat, self._lease / BEATS):
                self._turns(end, once=once)
        except BaseException:
            # Whatever ends this process: the next worker needn't wait for the lease.
            with suppress(SternaError):
                for id in self._mine:
                    queue.give_back(id, self.name, "the worker was ended")
            raise
        finally:
            with suppress(SternaError):
                queue.leave(self.name)
            for work in self._mine.values():
                work.close()
        return Worked(tuple(self._settled), dict(self._failed), tuple(self._stopped.values()), self._moved)

    def _step(self) -> None:
        """Note a step forward: in taking batches, or on one of them."""
        self._stepped = self._clock()

    def beat(self) -> None:
        """Give a sign of life, unless nothing gets on: then others take the batches, and this worker counts as dead."""
        still = self._clock() - self._stepped
        if still <= self._stall:
            self._stalled = False
            self._shop.queue.beat(self._sign())
        elif not self._stalled:
            self._stalled = True
            log.error("no step forward for %.0f s: batches %s are free for others", still, ", ".join(self._mine) or "-")

    def _sign(self) -> Sign:
        return Sign(self.name, self._host, self._pid, self._lease, tuple(self._mine))

    def _turns(self, end: float, *, once: bool) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="sterna-ingest-publisher") as publisher:
            while True:
                worked = self._round(publisher, once=once)
                if self._moved or self._clock() >= end or (once and not worked and not self._again):
                    break
                if not worked:
                    self._sleep(_IDLE)
            self._finish()

    def _round(self, publisher: ThreadPoolExecutor, *, once: bool) -> bool:
        self._step()
        try:
            self._close()
            self._look()
            batch = None if self._moved else self._shop.queue.take(self.name, self._lease)
        except SternaError as error:
            if once or error.remedy is not Remedy.RETRY:
                raise
            self._say(str(error))
            return False
        if batch is None:
            return self._finish()
        self._again.discard(batch.id)
        work = self._mine[batch.id] = Consolidation(self._shop, batch, self.name, self._step)
        prepared = self._half(work, work.prepare)
        self._finish()
        if prepared:
            self._published = work, publisher.submit(work.publish)
        return True

    def _look(self, batch: Batch | None = None) -> bool:
        """Look for what `main` has lost; say whether that is why a batch isn't published."""
        looked = self._lost(batch is not None)
        self._moved = self._moved or looked.moved
        for (table, channel), numbers in looked.again.items():
            self._say(f"main has lost batches {numbers[0]} to {numbers[-1]} of {table}, channel {channel}: once more")
        for (table, channel), why in looked.untold.items():
            reason = f"Rewound: {table}, channel {channel}: {why}; say `sterna ingest replay --table … --channel …`"
            self._failed[f"{table} {channel}"] = self._stopped[f"{table} {channel}"] = reason
            self._say(reason)
        return batch is not None and (batch.lane.table, batch.lane.channel) in looked.again

    def _finish(self) -> bool:
        """Wait until the batch that is being published is; say whether there was one."""
        if self._published is None:
            return False
        work, future = self._published
        self._half(work, future.result)
        self._published = None
        return True

    def _half(self, work: Consolidation, do: Callable[[], Consolidated | None]) -> bool:
        """Do half of the work on a batch; say whether it goes on: it is not settled, given back, or somebody else's."""
        batch = work.batch
        try:
            done = do()
        except LeaseLost:
            pass  # somebody else has it, and does all of it
        except SternaError as error:
            self._give_back(batch, error)
        except Exception as error:
            # Nobody foresaw it, and it may be what one tenant sent: it must not end the work for all, each time anew.
            log.exception("batch %s failed", batch.id)
            self._give_back(batch, EngineError(f"nobody foresaw this: {type(error).__name__}; the log has more"))
        else:
            if done is None:
                return True
            self._settle(batch, done)
        del self._mine[batch.id]
        work.close()
        return False

    def _settle(self, batch: Batch, done: Consolidated) -> None:
        self._failed.pop(batch.id, None)
        self._stopped.pop(batch.id, None)
        self._settled.append(done)
        self._done(done)

    def _give_back(self, batch: Batch, error: SternaError) -> None:
        lost = isinstance(error, Rewound) and self._look(batch)
        wait = _SOON if lost else self._wait(batch, error)
        self._shop.queue.give_back(batch.id, self.name, f"{type(error).__name__}: {error}", wait=wait)
        # What comes before it was given back by this worker: it isn't worth waiting for.
        if lost or (isinstance(error, OutOfTurn) and not self._failed):
            self._again.add(batch.id)
            return
        self._failed[batch.id] = f"{type(error).__name__}: {error}"
        if error.remedy is not Remedy.RETRY:
            self._stopped[batch.id] = self._failed[batch.id]
        self._say(f"batch {batch.number} of {batch.lane.table}, channel {batch.lane.channel}, waits: {error}")

    def _wait(self, batch: Batch, error: SternaError) -> float:
        if isinstance(error, OutOfTurn):
            return _SOON * self._rng.uniform(0.5, 1.5)
        if error.remedy is Remedy.RETRY:
            return float(min(2.0 ** min(batch.attempts, 10), _LONGEST))
        return _STOPPED
