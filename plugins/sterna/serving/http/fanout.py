"""Streams that have every event so far: a new one is encoded once, and written to all in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sterna.notifications.subscriptions.buffer import SerializedEvent
from sterna.notifications.subscriptions.subscription import Subscription
from sterna.serving.http.metrics import Metrics

_MAX_EVENTS = 64  # at once; of more each stream takes as many as its client does


class StreamConnection(Protocol):
    """The connection of a stream whose response has begun."""

    def write_chunk(self, chunk: bytes) -> bool:
        """Write a chunk as it is; return False where the client doesn't take it now, and nothing was written."""


@dataclass(frozen=True, eq=False)
class _LiveStream:
    subscription: Subscription
    connection: StreamConnection
    must_read: asyncio.Future[None]

    def release(self) -> None:
        if not self.must_read.done():
            self.must_read.set_result(None)


class Fanout:
    """The streams of a gateway that wait for new events; no task of theirs runs until one has to read by itself."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._groups: dict[int, dict[_LiveStream, None]] = {}  # by the number of their filter

    async def follow(self, subscription: Subscription, connection: StreamConnection, seconds: float) -> None:
        """Have new events written to a stream, for some seconds or until it has to read by itself.

        Args:
            subscription: what the stream has been sent; it has every event so far.
        """
        stream = _LiveStream(subscription, connection, asyncio.get_running_loop().create_future())
        number = subscription.filter.number
        self._groups.setdefault(number, {})[stream] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(subscription.seconds_left(seconds)):
                    await stream.must_read
        finally:
            subscription.mark_caught_up()
            del self._groups[number][stream]
            if not self._groups[number]:
                del self._groups[number]

    def write(self, events: Sequence[SerializedEvent]) -> None:
        """Write events to all streams; none, or too many: each reads by itself.

        Args:
            events: the newest ones of the buffer, which no stream has yet.
        """
        for group in self._groups.values():
            if 0 < len(events) <= _MAX_EVENTS:
                self._write_group(group, events)
            else:
                for stream in group:
                    stream.release()

    def _write_group(self, group: dict[_LiveStream, None], events: Sequence[SerializedEvent]) -> None:
        event_filter = next(iter(group)).subscription.filter
        frames = [event.frame for event in events if event_filter.allows(event.table)]
        chunk = encode_chunk(b"".join(frames)) if frames else b""
        written = 0
        for stream in group:
            # One that was released has its task running: it reads these, too.
            if stream.must_read.done() or (chunk and not stream.connection.write_chunk(chunk)):
                stream.release()
            else:
                stream.subscription.skip(len(events))
                written += 1
        self._metrics.sent["sse"] += written * len(frames)


def encode_chunk(body: bytes) -> bytes:
    """Return part of a body as HTTP/1.1 has it in the transfer coding `chunked` (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(body), body)
