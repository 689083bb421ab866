"""Ending work that runs in another thread once its result isn't wanted any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stop:
    """A request to stop, from any thread; it wakes what the worker waits for at that moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether the work is to stop."""
        return self._is_set

    def set(self) -> None:
        """Request the work to stop."""
        with self._lock:
            self._is_set = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    @contextmanager
    def on_set(self, callback: Callable[[], object]) -> Iterator[None]:
        """Have a function called when the work is to stop while the block runs; at once where it is to stop already.

        Args:
            callback: must not block; it is called from the thread that requests the stop.
        """
        with self._lock:
            self._callbacks.append(callback)
            already_set = self._is_set
        try:
            if already_set:
                callback()
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)
