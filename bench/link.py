"""A wide-area link before an endpoint: each byte takes its time, and is counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sterna.servers.process import LOOPBACK

_CHUNK = 64 * 1024


@dataclass
class Link:
    """A proxy on this machine, between a client and a distant endpoint.

    Args:
        port: the endpoint's.
        round_trip: seconds until the first byte of an answer, beyond the endpoint's own.
        bytes_per_second: what all connections together get, in each direction.
        url: the proxy's own address.
        sent: bytes that came from the endpoint.
        received: bytes that went to it.
    """

    port: int
    round_trip: float
    bytes_per_second: float
    url: str = ""
    sent: int = 0
    received: int = 0


class _Lane:
    """One direction of the link: bytes leave one after the other at its speed, and arrive after their way."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._free = 0.0

    def arrival(self, size: int) -> float:
        """Return when so many bytes that are sent now have arrived."""
        now = asyncio.get_running_loop().time()
        self._free = max(self._free, now) + size / self._link.bytes_per_second
        return self._free + self._link.round_trip / 2


@contextmanager
def link_to(port: int, *, round_trip: float, bytes_per_second: float) -> Iterator[Link]:
    """Put a link before an endpoint on this machine.

    Args:
        port: the endpoint's.
        round_trip, bytes_per_second: see `Link`.
    """
    link = Link(port, round_trip, bytes_per_second)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="bench-link")
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(_listen(link), loop).result()
        link.url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        yield link
    finally:
        asyncio.run_coroutine_threadsafe(_end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(link: Link) -> asyncio.Server:
    there, back = _Lane(link), _Lane(link)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, link.port)
            # A connection costs a round trip before the first byte is under way.
            await asyncio.sleep(link.round_trip)
            await asyncio.gather(
                _pump(reader, far_writer, there, link, "received"), _pump(far_reader, writer, back, link, "sent")
            )

    return await asyncio.start_server(serve, LOOPBACK, 0)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: _Lane, link: Link, counter: str
) -> None:
    """Pass bytes on; up to a few of them are under way at once, as on a long cable."""
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)

    async def deliver() -> None:
        loop = asyncio.get_running_loop()
        while (item := await under_way.get())[1]:
            await asyncio.sleep(item[0] - loop.time())
            writer.write(item[1])
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    delivering = asyncio.create_task(deliver())
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            setattr(link, counter, getattr(link, counter) + len(data))
            await under_way.put((lane.arrival(len(data)), data))
    await under_way.put((0.0, b""))
    with suppress(OSError):
        await delivering


async def _end() -> None:
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
