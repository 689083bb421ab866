"""An operator who pauses and resumes tables while everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from random import Random

from sterna.catalog.model import ICEBERG_TABLE, Content, Key, key_name
from sterna.errors import ReferenceNotFound
from sterna.replication.replica import pauses
from sterna.replication.replica.head import Head, parse_head
from sterna.replication.replica.ids import parse_start_time
from sterna.replication.replica.region import RegionContext
from tests.simulation.main import Main
from tests.simulation.store import Violation

_ACTS = 0.4  # how often the operator does something, by step
_AT_WORK = 3  # one of so many seeds has one


class Pausing:
    """The operator, and what must hold for paused tables: no run that began after the pause changes one.

    Args:
        context: the region, without faults.
        main: what stands on `main`.
        rng: decides everything; of its own, so that nobody else's dice fall otherwise.
        now: the clock.
        tell: writes the trace.
        is_at_work: False: nothing is ever paused.
    """

    def __init__(
        self,
        context: RegionContext,
        main: Main,
        rng: Random,
        now: Callable[[], datetime],
        tell: Callable[[str], None],
        *,
        is_at_work: bool,
    ) -> None:
        self._context, self._main, self._rng, self._now, self._tell = context, main, rng, now, tell
        self._is_at_work = is_at_work
        self._paused: dict[Key, datetime] = {}
        self._shown: dict[Key, Content] = {}
        self._hash = ""

    def go_on(self) -> None:
        """Look at what was published, then pause a table or resume one, or do nothing.

        Raises:
            Violation: a paused table was changed.
        """
        self._check()
        if not self._is_at_work or self._rng.random() >= _ACTS:
            return
        if self._paused and self._rng.random() < 0.3:
            self._resume([self._rng.choice(sorted(self._paused))])
            return
        tables = [key for key, content in self._main.at(self._main.heads[-1]).items() if content.kind == ICEBERG_TABLE]
        if tables:
            key = self._rng.choice(sorted(tables))
            self._tell(f"paused: {key_name(key)}")
            pauses.pause(self._context, [key_name(key)], "because", apply=True)
            self._paused.setdefault(key, self._now())

    def end(self) -> None:
        """Resume all."""
        self._check()
        if self._paused:
            self._resume(sorted(self._paused))

    def _resume(self, keys: list[Key]) -> None:
        self._tell(f"resumed: {', '.join(map(key_name, keys))}")
        pauses.resume(self._context, map(key_name, keys), apply=True)
        for key in keys:
            del self._paused[key]

    def _check(self) -> None:
        catalog, branch = self._context.catalog, self._context.region.replica_branch
        try:
            head = catalog.reference(branch).hash
        except ReferenceNotFound:
            return
        if head == self._hash:
            return
        for commit in reversed(list(catalog.history(branch, operations=False, until=self._hash or None))):
            shown = dict(catalog.entries(branch, commit.hash))
            self._check_commit(parse_head(commit), shown)
            self._shown, self._hash = shown, commit.hash

    def _check_commit(self, head: Head, shown: dict[Key, Content]) -> None:
        for key, since in self._paused.items():
            if self._shown.get(key) == shown.get(key) or head.run_id.startswith("collect-"):
                continue
            if parse_start_time(head.run_id) > since:
                raise Violation(f"pauses: run {head.run_id} changes {key_name(key)}, which is paused since {since}")


def is_at_work(seed: int) -> bool:
    """Whether a seed has an operator who pauses tables."""
    return seed % _AT_WORK == 2
