"""Clients that keep a stream of server-sent events open; one process plays all of them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit

_AT_ONCE = 100  # connections that are being opened


@dataclass
class Streams:
    """So many clients of one address. They parse nothing before all have their event: that would be measured, too.

    Args:
        url: that they request.
        count: how many they are.

    Attributes:
        processor_seconds: of this process, from the first client's event to the last one's, for each wait.
    """

    url: str
    count: int
    processor_seconds: list[float] = field(default_factory=list)
    _seen: list[tuple[bytes, float]] = field(default_factory=list)
    _clients: list[_Client] = field(default_factory=list)
    _complete: asyncio.Event = field(default_factory=asyncio.Event)
    _first: float = 0.0

    async def __aenter__(self) -> Self:
        """Open all streams."""
        gate = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._connect(gate) for _ in range(self.count)))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        for client in self._clients:
            client.transport.close()

    async def wait_for_events(self, max_wait: float) -> list[tuple[str, float]]:
        """Wait for one event a client; return what it names as `replica_hash`, and when it came."""
        async with asyncio.timeout(max_wait):
            await self._complete.wait()
        self.processor_seconds.append(time.process_time() - self._first)
        parsed = cache(_replica_hash)
        events = [(parsed(event), moment) for event, moment in self._seen[: self.count]]
        self.forget()
        return events

    def forget(self) -> None:
        """Leave out what came by now."""
        self._seen.clear()
        self._complete.clear()

    def take(self, event: bytes) -> None:
        """Note an event, and when it came."""
        if not self._seen:
            self._first = time.process_time()
        self._seen.append((event, time.time()))
        if len(self._seen) == self.count:
            self._complete.set()

    async def _connect(self, gate: asyncio.Semaphore) -> None:
        at = urlsplit(self.url)
        async with gate:
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(lambda: _Client(self), str(at.hostname), int(at.port or 80))
            await client.opened
        self._clients.append(client)


class _Client(asyncio.Protocol):
    def __init__(self, streams: Streams) -> None:
        self._streams, self._received = streams, b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(_request(self._streams.url))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self.opened.done():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            assert b" 200 " in head.partition(b"\r\n")[0], head
            self._received = rest
            self.opened.set_result(None)
        *events, self._received = self._received.split(b"\n\n")
        for event in events:
            if b"data:" in event:
                self._streams.take(event)


def _replica_hash(event: bytes) -> str:
    return str(json.loads(event.partition(b"data:")[2])["data"]["replica_hash"])


def _request(url: str, **headers: str) -> bytes:
    at = urlsplit(url)
    request = [f"GET {at.path}?{at.query} HTTP/1.1", f"Host: {at.netloc}", "Accept: text/event-stream"]
    request += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*request, "", "")).encode()


async def open_stream(url: str, **headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request a stream, and return it after its headers."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    writer.write(_request(url, **headers))
    assert b" 200 " in await reader.readline()
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer
