"""The clean-up: sterna's own `collect`, again and again, with the shortest grace that it takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sterna.cleaning.model import LEAST_GRACE
from sterna.gc.model import GcOptions
from sterna.gc.run import collect
from sterna.replica.region import RegionContext
from tests.simulation.actor import Actor

KEEP = timedelta(hours=2)


class Cleaning(Actor):
    """Whoever cleans the region up.

    Args:
        name, context, tell: as in `Actor`.
        seeded: tells whether there is a replica branch: without one there is nothing to clean.
    """

    def __init__(
        self, name: str, context: RegionContext, tell: Callable[[str], None], seeded: Callable[[], bool]
    ) -> None:
        super().__init__(name, context, tell)
        self._seeded = seeded

    def work(self) -> None:
        """Delete what nothing reaches and nothing has reached for long enough."""
        if self._seeded():
            self.tell("collect")
            found = collect(self.context, GcOptions(keep=KEEP, grace=LEAST_GRACE, delete=True), self.tell)
            self.tell(f"unreachable {found.unreachable.files}, deleted {found.deleted.files}")
