"""Events as server-sent events: one response that goes on, at the pace of its client."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from sterna.events.subscription import BeginAnew, Bye, Message, Skip, Subscription
from sterna.events.subscription import Send as SendEvents
from sterna.gateway.gateway import Gateway

T = TypeVar("T")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back until it has a few KiB
]
_FIRST_RETRY, _LAST_RETRY = 1_000, 5_000  # milliseconds: who was sent away doesn't come back all at once


class EventStream:
    """An ASGI response.

    Args:
        gateway: counts.
        subscription: what is sent.
        first: what is told at the beginning.
    """

    def __init__(self, gateway: Gateway, subscription: Subscription, first: BeginAnew | None) -> None:
        self._gateway = gateway
        self._subscription = subscription
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes, or is sent away."""
        await while_there(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        await send(start)
        # Who goes before the first event comes, and returns, has missed nothing: it has a cursor from here on.
        known = self._subscription.passed
        # Who is to begin anew has no cursor before it is told to: it would go on from there having read nothing.
        hello = f"retry: {_retry()}\n" + (f"id: {known}\n\n" if known and not self._first else "\n")
        await self._body(send, hello.encode() + (b"".join(self._frames([self._first])) if self._first else b""))
        while True:
            messages = await self._subscription.next(self._gateway.options.heartbeat)
            # An id without data moves the client's cursor past what wasn't for it, and is no event.
            passed = "" if messages else self._subscription.passed
            sign = f"id: {passed}\n\n".encode() if passed not in ("", known) else b":\n\n"
            known = passed or known
            await self._body(send, b"".join(self._frames(messages)) or sign)
            if messages and isinstance(messages[-1], Bye):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return

    def _frames(self, messages: list[Message]) -> Iterator[bytes]:
        counted(self._gateway, "sse", messages)
        for message in messages:
            if isinstance(message, SendEvents):
                yield from (event.frame for event in message.events)
            else:
                name, fields = control(message)
                # The cursor is the id, too: a browser that reconnects by itself goes on from there.
                id = f"id: {fields['cursor']}\n" if "cursor" in fields else ""
                again = f"retry: {_retry()}\n" if isinstance(message, Bye) else ""
                yield f"{id}{again}event: {name}\ndata: {json.dumps(fields)}\n\n".encode()

    async def _body(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something for a client; return its result, None where the client went before it was done.

    Args:
        receive: tells that the client has gone; the request's body is passed over.
        work: what is done. It is ended when the client goes.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        pending = [task for task in (working, leaving) if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def counted(gateway: Gateway, transport: str, messages: list[Message]) -> None:
    """Count what is about to be sent."""
    for message in messages:
        match message:
            case SendEvents(events):
                gateway.metrics.sent[transport] += len(events)
            case Skip(count):
                gateway.metrics.skipped += count
            case BeginAnew(_, reason):
                gateway.metrics.resets[reason] += 1
            case Bye(reason):
                gateway.metrics.closed[reason] += 1


def control(message: BeginAnew | Skip | Bye) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of what is told beside events."""
    match message:
        case BeginAnew(cursor, reason):
            return "reset", {"cursor": cursor, "reason": reason}
        case Skip(count):
            return "skipped", {"count": count}
        case Bye(reason):
            return "bye", {"reason": reason}


def _retry() -> int:
    return random.randint(_FIRST_RETRY, _LAST_RETRY)  # noqa: S311 - no secret


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
