"""Turns at a table: commits of one process to the same table come one after another, in the order of their arrival.

Two that were made for the same version of a table can't both be committed: the later one is refused before it writes
anything, and none is overtaken for ever.

A refused commit comes again: its client loads the table, and writes a list for the version that it finds. Until then
the turn stays its own for a moment, so that commits of this region don't overtake it again and again: those of other
regions may still be first. A commit is recognized by the ids of the snapshots that it adds, which Iceberg's Java
library and PyIceberg keep from attempt to attempt.

Each commit that waits takes one of the threads that carry requests out. So a few may wait at one table, and never so
many at all tables that none is left for others.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from sterna.catalog.model import Key, key_name
from sterna.errors import Busy, CommitOutcomeUnknown, RequirementFailed, StaleBase

SnapshotIds = frozenset[int]
NO_SNAPSHOTS: SnapshotIds = frozenset()
_POLL_SECONDS = 1.0  # a reservation may lapse between two looks at the clock
_MAX_ATTEMPTS = 5  # of a client with default settings of either library: it has given up then


@dataclass(eq=False)
class _Ticket:
    """A commit that is at a table, or waits for it.

    Args:
        snapshot_ids: of the snapshots that it adds.
    """

    snapshot_ids: SnapshotIds


@dataclass
class _Line:
    """What is at one table.

    Args:
        working: the commit at work.
        waiting: those that wait, in the order of their arrival.
        reserved_for: the refused commit that comes next, by the ids of its snapshots; none: the first that waits does.
        reserved_until: by the monotonic clock; then the next one comes.
        attempts: refused attempts of that commit.
        was_unused: the last reservation ran out: the next refused commit gets none.
    """

    working: _Ticket | None = None
    waiting: deque[_Ticket] = field(default_factory=deque)
    reserved_for: SnapshotIds = NO_SNAPSHOTS
    reserved_until: float = 0.0
    attempts: int = 0
    was_unused: bool = False

    def reserved_seconds(self) -> float:
        """Return for how long the next turn is still one commit's own."""
        return max(0.0, self.reserved_until - time.monotonic()) if self.reserved_for else 0.0

    def is_next(self, ticket: _Ticket) -> bool:
        """Return whether a commit that waits may begin."""
        if self.working is not None:
            return False
        if self.reserved_seconds():
            return ticket.snapshot_ids == self.reserved_for
        return self.waiting[0] is ticket

    def begin(self, ticket: _Ticket) -> None:
        """Let a commit that waits begin."""
        self.waiting.remove(ticket)
        if ticket.snapshot_ids != self.reserved_for:
            self.was_unused = bool(self.reserved_for)
            self.attempts = 0
        self.working, self.reserved_for = ticket, NO_SNAPSHOTS

    def end(self, refused: bool, seconds: float) -> None:
        """End the commit at work.

        Args:
            refused: it came too late, and is expected again.
            seconds: for which the next turn is its own then.
        """
        snapshot_ids = self.working.snapshot_ids if self.working is not None else NO_SNAPSHOTS
        self.working = None
        self.attempts += 1
        if refused and snapshot_ids and not self.was_unused and self.attempts < _MAX_ATTEMPTS:
            self.reserved_for, self.reserved_until = snapshot_ids, time.monotonic() + seconds
        self.was_unused = False


class Turns:
    """The commits at work at each table, and those that wait.

    Args:
        timeout: seconds that one may wait for its turn.
        reserved: seconds for which a refused commit has the next turn.
        max_waiting: how many may wait at one table.
        max_waiting_at_all: how many may wait at all tables together.
    """

    def __init__(
        self, timeout: float = 30.0, reserved: float = 2.0, max_waiting: int = 8, max_waiting_at_all: int = 24
    ) -> None:
        self._timeout = timeout
        self._reserved = reserved
        self._max_waiting = max_waiting
        self._max_waiting_at_all = max_waiting_at_all
        self._lines: dict[Key, _Line] = defaultdict(_Line)
        self._changed = threading.Condition()

    @contextmanager
    def take(self, keys: Collection[Key], snapshot_ids: SnapshotIds = NO_SNAPSHOTS) -> Iterator[None]:
        """Be the only one at some tables while the block runs.

        Where the block ends with `StaleBase` or `RequirementFailed`, the next turn is the same commit's for a moment.

        Args:
            snapshot_ids: of the snapshots that the commit adds.

        Raises:
            Busy: too many wait already.
            StaleBase: others were at work for too long.
            CommitOutcomeUnknown: the one or the other, and one of them is the same commit, sent before.
        """
        with ExitStack() as stack:
            for key in sorted(keys):  # in one order, so that no two wait for one another
                stack.enter_context(self._take(key, snapshot_ids))
            yield

    def waiting(self, key: Key) -> int:
        """Return how many are at a table: the one at work, and those that wait."""
        with self._changed:
            line = self._lines.get(key)
            return 0 if line is None else len(line.waiting) + (line.working is not None)

    @contextmanager
    def _take(self, key: Key, snapshot_ids: SnapshotIds) -> Iterator[None]:
        self._begin(key, _Ticket(snapshot_ids))
        refused = False
        try:
            yield
        except (RequirementFailed, StaleBase):
            refused = True
            raise
        finally:
            with self._changed:
                self._lines[key].end(refused, self._reserved)
                self._clean(key)

    def _begin(self, key: Key, ticket: _Ticket) -> None:
        end = time.monotonic() + self._timeout
        with self._changed:
            line = self._lines[key]
            line.waiting.append(ticket)
            try:
                if not line.is_next(ticket) and self._is_full(line):
                    raise self._refusal(key, ticket, Busy("too many commits to the table wait", table=key_name(key)))
                while not line.is_next(ticket):
                    seconds = end - time.monotonic()
                    if seconds <= 0:
                        late = StaleBase("other commits to the table take too long", table=key_name(key))
                        raise self._refusal(key, ticket, late)
                    reserved = line.reserved_seconds()
                    self._changed.wait(min(seconds, reserved) if reserved else min(seconds, _POLL_SECONDS))
                line.begin(ticket)
            except BaseException:
                line.waiting.remove(ticket)
                self._clean(key)
                raise

    def _is_full(self, line: _Line) -> bool:
        """Return whether more commits wait than may, the one that has just come included.

        One may wait at each table: others' lines are no reason to refuse it.
        """
        waiting = sum(len(other.waiting) for other in self._lines.values())
        return len(line.waiting) > self._max_waiting or (len(line.waiting) > 1 and waiting > self._max_waiting_at_all)

    def _refusal(self, key: Key, ticket: _Ticket, error: Busy | StaleBase) -> Busy | StaleBase | CommitOutcomeUnknown:
        """Return the error of a commit that gets no turn: a refused one's client may delete its files."""
        line = self._lines[key]
        others = [one for one in (line.working, *line.waiting) if one is not None and one is not ticket]
        if ticket.snapshot_ids and any(one.snapshot_ids & ticket.snapshot_ids for one in others):
            return CommitOutcomeUnknown("the same commit was sent before, and isn't done yet", table=key_name(key))
        return error

    def _clean(self, key: Key) -> None:
        """Forget a table at which nothing is, and let the others look whether it is their turn."""
        line = self._lines[key]
        if line.working is None and not line.waiting and not line.reserved_for:
            del self._lines[key]
        self._changed.notify_all()
