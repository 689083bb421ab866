"""Reads of a location whose bandwidth is shared, at the pace of this process's share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from sterna.edges.stores.share import Share

CHUNK: Final = 1 << 20
"""Bytes that are read at once at most, where they are paced."""
_IDLE_SECONDS: Final = 10.0
_STEP_SECONDS: Final = 0.5


class Pace:
    """What threads wait for before they read; the share is held while somebody reads, and for a moment after.

    Args:
        share: makes a share.
        clock: seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        share: Callable[[], Share],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._make, self._clock, self._sleep = share, clock, sleep
        self._share: Share | None = None
        self._beginning = False
        self._lock = threading.Lock()
        self._owed = self._paid = 0.0
        self._at = self._used = 0.0

    @property
    def unpaid(self) -> float:
        """Bytes that are waited for."""
        with self._lock:
            return self._owed - self._paid

    def pay(self, size: int) -> None:
        """Wait until so many bytes may be read, after all that were asked for before."""
        with self._lock:
            self._used = self._clock()
            self._owed += size
            mine = self._owed
        while (left := self._left(mine)) > 0:
            if not self._begun():
                self._sleep(min(left, _STEP_SECONDS))

    def _begun(self) -> bool:
        """Begin a share where there is none and nobody does so: it takes up to a minute, and holds no lock."""
        with self._lock:
            if self._share is not None or self._beginning:
                return False
            self._beginning = True
        try:
            share = self._make()
            share.begin()
            with self._lock:
                self._share, self._at = share, self._clock()
        finally:
            self._beginning = False
        threading.Thread(target=self._keep, args=(share,), name="sterna-pace", daemon=True).start()
        return True

    def _keep(self, share: Share) -> None:
        with share.kept(lambda rate, cautious, seconds: True):
            while True:
                time.sleep(_STEP_SECONDS)
                with self._lock:
                    if self._paid >= self._owed and self._clock() - self._used > _IDLE_SECONDS:
                        self._share = None
                        return

    def _left(self, mine: float) -> float:
        """Return about how many seconds are left until all bytes up to a number are paid for."""
        with self._lock:
            if mine <= self._paid:
                return 0.0
            if self._share is None:
                return _STEP_SECONDS
            now = self._clock()
            rate = self._share.rate_at(now)
            # What wasn't used is lost: nobody reads more for having waited.
            self._paid = self._owed if rate is None else min(self._owed, self._paid + rate * (now - self._at))
            self._at = now
            return 0.0 if rate is None else (mine - self._paid) / rate
