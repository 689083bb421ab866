"""Blocking look-ups in threads that can't be stopped: one that hangs delays its own subject alone.

A thread that waits for a store or catalog runs until that answers or times out. So its slot stays occupied until
then, also without a waiter; and each subject has few slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from sterna.concurrency.single_flight import Flight, SingleFlight

R = TypeVar("R")
_MAX_THREADS: Final = 32
_MAX_PER_SUBJECT: Final = 2


class Lookups(Generic[R]):
    """Deduplicated look-ups: concurrent equal requests share one; used from one event loop.

    Args:
        max_queued: look-ups of one subject that may wait.
    """

    def __init__(self, name: str, max_queued: int) -> None:
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=name)
        self._max_queued = max_queued
        self._flights: dict[str, SingleFlight[R]] = {}
        self._closed = False

    async def run(self, subject: str, digest: str, work: Callable[[], R], reader: str = "") -> R:
        """Return what a look-up finds: one that is under way, or a new one.

        Args:
            subject: what is looked up, such as a table; each has few slots.
            digest: identifies the request within its subject.
            reader: the requester; the waiting one with the fewest running look-ups is next.

        Raises:
            QueueFull: too many wait.
            QueryEnded: `close` was called.
        """
        flights = self._flights.get(subject)
        if flights is None:
            flights = self._flights[subject] = SingleFlight[R](_MAX_PER_SUBJECT, self._max_queued)
            if self._closed:
                flights.close()
        return await flights.join(digest, lambda flight: self._run_in_slot(flights, flight, work), reader)

    def close(self) -> None:
        """Fail all waiters; look-ups that hang end with the process."""
        self._closed = True
        for flights in self._flights.values():
            flights.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run_in_slot(self, flights: SingleFlight[R], flight: Flight[R], work: Callable[[], R]) -> R:
        async with flights.slot(flight):
            future = asyncio.get_running_loop().run_in_executor(self._pool, work)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # there may be no waiter
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                await asyncio.wait({future})  # its thread continues: the slot is free when it ends
                raise
