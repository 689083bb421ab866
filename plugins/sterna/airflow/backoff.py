"""When tables that something held which passes, such as a store that was dark for a moment, are tried again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sterna.errors import Remedy, remedy_of
from sterna.replica.held import Held

FIRST = 30.0
LONGEST = 600.0


@dataclass(frozen=True)
class Again:
    """The next try; the pause before it doubles with each. Losing it means to begin with the shortest one again,
    and no more.

    Args:
        keys: names of the keys that wait for it.
        pause: seconds between the last try and the next one.
        due: when, in seconds of any clock that only goes forward.
    """

    keys: frozenset[str] = frozenset()
    pause: float = FIRST
    due: float = math.inf

    def seen(self, held: Iterable[Held], now: float) -> Again:
        """Return what follows from a look at what a region's replica holds."""
        keys = frozenset(item.key for item in held if remedy_of(item.kind) is Remedy.RETRY)
        if keys - self.keys:
            return Again(keys, FIRST, min(self.due, now + FIRST))
        return replace(self, keys=keys) if keys else Again()

    def tried(self, now: float) -> Again:
        """Return what follows when they are being tried because it is time."""
        return replace(self, pause=min(self.pause * 2, LONGEST)).passed(now)

    def passed(self, now: float) -> Again:
        """Return what follows when they are being tried anyway, by the run that a new commit starts."""
        return replace(self, due=now + self.pause) if self.keys else self
