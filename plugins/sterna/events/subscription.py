"""One client's way through the ring: what it is sent next, whatever carries it.

A client that keeps up gets every event. One that falls behind gets the newest of each table and a count of what was
left out, or is sent away to resume. One whose place is gone is told where to begin anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sterna.events.ring import Ready, Ring
from sterna.events.tail import BranchTail
from sterna.events.views import View
from sterna.feed.cursor import Cursor

Delivery = Literal["newest", "all"]
_AT_ONCE = 64
BEHIND_SECONDS = 5.0
BEHIND_EVENTS = 100


@dataclass(frozen=True)
class Send:
    """Events to be sent, oldest first."""

    events: Sequence[Ready]


@dataclass(frozen=True)
class BeginAnew:
    """The client's place is gone: it is to read what tables show, and goes on from a cursor.

    Args:
        cursor: where it goes on.
        reason: `unknown`, `rewound` or `behind`.
    """

    cursor: str
    reason: str


@dataclass(frozen=True)
class Skip:
    """So many events were left out, for newer ones of the same tables follow."""

    count: int


@dataclass(frozen=True)
class Bye:
    """The stream ends here.

    Args:
        reason: `restart`, `behind` or `token`.
    """

    reason: str


Message = Send | BeginAnew | Skip | Bye


class Subscription:
    """A place in the ring, and what is sent from there.

    Args:
        tail: follows the branch.
        view: which tables are told.
        delivery: what happens when the client falls behind.
        ends: when the token ends, as Unix time; None: never.
    """

    def __init__(self, tail: BranchTail, view: View, delivery: Delivery = "newest", ends: float | None = None) -> None:
        self._tail = tail
        self._view = view
        self._delivery = delivery
        self._ends = ends
        self._place = 0
        self._generation = -1
        self._at_end = float("inf")  # when it had everything; a client that catches up isn't behind

    async def start(self, cursor: Cursor | None) -> BeginAnew | None:
        """Begin after a cursor, or at the newest event; return what to tell where the cursor is unknown.

        Raises:
            CatalogError, StoreError: the log has to be read for it, and can't be now.
        """
        place = None if cursor is None else await self._tail.place(cursor)
        ring = self._to_end()
        if place is not None:
            self._place = place
        return None if cursor is None or place is not None else BeginAnew(ring.head, "unknown")

    async def next(self, seconds: float) -> list[Message]:
        """Wait for what is to be sent next; nothing within some seconds: an empty list."""
        deadline = time.monotonic() + seconds
        while True:
            if said := self._ended():
                return [said]
            ring = self._tail.ring
            if ring is None or self._generation != self._tail.generation:
                return [BeginAnew(self._to_end().head, "rewound")]
            if self._place < ring.first:
                return [BeginAnew(self._to_end().head, "behind")]
            if self._place < ring.end:
                if sent := self._take(ring):
                    return sent
                await asyncio.sleep(0)  # others have their turn
                continue
            if not await self._wait(deadline):
                said = self._ended()
                return [said] if said else []

    @property
    def cursor(self) -> str:
        """The newest commit of the ring: where somebody goes on who has everything."""
        return self._tail.ring.head if self._tail.ring else ""

    @property
    def passed(self) -> str:
        """The newest commit, where this client has everything that was for it; else ""."""
        ring = self._tail.ring
        here = ring is not None and self._generation == self._tail.generation and self._place == ring.end
        return self.cursor if here else ""

    def _take(self, ring: Ring) -> list[Message]:
        if time.monotonic() - self._at_end > BEHIND_SECONDS and ring.end - self._place > BEHIND_EVENTS:
            return self._catch_up(ring)
        events = ring.read(self._place, _AT_ONCE)
        self._place += len(events)
        shown = [event for event in events if self._view.shows(event.table)]
        return [Send(shown)] if shown else []

    def _catch_up(self, ring: Ring) -> list[Message]:
        if self._delivery == "all":
            return [Bye("behind")]
        tables = [table for table in ring.tables(self._place) if self._view.shows(table)]
        newest = ring.newest(self._place, tables)
        self._place, self._at_end = ring.end, time.monotonic()
        skipped: list[Message] = [Skip(newest.count)] if newest.count else []
        return [*skipped, *([Send(newest.left)] if newest.left else [])]

    async def _wait(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if self._ends is not None:
            left = min(left, self._ends - time.time())
        changed = await self._tail.wait(left)
        self._at_end = time.monotonic()
        return changed

    def _ended(self) -> Bye | None:
        if self._tail.stopping:
            return Bye("restart")
        return Bye("token") if self._ends is not None and time.time() >= self._ends else None

    def _to_end(self) -> Ring:
        ring = self._tail.ring or Ring("", 0)
        self._place, self._generation, self._at_end = ring.end, self._tail.generation, float("inf")
        return ring
