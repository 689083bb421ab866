"""When held tables are retried though `main` has no new commit.

What held them may be over by itself: a store that was unavailable for a short time, or an expired credential.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sterna.errors import Remedy, remedy_of
from sterna.replication.replica.held import Held, parse_commit_time

INITIAL_DELAY_SECONDS = 30.0
MAX_DELAY_SECONDS = 600.0


@dataclass(frozen=True)
class Backoff:
    """The next try for tables that are held; the pause before it doubles with each.

    Losing it means to begin with the shortest pause again, and no more.

    Args:
        keys: names of the keys that wait for it.
        delay_seconds: seconds between the last try and the next one.
        retry_at: when, in seconds of a monotonic clock.
        ship_at: the first time at which a table that waits for compaction is published, as in its entry; "" for none.
        ship_retry_at: the same by that clock.
    """

    keys: frozenset[str] = frozenset()
    delay_seconds: float = INITIAL_DELAY_SECONDS
    retry_at: float = math.inf
    ship_at: str = ""
    ship_retry_at: float = math.inf

    @property
    def next_attempt_at(self) -> float:
        """When held tables are to be retried though `main` has no new commit."""
        return min(self.retry_at, self.ship_retry_at)

    def after_poll(self, held: Iterable[Held], now: float) -> Backoff:
        """Return the next state after a poll of a region's held keys."""
        held_keys = list(held)
        polled = self._with_ship_time(held_keys, now)
        keys = frozenset(held_key.key for held_key in held_keys if remedy_of(held_key.kind) is not Remedy.HOLD)
        if keys and keys <= self.keys:
            return replace(polled, keys=keys)
        retry_at = min(self.retry_at, now + INITIAL_DELAY_SECONDS) if keys else math.inf
        return replace(polled, keys=keys, delay_seconds=INITIAL_DELAY_SECONDS, retry_at=retry_at)

    def _with_ship_time(self, held: Iterable[Held], now: float) -> Backoff:
        moments = {
            held_key.until: ship_time
            for held_key in held
            if (ship_time := parse_commit_time(held_key.until)) is not None
        }
        first = min(moments, key=lambda text: moments[text], default="")
        if first == self.ship_at:
            return self
        remaining_seconds = (moments[first] - datetime.now(UTC)).total_seconds() if first else math.inf
        return replace(self, ship_at=first, ship_retry_at=now + max(0.0, remaining_seconds))

    def after_retry(self, now: float) -> Backoff:
        """Return what follows when they are being tried because it is time."""
        delay = min(self.delay_seconds * 2, MAX_DELAY_SECONDS) if now >= self.retry_at else self.delay_seconds
        return replace(self, delay_seconds=delay).after_run(now)

    def after_run(self, now: float) -> Backoff:
        """Return what follows when they are being tried anyway, by the run that a new commit starts."""
        retry_at = now + self.delay_seconds if self.keys else self.retry_at
        # What was to be published by now, and still waits after this run, is tried again soon.
        ship_retry_at = now + INITIAL_DELAY_SECONDS if now >= self.ship_retry_at else self.ship_retry_at
        return replace(self, retry_at=retry_at, ship_retry_at=ship_retry_at)
