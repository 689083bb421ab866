"""Turns at a table: commits of one process to the same table come one after another, in the order of their arrival.

Two that were made for the same version of a table can't both be committed: the later one is refused before it writes
anything, and none is overtaken for ever.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

from sterna.catalog.model import Key, key_name
from sterna.errors import StaleBase


class Turns:
    """The commits at work at each table, and those that wait.

    Args:
        timeout: seconds that one may wait for its turn.
    """

    def __init__(self, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._waiting: dict[Key, deque[object]] = defaultdict(deque)
        self._changed = threading.Condition()

    @contextmanager
    def take(self, keys: Collection[Key]) -> Iterator[None]:
        """Be the only one at some tables while the block runs.

        Raises:
            StaleBase: others were at work for too long.
        """
        with ExitStack() as stack:
            for key in sorted(keys):  # in one order, so that no two wait for one another
                stack.enter_context(self._take(key))
            yield

    def waiting(self, key: Key) -> int:
        """Return how many are at a table: the one at work, and those that wait."""
        with self._changed:
            return len(self._waiting.get(key, ()))

    @contextmanager
    def _take(self, key: Key) -> Iterator[None]:
        ticket, end = object(), time.monotonic() + self._timeout
        with self._changed:
            queue = self._waiting[key]
            queue.append(ticket)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: queue[0] is ticket, timeout=end - time.monotonic()):
                    raise StaleBase("other commits to the table take too long", table=key_name(key))
            yield
        finally:
            with self._changed:
                queue.remove(ticket)
                if not queue:
                    self._waiting.pop(key, None)
                self._changed.notify_all()
