"""Events as server-sent events: one response that goes on, at the pace of its client."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from sterna.notifications.subscriptions.subscription import (
    CloseMessage,
    Message,
    ResyncMessage,
    SkipMessage,
    Subscription,
)
from sterna.notifications.subscriptions.subscription import EventsMessage as SendEvents
from sterna.serving.http.context import Gateway
from sterna.serving.http.fanout import Fanout, StreamConnection
from sterna.serving.http.protocols import stream_connection

T = TypeVar("T")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back until it has a few KiB
]
_MIN_RETRY_MS, _MAX_RETRY_MS = 1_000, 5_000  # milliseconds: clients that were disconnected don't return all at once


class EventStream:
    """An ASGI response.

    Args:
        fanout: writes to it while it has every event.
        resync: the first message, if any.
    """

    def __init__(
        self, gateway: Gateway, fanout: Fanout, subscription: Subscription, resync: ResyncMessage | None
    ) -> None:
        self._gateway, self._fanout = gateway, fanout
        self._subscription = subscription
        self._resync = resync

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes, or is sent away."""
        await run_while_connected(receive, self._send_all(send, stream_connection(scope)))

    async def _send_all(self, send: Send, connection: StreamConnection | None) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        await send(start)
        # A client that leaves before the first event, and returns, has missed nothing: it has a cursor from here on.
        sent_cursor = self._subscription.caught_up_cursor
        # A client that has to resync gets no cursor before: it would resume there without having read the state.
        preamble = f"retry: {_random_retry_ms()}\n" + (
            f"id: {sent_cursor}\n\n" if sent_cursor and not self._resync else "\n"
        )
        await self._send_chunk(
            send, preamble.encode() + (b"".join(self._frames([self._resync])) if self._resync else b"")
        )
        while True:
            messages = await self._next_messages(connection)
            # An id without data moves the client's cursor past what wasn't for it, and is no event.
            cursor = "" if messages else self._subscription.caught_up_cursor
            keepalive = f"id: {cursor}\n\n".encode() if cursor not in ("", sent_cursor) else b":\n\n"
            sent_cursor = cursor or sent_cursor
            await self._send_chunk(send, b"".join(self._frames(messages)) or keepalive)
            if messages and isinstance(messages[-1], CloseMessage):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return

    async def _next_messages(self, connection: StreamConnection | None) -> list[Message]:
        seconds = self._gateway.options.heartbeat
        if connection is not None and self._subscription.caught_up_cursor:
            await self._fanout.follow(self._subscription, connection, seconds)
            seconds = 0.0
        return await self._subscription.next_messages(seconds)

    def _frames(self, messages: list[Message]) -> Iterator[bytes]:
        count_messages(self._gateway, "sse", messages)
        for message in messages:
            if isinstance(message, SendEvents):
                yield from (event.frame for event in message.events)
            else:
                name, fields = control_message(message)
                # The cursor is the id, too: a browser that reconnects by itself goes on from there.
                id = f"id: {fields['cursor']}\n" if "cursor" in fields else ""
                retry_line = f"retry: {_random_retry_ms()}\n" if isinstance(message, CloseMessage) else ""
                yield f"{id}{retry_line}event: {name}\ndata: {json.dumps(fields)}\n\n".encode()

    async def _send_chunk(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something for a client; return its result, None where the client went before it was done.

    Args:
        receive: reports the client's disconnect; the request's body is ignored.
        work: what is done. It is ended when the client goes.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        pending = [task for task in (working, leaving) if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def count_messages(gateway: Gateway, transport: str, messages: list[Message]) -> None:
    """Count what is about to be sent."""
    for message in messages:
        match message:
            case SendEvents(events):
                gateway.metrics.sent[transport] += len(events)
            case SkipMessage(count):
                gateway.metrics.skipped += count
            case ResyncMessage(_, reason):
                gateway.metrics.client_resets[reason] += 1
            case CloseMessage(reason):
                gateway.metrics.closed[reason] += 1


def control_message(message: ResyncMessage | SkipMessage | CloseMessage) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of a control message."""
    match message:
        case ResyncMessage(cursor, reason):
            return "reset", {"cursor": cursor, "reason": reason}
        case SkipMessage(count):
            return "skipped", {"count": count}
        case CloseMessage(reason):
            return "bye", {"reason": reason}


def _random_retry_ms() -> int:
    return random.randint(_MIN_RETRY_MS, _MAX_RETRY_MS)  # noqa: S311 - no secret


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
