"""How long a consumer waits after a failure: longer with each, and at random, so that not all return at once."""

from __future__ import annotations

import random
from dataclasses import dataclass

_MAX_DOUBLINGS = 16


@dataclass(frozen=True)
class RetryDelay:
    """Delays that double with each consecutive failure.

    Args:
        initial_seconds: the longest delay after a first failure.
        max_seconds: the longest delay of all.
    """

    initial_seconds: float
    max_seconds: float

    def longest(self, failures: int) -> float:
        """Return the longest delay in seconds after this many consecutive failures, 1 or more."""
        return min(self.max_seconds, self.initial_seconds * (1 << min(max(failures, 1) - 1, _MAX_DOUBLINGS)))

    def draw(self, failures: int) -> float:
        """Return a delay in seconds, from half of the longest one on."""
        return self.longest(failures) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
