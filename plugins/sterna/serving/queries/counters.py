"""What a service of queries has done, in numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

DURATION_BOUNDS_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Seconds, by which runs are counted; what took longer than the last one is counted beside them."""


@dataclass
class QueryCounts:
    """Numbers since the service began; written from its event loop alone.

    Args:
        cached: answers that were kept from before.
        shared: answers from another request's run.
        unchanged: requests whose client had the answer.
        errors: answers that were none, by status.
        executions: runs that ended, by the place of their seconds in `DURATION_BOUNDS_SECONDS`.
        seconds: all that they took together.
    """

    cached: int = 0
    shared: int = 0
    unchanged: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    executions: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS_SECONDS) + 1))
    seconds: float = 0.0

    def record_run(self, seconds: float) -> None:
        """Count a run that ended, however it did."""
        self.executions[bisect_left(DURATION_BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds
