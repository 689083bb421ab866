"""Reads off the event loop: in the pages' own threads, for a limited time, and shared by concurrent requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sterna.errors import SternaError, UsageError, printable

_MAX_THREADS = 12
_MAX_CACHED_READS = 200


class ReadFailed(Exception):
    """A failed read.

    Args:
        status: the HTTP status for the browser.
        message: the reason, without secrets.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class SingleFlightReads:
    """Runs reads; concurrent requests for the same one share a run.

    Args:
        max_wait: seconds after which a waiting request fails. The read continues, for the next request.
        ttl: seconds for which a result is reused.
    """

    def __init__(self, max_wait: float = 20.0, ttl: float = 1.0) -> None:
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="sterna-pages")
        self._max_wait = max_wait
        self._ttl = ttl
        self._running: dict[Any, asyncio.Future[Any]] = {}
        self._cached: dict[Any, tuple[float, Any]] = {}

    async def read(self, key: Any, function: Callable[[], Any]) -> Any:
        """Return what a function does.

        Args:
            function: reads; runs in a thread.

        Raises:
            ReadFailed: it failed, or takes too long.
        """
        cached = self._cached.get(key)
        if cached is not None and time.monotonic() - cached[0] < self._ttl:
            return cached[1]
        running = self._running.get(key)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._pool, function)
            self._running[key] = running
            running.add_done_callback(lambda future: self._on_done(key, future))
        return await self._wait_for(running)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function that makes changes, and is never shared; errors as `read`."""
        return await self._wait_for(asyncio.get_running_loop().run_in_executor(self._pool, function))

    async def _wait_for(self, future: asyncio.Future[Any]) -> Any:
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._max_wait)
        except TimeoutError:
            raise ReadFailed(504, f"no answer within {self._max_wait:.0f} s") from None
        except SternaError as error:
            raise ReadFailed(400 if isinstance(error, UsageError) else 503, printable(str(error))) from None

    def _on_done(self, key: Any, future: asyncio.Future[Any]) -> None:
        self._running.pop(key, None)
        if not future.cancelled() and future.exception() is None:
            if len(self._cached) > _MAX_CACHED_READS:
                self._cached.clear()
            self._cached[key] = (time.monotonic(), future.result())
