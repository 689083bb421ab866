"""One poller for all clients of a process: follows the branch's head, and adds what is new to the ring."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field

from sterna.errors import CatalogUnreachable, SternaError
from sterna.events.ring import Ready, Ring
from sterna.feed.cursor import Cursor
from sterna.feed.log import EventLog, ShownTable

log = logging.getLogger(__name__)
_PATIENCE = 5.0  # seconds for a look
_BUSY_SECONDS = 30.0  # after a commit the next one may be near


@dataclass(frozen=True)
class TailOptions:
    """How a branch is followed.

    Args:
        quick: seconds between two looks while commits follow one another.
        slow: the same when nothing happens.
        dark: seconds between two looks at most, while the catalog gives no answer.
        ring: events that are kept in memory.
        primed: commits that are read back at the start.
        portion: commits that are read back at once; an end of the gateway waits for no more.
    """

    quick: float = 0.2
    slow: float = 0.5
    dark: float = 5.0
    ring: int = 20_000
    primed: int = 200
    portion: int = 500


@dataclass
class Counts:
    """What the poller has done."""

    looks: int = 0
    failures: int = 0
    commits: int = 0
    events: int = 0
    rewinds: int = 0
    delay: float = 0.0  # seconds from the newest commit to its events, as the clocks have it


@dataclass(frozen=True)
class ShownNow:
    """What the branch shows at one commit."""

    head: str
    tables: tuple[ShownTable, ...]


@dataclass
class BranchTail:
    """A branch that is followed.

    Args:
        source: reads it.
        options: how.
    """

    source: EventLog
    options: TailOptions = TailOptions()
    counts: Counts = field(default_factory=Counts)
    generation: int = 0  # a new one where the branch was rewound: places of older ones mean nothing
    ring: Ring | None = None
    problem: str = ""  # why the catalog can't be read, as a word that gives nothing away
    stopping: bool = False

    def __post_init__(self) -> None:
        self._changed: asyncio.Future[None] | None = None
        self._deepening = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._exhausted = ""
        self._shown = ShownNow("", ())
        self._busy_until = 0.0
        self._following = False
        self._looked = 0

    async def run(self) -> None:
        """Follow the branch until told to stop; an error is told in `problem`, and the next look may go well."""
        pause = self.options.quick
        self._following = True
        while not self.stopping:
            try:
                await self.look()
                self._looked = self.counts.looks
                self.problem, pause = "", self._pause()
            except SternaError as error:
                self._failed(error)
                pause = min(self.options.dark, 2 * max(pause, self.options.slow)) * random.uniform(0.7, 1.0)  # noqa: S311
            except Exception as error:  # noqa: BLE001 - whatever it is, streams stay open and the next look comes
                self._failed(error)
                pause = self.options.dark
            await self._sleep(pause)

    def stop(self) -> None:
        """End the following, and wake everybody who waits."""
        self.stopping = True
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Wait for something new, or the end; tell whether there was any."""
        if self.stopping:
            return True
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                # Others wait for the very same.
                await asyncio.shield(self._changed)
        except TimeoutError:
            return False
        return True

    async def place(self, cursor: Cursor) -> int | None:
        """Return the place after a cursor, read back from the log where the ring doesn't reach so far; None: unknown.

        Raises:
            CatalogError, StoreError: the log can't be read now.
        """
        ring = self.ring
        if ring is None:
            return None
        if ring.place(cursor) is None:
            # Another gateway, which the client comes from, may be a moment ahead.
            await self._look_again()
            ring = self.ring or ring
        if ring.place(cursor) is None and self._goes_deeper(ring, cursor):
            async with self._deepening:
                while (ring := self.ring or ring).place(cursor) is None and self._goes_deeper(ring, cursor):
                    await self._deepen(ring, cursor)
        found = ring.place(cursor)
        if found is None and self.stopping:
            raise CatalogUnreachable("the gateway ends, and the branch isn't read any more")
        return found

    async def shown(self) -> ShownNow:
        """Return what the branch shows at the newest commit whose events are there.

        Raises:
            CatalogError: the catalog can't be read now.
        """
        async with self._reading:
            head = self.ring.head if self.ring else ""
            if head and self._shown.head != head:
                self._shown = ShownNow(head, await asyncio.to_thread(self.source.tables, head))
            return self._shown

    async def _look_again(self) -> None:
        """Wait for a look that begins after this; the poller's next one, so that nobody can make it look more often."""
        begun, end = self.counts.looks, time.monotonic() + _PATIENCE
        while self._following and self._looked <= begun and not self.stopping:
            if self.problem or time.monotonic() > end:
                raise CatalogUnreachable("the branch can't be read now")
            await asyncio.sleep(0.05)

    async def look(self) -> None:
        """Read the branch's head once, and add the events of what is new to the ring.

        Raises:
            CatalogError, StoreError: the branch can't be read now.
        """
        self.counts.looks += 1
        head = await asyncio.to_thread(self.source.head)
        if self.ring is not None and head == self.ring.head:
            return
        if self.ring is not None:
            stretch = await asyncio.to_thread(self.source.since, self.ring.head, head)
            if stretch.whole:
                self._count(self.ring.append(stretch.told), len(stretch.told))
                if stretch.told:
                    self.counts.delay = max(0.0, time.time() - stretch.told[-1].commit.commit_time.timestamp())
                self._busy_until = time.monotonic() + _BUSY_SECONDS
                self._wake()
                return
            self.counts.rewinds += 1
            log.warning("the branch has left %s: clients are told to begin anew", self.ring.head[:12])
        stretch = await asyncio.to_thread(self.source.since, None, head, self.options.primed)
        ring = Ring(stretch.base, self.options.ring)
        ring.append(stretch.told)
        self.ring, self.generation, self._exhausted = ring, self.generation + 1, ""
        self._wake()

    def _goes_deeper(self, ring: Ring, cursor: Cursor) -> bool:
        """Tell whether reading back may find a cursor."""
        return not self.stopping and (self._exhausted != ring.base or ring.lacks(cursor))

    async def _deepen(self, ring: Ring, cursor: Cursor) -> None:
        """Read a portion of the log back towards a cursor; where there is no more, or no room, do so no second time."""
        base, itself = ring.base, cursor.number is not None
        stretch = await asyncio.to_thread(self.source.since, cursor.hash, base, self.options.portion, itself=itself)
        if ring is not self.ring or ring.base != base:
            return
        fits = bool(stretch.told or ring.lacks(cursor)) and ring.prepend(stretch.base, stretch.told)
        if not fits or (not stretch.whole and len(stretch.told) < self.options.portion):
            self._exhausted = ring.base

    def _count(self, added: list[Ready], commits: int) -> None:
        self.counts.commits += commits
        self.counts.events += len(added)

    def _failed(self, error: Exception) -> None:
        self.counts.failures += 1
        kind = type(error).__name__
        if self.problem != kind:
            log.error("the branch can't be followed: %s", error, exc_info=not isinstance(error, SternaError))
        self.problem = kind

    def _pause(self) -> float:
        return self.options.quick if time.monotonic() < self._busy_until else self.options.slow

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping and (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.5))
