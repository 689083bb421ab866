"""One client's position in the buffer, and what it is sent next, over any transport.

A client that keeps up gets every event. One that falls behind gets the newest of each table and a count of the omitted
events, or is disconnected to resume. One whose position is lost gets a cursor to restart from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.subscriptions.buffer import EventBuffer, SerializedEvent
from sterna.notifications.subscriptions.filters import EventFilter
from sterna.notifications.subscriptions.poller import BranchPoller

Delivery = Literal["newest", "all"]
_MAX_BATCH_EVENTS = 64
BEHIND_SECONDS = 5.0
BEHIND_EVENTS = 100


@dataclass(frozen=True)
class EventsMessage:
    """Events to be sent, oldest first."""

    events: Sequence[SerializedEvent]


@dataclass(frozen=True)
class ResyncMessage:
    """The client's position is lost: it has to read the tables' state, and goes on from a cursor.

    Args:
        cursor: where it goes on.
        reason: `unknown`, `rewound` or `behind`.
    """

    cursor: str
    reason: str


@dataclass(frozen=True)
class SkipMessage:
    """This many events were omitted; newer ones of the same tables follow."""

    count: int


@dataclass(frozen=True)
class CloseMessage:
    """The stream ends here.

    Args:
        reason: `restart`, `behind` or `token`.
    """

    reason: str


Message = EventsMessage | ResyncMessage | SkipMessage | CloseMessage


class Subscription:
    """A position in the buffer, and what is sent from there.

    Args:
        event_filter: which tables' events are sent; also an attribute, `filter`.
        delivery: what happens when the client falls behind.
        expires_at: the token's expiry, as Unix time; None: never.
    """

    def __init__(
        self,
        poller: BranchPoller,
        event_filter: EventFilter,
        delivery: Delivery = "newest",
        expires_at: float | None = None,
    ) -> None:
        self._poller = poller
        self.filter = event_filter
        self._delivery = delivery
        self._expires_at = expires_at
        self._position = 0
        self._generation = -1
        self._caught_up_at = float("inf")  # when the client last had all events; inf: it is still catching up

    async def start(self, cursor: Cursor | None) -> ResyncMessage | None:
        """Begin after a cursor, or at the newest event; return a message if the cursor is unknown.

        Raises:
            CatalogError, StoreError: the log has to be read for the cursor, and can't be now.
        """
        position = None if cursor is None else await self._poller.position(cursor)
        buffer = self._move_to_end()
        if position is not None:
            self._position = position
        return None if cursor is None or position is not None else ResyncMessage(buffer.head, "unknown")

    async def next_messages(self, seconds: float) -> list[Message]:
        """Return what to send next; an empty list if nothing comes within some seconds."""
        deadline = time.monotonic() + seconds
        while True:
            if closing := self._closing_message():
                return [closing]
            buffer = self._poller.buffer
            if buffer is None or self._generation != self._poller.generation:
                return [ResyncMessage(self._move_to_end().head, "rewound")]
            if self._position < buffer.first_position:
                return [ResyncMessage(self._move_to_end().head, "behind")]
            if self._position < buffer.end_position:
                if messages := self._read_messages(buffer):
                    return messages
                await asyncio.sleep(0)  # let other tasks run
                continue
            if not await self._wait(deadline):
                closing = self._closing_message()
                return [closing] if closing else []

    @property
    def cursor(self) -> str:
        """The newest commit of the buffer: the cursor after all events."""
        return "" if self._poller.buffer is None else self._poller.buffer.head

    @property
    def caught_up_cursor(self) -> str:
        """The newest commit if this client has been sent everything up to it, else "", as when the gateway ends."""
        buffer = self._poller.buffer
        if buffer is None or self._poller.stopping or self._generation != self._poller.generation:
            return ""
        return self.cursor if self._position == buffer.end_position else ""

    def seconds_left(self, seconds: float) -> float:
        """Return so many seconds, or those until the token expires where that comes sooner."""
        return seconds if self._expires_at is None else min(seconds, self._expires_at - time.time())

    def mark_caught_up(self) -> None:
        """Note that the client had all events until now."""
        self._caught_up_at = time.monotonic()

    def skip(self, count: int) -> None:
        """Move behind some events that were sent to the client, or aren't for it."""
        self._position += count

    def _read_messages(self, buffer: EventBuffer) -> list[Message]:
        if (
            time.monotonic() - self._caught_up_at > BEHIND_SECONDS
            and buffer.end_position - self._position > BEHIND_EVENTS
        ):
            return self._catch_up(buffer)
        events = buffer.read(self._position, _MAX_BATCH_EVENTS)
        self._position += len(events)
        visible = [event for event in events if self.filter.allows(event.table)]
        return [EventsMessage(visible)] if visible else []

    def _catch_up(self, buffer: EventBuffer) -> list[Message]:
        if self._delivery == "all":
            return [CloseMessage("behind")]
        tables = [table for table in buffer.tables(self._position) if self.filter.allows(table)]
        condensed = buffer.condense(self._position, tables)
        self._position, self._caught_up_at = buffer.end_position, time.monotonic()
        skipped: list[Message] = [SkipMessage(condensed.omitted)] if condensed.omitted else []
        return [*skipped, *([EventsMessage(condensed.newest)] if condensed.newest else [])]

    async def _wait(self, deadline: float) -> bool:
        changed = await self._poller.wait(self.seconds_left(deadline - time.monotonic()))
        self.mark_caught_up()
        return changed

    def _closing_message(self) -> CloseMessage | None:
        if self._poller.stopping:
            return CloseMessage("restart")
        return CloseMessage("token") if self._expires_at is not None and time.time() >= self._expires_at else None

    def _move_to_end(self) -> EventBuffer:
        buffer = self._poller.buffer if self._poller.buffer is not None else EventBuffer("", 0)
        self._position, self._generation, self._caught_up_at = (
            buffer.end_position,
            self._poller.generation,
            float("inf"),
        )
        return buffer
