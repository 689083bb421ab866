"""When held tables are tried again, where nobody commits to `main` when what holds them is over.

That is a store that was dark for a moment, and a credential that is renewed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sterna.errors import Remedy, remedy_of
from sterna.replica.held import Held

FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0


@dataclass(frozen=True)
class Backoff:
    """The next try for tables that are held; the pause before it doubles with each.

    Losing it means to begin with the shortest pause again, and no more.

    Args:
        keys: names of the keys that wait for it.
        pause: seconds between the last try and the next one.
        due: when, in seconds of any clock that only goes forward.
    """

    keys: frozenset[str] = frozenset()
    pause: float = FIRST_PAUSE
    due: float = math.inf

    def after_look(self, held: Iterable[Held], now: float) -> Backoff:
        """Return what follows from a look at what a region's replica holds."""
        keys = frozenset(item.key for item in held if remedy_of(item.kind) is not Remedy.HOLD)
        if keys - self.keys:
            return Backoff(keys, FIRST_PAUSE, min(self.due, now + FIRST_PAUSE))
        return replace(self, keys=keys) if keys else Backoff()

    def after_retry(self, now: float) -> Backoff:
        """Return what follows when they are being tried because it is time."""
        return replace(self, pause=min(self.pause * 2, LONGEST_PAUSE)).after_run(now)

    def after_run(self, now: float) -> Backoff:
        """Return what follows when they are being tried anyway, by the run that a new commit starts."""
        return replace(self, due=now + self.pause) if self.keys else self
