"""The clean-up: sterna's own `collect`, again and again, with the shortest grace that it takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sterna.maintenance.deletion.model import MIN_GRACE
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.replication.replica.region import RegionContext
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
            report = run_gc(self.context, GcOptions(keep=KEEP, grace=MIN_GRACE, delete=True), self.tell)
            self.tell(f"unreachable {report.unreachable.files}, deleted {report.deleted.files}")
