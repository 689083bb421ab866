"""One run for all who ask the same, answers that are kept, and a queue that ends."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine

from sterna.errors import QueryEnded, QueueFull


class KeptAnswers:
    """The newest answers, up to a number of bytes.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return an answer, None where it isn't kept."""
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)

    def put(self, digest: str, answer: bytes) -> None:
        """Keep an answer, and let go of those that nobody asked for for the longest time."""
        if len(answer) > self._limit:
            return
        self._size += len(answer) - len(self._kept.pop(digest, b""))
        self._kept[digest] = answer
        while self._size > self._limit:
            self._size -= len(self._kept.popitem(last=False)[1])


class Flights:
    """Works on each question once at a time, whoever asks it meanwhile; used from one event loop.

    Args:
        at_once: questions that have one of the `slots` at the same time.
        queue: questions beside those.
    """

    def __init__(self, at_once: int, queue: int) -> None:
        self._most = at_once + queue
        self.slots = asyncio.Semaphore(at_once)
        self._under_way: dict[str, asyncio.Task[bytes]] = {}
        self._closed = False

    def __contains__(self, digest: str) -> bool:
        return digest in self._under_way

    @property
    def count(self) -> int:
        """Questions that are under way."""
        return len(self._under_way)

    async def join(self, digest: str, work: Callable[[], Coroutine[None, None, bytes]]) -> bytes:
        """Return a question's answer: from the run that is under way, else from a new one.

        A run goes on when somebody who waits for it goes away: others may wait, too.

        Raises:
            QueueFull: too many other questions wait.
            QueryEnded: `close` was called.
        """
        if self._closed:
            raise QueryEnded("queries are not answered any more")
        task = self._under_way.get(digest)
        if task is None:
            if len(self._under_way) >= self._most:
                raise QueueFull(f"{len(self._under_way)} queries run or wait already")
            task = asyncio.create_task(work())
            self._under_way[digest] = task
            task.add_done_callback(lambda done: self._ended(digest, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # and not the one who asks
                raise QueryEnded("the query was ended with the process") from None
            raise

    def close(self) -> None:
        """End what is under way; all who wait for it are told so, and whoever asks from now on."""
        self._closed = True
        for task in self._under_way.values():
            task.cancel()

    def _ended(self, digest: str, task: asyncio.Task[bytes]) -> None:
        del self._under_way[digest]
        if not task.cancelled():
            task.exception()  # looked at, also where everybody who waited is gone
