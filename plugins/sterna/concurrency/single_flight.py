"""One run for equal requests, slots shared fairly between readers, and a bounded queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sterna.errors import QueryEnded, QueueFull

R = TypeVar("R")


@dataclass(eq=False)
class Flight(Generic[R]):
    """A request that runs or waits for a slot.

    Args:
        digest: tells the question from others.
        waiting: how many wait for it, by reader, in the order in which they came.
    """

    digest: str
    waiting: Counter[str] = field(default_factory=Counter)
    task: asyncio.Task[R] | None = None
    running: bool = False
    displaced: bool = False

    @property
    def owner(self) -> str:
        """The reader whose quota its slot counts against: of the waiting ones, the first."""
        return next(iter(self.waiting), "")


Work = Callable[[Flight[R]], Coroutine[None, None, R]]


class SingleFlight(Generic[R]):
    """Runs each request once at a time and shares its result; used from one event loop.

    Any reader may use all slots, until others need them: the reader with most gives one up to a reader with fewer. Of
    the waiting readers the one with the fewest running requests is next, or the least recently served one.

    Args:
        max_concurrency: number of slots: requests that run at the same time.
        max_queued: requests that wait beside those.
    """

    def __init__(self, max_concurrency: int, max_queued: int) -> None:
        self._max_pending = max_concurrency + max_queued
        self._free = max_concurrency
        self._queue: list[tuple[Flight[R], asyncio.Future[None]]] = []
        self._in_flight: dict[str, Flight[R]] = {}
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of readers with questions under way
        self._closed = False

    def __contains__(self, digest: str) -> bool:
        return digest in self._in_flight

    @property
    def free(self) -> int:
        """Slots that no question has."""
        return self._free

    @property
    def in_flight_count(self) -> int:
        """Questions that are under way."""
        return len(self._in_flight)

    async def join(self, digest: str, work: Work[R], reader: str = "") -> R:
        """Return a question's answer: from the run that is under way, else from a new one.

        The run is cancelled when its last waiter is.

        Args:
            digest: tells the question from others.

        Raises:
            QueueFull: too many other questions wait.
            QueryEnded: `close` was called.
        """
        if self._closed:
            raise QueryEnded("queries are not answered any more")
        flight = self._in_flight.get(digest)
        if flight is None:
            flight = self._start(digest, work, reader)
        flight.waiting[reader] += 1
        assert flight.task is not None
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.displaced:
                raise QueueFull("the slot was given to a reader with fewer queries") from None
            if flight.task.cancelled():  # and not the requester
                raise QueryEnded("the query was ended with the process") from None
            raise
        finally:
            self._leave(flight, reader)

    @asynccontextmanager
    async def slot(self, flight: Flight[R]) -> AsyncIterator[None]:
        """Have one of the slots while the block runs; waits for one."""
        if self._free and not self._queue:
            self._occupy(flight)
        else:
            turn = asyncio.get_running_loop().create_future()
            entry = flight, turn
            self._queue.append(entry)
            try:
                await turn
            except asyncio.CancelledError:
                if entry in self._queue:
                    self._queue.remove(entry)
                if turn.done() and not turn.cancelled():
                    self._release()  # it came at the same moment
                raise
        flight.running = True
        try:
            yield
        finally:
            flight.running = False
            self._release()

    def close(self) -> None:
        """Cancel all runs; present and later requests fail."""
        self._closed = True
        for flight in self._in_flight.values():
            _cancel(flight)

    def _start(self, digest: str, work: Work[R], reader: str) -> Flight[R]:
        if len(self._in_flight) >= self._max_pending:
            self._displace(reader)
        flight = Flight[R](digest)
        flight.task = asyncio.create_task(work(flight))
        self._in_flight[digest] = flight
        flight.task.add_done_callback(lambda done: self._on_done(flight, done))
        return flight

    def _displace(self, reader: str) -> None:
        """Free a place in the queue: the newest unshared request of the reader with the most of them."""
        owned = Counter(flight.owner for flight in self._in_flight.values())
        candidates = [
            flight
            for flight in self._in_flight.values()
            if owned[flight.owner] > owned[reader] + 1 and len(flight.waiting) == 1 and not flight.running
        ]
        if not candidates:
            raise QueueFull(f"{len(self._in_flight)} queries run or wait already")
        displaced = max(reversed(candidates), key=lambda flight: owned[flight.owner])
        displaced.displaced = True
        self._remove(displaced)
        _cancel(displaced)

    def _release(self) -> None:
        self._free += 1
        running = Counter(flight.owner for flight in self._in_flight.values() if flight.running)
        while self._free and self._queue:
            entry = min(self._queue, key=lambda queued: self._priority(queued[0].owner, running))
            self._queue.remove(entry)
            flight, turn = entry
            if not turn.done():
                self._occupy(flight)
                running[flight.owner] += 1
                turn.set_result(None)

    def _priority(self, reader: str, running: Counter[str]) -> tuple[int, int]:
        return running[reader], self._last_turn.get(reader, 0)

    def _occupy(self, flight: Flight[R]) -> None:
        self._free -= 1
        self._turns += 1
        owners = {pending.owner for pending in self._in_flight.values()}
        self._last_turn = {name: turn for name, turn in self._last_turn.items() if name in owners}
        self._last_turn[flight.owner] = self._turns

    def _leave(self, flight: Flight[R], reader: str) -> None:
        flight.waiting[reader] -= 1
        if not flight.waiting[reader]:
            del flight.waiting[reader]
        if not flight.waiting and flight.task is not None and not flight.task.done():
            self._remove(flight)  # later requests need a run of their own
            _cancel(flight)

    def _remove(self, flight: Flight[R]) -> None:
        if self._in_flight.get(flight.digest) is flight:
            del self._in_flight[flight.digest]

    def _on_done(self, flight: Flight[R], task: asyncio.Task[R]) -> None:
        self._remove(flight)
        if not task.cancelled():
            task.exception()  # retrieved, also without a waiter


def _cancel(flight: Flight[R]) -> None:
    assert flight.task is not None
    flight.task.cancel()
