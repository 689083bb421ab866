"""One run for all who ask the same, places shared between readers, and a queue that ends."""

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
    """A question that is worked on.

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
        """The reader to whom its place counts: of those who wait, the one who came first."""
        return next(iter(self.waiting), "")


Work = Callable[[Flight[R]], Coroutine[None, None, R]]


class Flights(Generic[R]):
    """Works on each question once at a time, whoever asks it meanwhile; used from one event loop.

    All places are there for any reader, until others need them: who has most gives one up to who has fewer, and of
    those who wait the one with fewest questions at work comes next, or whose turn was longest ago.

    Args:
        at_once: questions that have one of the slots at the same time.
        queue: questions beside those.
    """

    def __init__(self, at_once: int, queue: int) -> None:
        self._most = at_once + queue
        self._free = at_once
        self._queue: list[tuple[Flight[R], asyncio.Future[None]]] = []
        self._under_way: dict[str, Flight[R]] = {}
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of readers with questions under way
        self._closed = False

    def __contains__(self, digest: str) -> bool:
        return digest in self._under_way

    @property
    def free(self) -> int:
        """Slots that no question has."""
        return self._free

    @property
    def count(self) -> int:
        """Questions that are under way."""
        return len(self._under_way)

    async def join(self, digest: str, work: Work[R], reader: str = "") -> R:
        """Return a question's answer: from the run that is under way, else from a new one.

        The run is cancelled when the last one who waits for it goes away.

        Args:
            digest: tells the question from others.
            work: answers it.
            reader: who asks.

        Raises:
            QueueFull: too many other questions wait.
            QueryEnded: `close` was called.
        """
        if self._closed:
            raise QueryEnded("queries are not answered any more")
        flight = self._under_way.get(digest)
        if flight is None:
            flight = self._begin(digest, work, reader)
        flight.waiting[reader] += 1
        assert flight.task is not None
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.displaced:
                raise QueueFull("the place was needed for somebody with fewer queries") from None
            if flight.task.cancelled():  # and not the one who asks
                raise QueryEnded("the query was ended with the process") from None
            raise
        finally:
            self._leave(flight, reader)

    @asynccontextmanager
    async def slot(self, flight: Flight[R]) -> AsyncIterator[None]:
        """Have one of the slots while the block runs; waits for one."""
        if self._free and not self._queue:
            self._take(flight)
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
        """End what is under way; all who wait for it are told so, and whoever asks from now on."""
        self._closed = True
        for flight in self._under_way.values():
            _cancel(flight)

    def _begin(self, digest: str, work: Work[R], reader: str) -> Flight[R]:
        if len(self._under_way) >= self._most:
            self._displace(reader)
        flight = Flight[R](digest)
        flight.task = asyncio.create_task(work(flight))
        self._under_way[digest] = flight
        flight.task.add_done_callback(lambda done: self._ended(flight, done))
        return flight

    def _displace(self, reader: str) -> None:
        """Free a place for a reader: the newest of whoever has most that only waits, and that nobody else waits for."""
        places = Counter(flight.owner for flight in self._under_way.values())
        greedy = [
            flight
            for flight in self._under_way.values()
            if places[flight.owner] > places[reader] + 1 and len(flight.waiting) == 1 and not flight.running
        ]
        if not greedy:
            raise QueueFull(f"{len(self._under_way)} queries run or wait already")
        chosen = max(reversed(greedy), key=lambda flight: places[flight.owner])
        chosen.displaced = True
        self._forget(chosen)
        _cancel(chosen)

    def _release(self) -> None:
        self._free += 1
        running = Counter(flight.owner for flight in self._under_way.values() if flight.running)
        while self._free and self._queue:
            entry = min(self._queue, key=lambda each: self._before(each[0].owner, running))
            self._queue.remove(entry)
            flight, turn = entry
            if not turn.done():
                self._take(flight)
                running[flight.owner] += 1
                turn.set_result(None)

    def _before(self, reader: str, running: Counter[str]) -> tuple[int, int]:
        return running[reader], self._last_turn.get(reader, 0)

    def _take(self, flight: Flight[R]) -> None:
        self._free -= 1
        self._turns += 1
        owners = {each.owner for each in self._under_way.values()}
        self._last_turn = {name: turn for name, turn in self._last_turn.items() if name in owners}
        self._last_turn[flight.owner] = self._turns

    def _leave(self, flight: Flight[R], reader: str) -> None:
        flight.waiting[reader] -= 1
        if not flight.waiting[reader]:
            del flight.waiting[reader]
        if not flight.waiting and flight.task is not None and not flight.task.done():
            self._forget(flight)  # whoever asks from now on needs a run of his own
            _cancel(flight)

    def _forget(self, flight: Flight[R]) -> None:
        if self._under_way.get(flight.digest) is flight:
            del self._under_way[flight.digest]

    def _ended(self, flight: Flight[R], task: asyncio.Task[R]) -> None:
        self._forget(flight)
        if not task.cancelled():
            task.exception()  # looked at, also where everybody who waited is gone


def _cancel(flight: Flight[R]) -> None:
    assert flight.task is not None
    flight.task.cancel()
