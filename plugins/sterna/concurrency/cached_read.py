"""A value that is read once for several readers, and again once it is old."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedRead(Generic[T]):
    """Reads a value, and returns it to all who call within some seconds; errors are not kept. For several threads.

    Args:
        read: reads the value.
        seconds: how long a value is reused.
    """

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._lock = Lock()
        self._cached: tuple[float, T] | None = None

    def __call__(self) -> T:
        """Return the value.

        Raises:
            SternaError: as `read`.
        """
        with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= self._seconds:
                self._cached = time.monotonic(), self._read()
            return self._cached[1]
