"""Reads of a location whose bandwidth is shared, at the pace of this process's share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from sterna.storage.bandwidth import BandwidthShare

CHUNK_BYTES: Final = 1 << 20
"""Bytes that are read at once at most, where they are paced."""
_IDLE_SECONDS: Final = 10.0
_STEP_SECONDS: Final = 0.5


class ReadThrottle:
    """What threads wait for before they read; the share is held while one reads, and for a moment after.

    Args:
        clock: seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        share: Callable[[], BandwidthShare],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._open_share, self._clock, self._sleep = share, clock, sleep
        self._share: BandwidthShare | None = None
        self._opening = False
        self._lock = threading.Lock()
        self._requested = self._granted = 0.0
        self._updated = self._last_used = 0.0

    @property
    def pending_bytes(self) -> float:
        """Bytes that are waited for."""
        with self._lock:
            return self._requested - self._granted

    def acquire(self, size: int) -> None:
        """Wait until so many bytes may be read, after all earlier requests."""
        with self._lock:
            self._last_used = self._clock()
            self._requested += size
            target = self._requested
        while (wait_seconds := self._seconds_left(target)) > 0:
            if not self._begin_share():
                self._sleep(min(wait_seconds, _STEP_SECONDS))

    def _begin_share(self) -> bool:
        """Open a share where there is none and no other thread is opening it: takes up to a minute, without the
        lock."""
        with self._lock:
            if self._share is not None or self._opening:
                return False
            self._opening = True
        try:
            share = self._open_share()
            share.begin()
            with self._lock:
                self._share, self._updated = share, self._clock()
        finally:
            self._opening = False
        threading.Thread(target=self._maintain_share, args=(share,), name="sterna-pace", daemon=True).start()
        return True

    def _maintain_share(self, share: BandwidthShare) -> None:
        with share.maintained(lambda rate, fallback_rate, seconds: True):
            while True:
                time.sleep(_STEP_SECONDS)
                with self._lock:
                    if self._granted >= self._requested and self._clock() - self._last_used > _IDLE_SECONDS:
                        self._share = None
                        return

    def _seconds_left(self, target: float) -> float:
        """Return about how many seconds are left until all bytes up to a number are paid for."""
        with self._lock:
            if target <= self._granted:
                return 0.0
            if self._share is None:
                return _STEP_SECONDS
            now = self._clock()
            rate = self._share.rate_at(now)
            # Unused bandwidth is lost: a pause doesn't allow more later.
            self._granted = (
                self._requested if rate is None else min(self._requested, self._granted + rate * (now - self._updated))
            )
            self._updated = now
            return 0.0 if rate is None else (target - self._granted) / rate
