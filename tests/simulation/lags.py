"""Whether a region's lag is told as it is: since the oldest commit that it does not serve, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sterna.catalog.model import Key, key_name
from sterna.replication.replica.lag import measure_lags
from sterna.replication.replica.region import RegionContext
from tests.simulation.main import Main
from tests.simulation.store import Violation
from tests.support.doubles.catalog import InMemoryCatalog


class LagCheck:
    """Compares what sterna tells with what `main` and the replica's tables say.

    Args:
        context: the region, without faults.
        catalog: the catalog, without faults.
        main: what stood on `main` at each commit.
    """

    def __init__(self, context: RegionContext, catalog: InMemoryCatalog, main: Main) -> None:
        self._context = context
        self._catalog = catalog
        self._main = main
        self._times: dict[str, datetime] = {}
        self._contact = -1  # the number of the commit that the region stood for at first

    def check(self, now: datetime, watermark: int, shown: Mapping[Key, int]) -> None:
        """Compare.

        Args:
            now: the time.
            watermark: the number of the commit that the replica stands for, -1 for none.
            shown: of each key, the number of the commit whose version the replica shows, -1 for none.

        Raises:
            Violation: less is told than is behind, or more.
        """
        if self._contact < 0:
            self._contact = watermark
        reported = measure_lags(self._context, now)
        wanted = self._since(watermark + 1, now)
        if reported.watermark != wanted:
            raise Violation(f"lag: the watermark's is told as {reported.watermark} and is {wanted}")
        behind = {key: self._behind(key, shown.get(key, watermark), now) for key in self._keys(shown)}
        oldest = max(behind.values(), default=0.0)
        if reported.oldest is None or reported.oldest < oldest:
            late = sorted(key_name(key) for key, lag in behind.items() if lag == oldest)
            raise Violation(f"lag: told as {reported.oldest}, and {late} are behind by {oldest}")
        # A key that came back to what is shown of it is behind by nothing, and held until the next look at it.
        first = max((self._since(self._first(key, at), now) for key, at in shown.items()), default=0.0)
        if reported.oldest > max(wanted, first):
            raise Violation(f"lag: told as {reported.oldest}, and nothing is behind by more than {max(wanted, first)}")

    def _first(self, key: Key, position: int) -> int:
        """The number of the commit that changed a key first, after the one whose version is shown."""
        changed = (number for number in range(position + 1, len(self._main.heads)) if key in self._main.changed[number])
        return next(changed, len(self._main.heads))

    def _keys(self, shown: Mapping[Key, int]) -> set[Key]:
        return {*shown, *self._main.at(self._main.heads[-1])}

    def _behind(self, key: Key, position: int, now: datetime) -> float:
        """For how long a key has been another one on `main` than what is shown of it, as it is to this moment."""
        here = self._location(key, position)
        if self._location(key, len(self._main.heads) - 1) == here:
            return 0.0
        changed = [
            number
            for number in range(position + 1, len(self._main.heads))
            if key in self._main.changed[number] and self._location(key, number) != here
        ]
        if not changed:
            return 0.0
        if position >= 0:
            return self._since(changed[0], now)
        # What was never shown is behind since the region's first contact, however old it was by then; and one that came
        # back after it was gone, and rightly not shown, since it came back.
        gone = max((number for number in range(len(self._main.heads)) if not self._location(key, number)), default=0)
        return self._since(max(gone + 1, changed[0], self._contact), now)

    def _location(self, key: Key, position: int) -> str | None:
        content = self._main.at(self._main.heads[position]).get(key) if position >= 0 else None
        return content.metadata_location if content else None

    def _since(self, position: int, now: datetime) -> float:
        """The seconds since a commit of `main`; 0 where there is none of that number."""
        position = max(position, 1)  # the first one is what was before any commit
        if position >= len(self._main.heads):
            return 0.0
        return (now - self._time(self._main.heads[position])).total_seconds()

    def _time(self, hash: str) -> datetime:
        if hash not in self._times:
            for commit in self._catalog.history("main", operations=False):
                self._times[commit.hash] = commit.commit_time
        return self._times[hash]
