"""When held tables are tried again, where nobody commits to `main` when what holds them is over.

That is a store that was dark for a moment, and a credential that is renewed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sterna.errors import Remedy, remedy_of
from sterna.replica.held import Held, moment

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
        ship_at: the first moment at which a table that waits to be shipped goes on, as its entry says it; "" for none.
        ship_due: the same by that clock.
    """

    keys: frozenset[str] = frozenset()
    pause: float = FIRST_PAUSE
    due: float = math.inf
    ship_at: str = ""
    ship_due: float = math.inf

    @property
    def next(self) -> float:
        """When something is to be tried though nobody commits."""
        return min(self.due, self.ship_due)

    def after_look(self, held: Iterable[Held], now: float) -> Backoff:
        """Return what follows from a look at what a region's replica holds."""
        listed = list(held)
        seen = self._after_look_at_ships(listed, now)
        keys = frozenset(item.key for item in listed if remedy_of(item.kind) is not Remedy.HOLD)
        if keys - self.keys:
            return replace(seen, keys=keys, pause=FIRST_PAUSE, due=min(self.due, now + FIRST_PAUSE))
        return replace(seen, keys=keys) if keys else replace(seen, keys=keys, pause=FIRST_PAUSE, due=math.inf)

    def _after_look_at_ships(self, held: Iterable[Held], now: float) -> Backoff:
        moments = {item.until: at for item in held if (at := moment(item.until)) is not None}
        first = min(moments, key=lambda text: moments[text], default="")
        if first == self.ship_at:
            return self
        left = (moments[first] - datetime.now(UTC)).total_seconds() if first else math.inf
        return replace(self, ship_at=first, ship_due=now + max(0.0, left))

    def after_retry(self, now: float) -> Backoff:
        """Return what follows when they are being tried because it is time."""
        tried = replace(self, pause=min(self.pause * 2, LONGEST_PAUSE)) if now >= self.due else self
        return tried.after_run(now)

    def after_run(self, now: float) -> Backoff:
        """Return what follows when they are being tried anyway, by the run that a new commit starts."""
        ran = replace(self, due=now + self.pause) if self.keys else self
        # What was to be shipped by now, and still waits after this run, is tried again soon.
        return replace(ran, ship_due=now + FIRST_PAUSE) if now >= self.ship_due else ran
