"""Looking off the event loop: in threads of the pages' own, for a limited time, and once for all who ask at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sterna.errors import SternaError, UsageError, printable

_THREADS = 12
_MOST_KEPT = 200


class LookFailed(Exception):
    """A look that brought nothing.

    Args:
        status: what the browser is answered.
        what: why, for people, and nothing secret.
    """

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what


class Looks:
    """Runs looks; the same one that is asked for several times at once runs once.

    Args:
        patience: seconds after which whoever waits is told so. The look goes on, and the next one who asks has it.
        keep: seconds for which an answer is good.
    """

    def __init__(self, patience: float = 20.0, keep: float = 1.0) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sterna-pages")
        self._patience = patience
        self._keep = keep
        self._running: dict[Any, asyncio.Future[Any]] = {}
        self._done: dict[Any, tuple[float, Any]] = {}

    async def look(self, key: Any, function: Callable[[], Any]) -> Any:
        """Return what a function does.

        Args:
            key: names the look.
            function: looks; runs in a thread.

        Raises:
            LookFailed: it failed, or takes too long.
        """
        known = self._done.get(key)
        if known is not None and time.monotonic() - known[0] < self._keep:
            return known[1]
        running = self._running.get(key)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._pool, function)
            self._running[key] = running
            running.add_done_callback(lambda done: self._ended(key, done))
        return await self._waited(running)

    async def once(self, function: Callable[[], Any]) -> Any:
        """Return what a function does that changes something: it is shared with nobody; errors as `look`."""
        return await self._waited(asyncio.get_running_loop().run_in_executor(self._pool, function))

    async def _waited(self, running: asyncio.Future[Any]) -> Any:
        try:
            return await asyncio.wait_for(asyncio.shield(running), self._patience)
        except TimeoutError:
            raise LookFailed(504, f"no answer within {self._patience:.0f} s") from None
        except SternaError as error:
            raise LookFailed(400 if isinstance(error, UsageError) else 503, printable(str(error))) from None

    def _ended(self, key: Any, done: asyncio.Future[Any]) -> None:
        self._running.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            if len(self._done) > _MOST_KEPT:
                self._done.clear()
            self._done[key] = (time.monotonic(), done.result())
