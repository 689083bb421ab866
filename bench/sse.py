"""Clients that keep a stream of server-sent events open; one process plays all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

_AT_ONCE = 100  # connections that are being opened


@dataclass
class Streams:
    """So many clients of one address.

    Args:
        url: that they request.
        count: how many they are.
    """

    url: str
    count: int
    _seen: asyncio.Queue[tuple[str, float]] = field(default_factory=asyncio.Queue)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        """Open all streams."""
        gate = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._connect(gate) for _ in range(self.count)))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    async def wait_for_events(self, max_wait: float) -> list[tuple[str, float]]:
        """Wait for one event a client; return what it names as `replica_hash`, and when it came."""
        async with asyncio.timeout(max_wait):
            events = [await self._seen.get() for _ in range(self.count)]
        self.forget()
        return events

    def forget(self) -> None:
        """Leave out what came by now."""
        while not self._seen.empty():
            self._seen.get_nowait()

    async def _connect(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            reader, writer = await open_stream(self.url)
        self._tasks.append(asyncio.create_task(self._read(reader, writer)))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            async for line in reader:
                if line.startswith(b"data:"):
                    now = time.time()
                    self._seen.put_nowait((json.loads(line[5:])["data"]["replica_hash"], now))
        writer.close()


async def open_stream(url: str, **headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request a stream, and return it after its headers."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    request = [f"GET {at.path}?{at.query} HTTP/1.1", f"Host: {at.netloc}", "Accept: text/event-stream"]
    request += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join((*request, "", "")).encode())
    assert b" 200 " in await reader.readline()
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer
