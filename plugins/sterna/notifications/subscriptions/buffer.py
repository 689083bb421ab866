"""The buffer of serialized events that all connections of a process read from; a connection is a position in it.

Positions increase for ever, so that removing old events moves no connection. The buffer holds a part of the log without
a gap: every cursor within it is resolved here, without the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.event import HELD, RELEASED, Event
from sterna.notifications.change_log.log import CommitEvents

# One of this many parts is removed at a time, since a removal copies the rest. `prepend` leaves as much space free:
# else the next event would remove what was just added, and the client that resumed there.
_TRIM_DIVISOR = 10


@dataclass(frozen=True, slots=True)
class SerializedEvent:
    """An event, encoded once for all connections.

    Args:
        id: the cursor after the event.
        table: the key name.
        is_state: whether the event is about being held or released, not about a snapshot.
        frame: the event in the format of server-sent events.
        start: where in the frame its JSON begins.
    """

    id: str
    table: str
    is_state: bool
    frame: bytes
    start: int

    @property
    def text(self) -> bytes:
        """The event as JSON."""
        return self.frame[self.start : -2]


def serialize_event(event: Event) -> SerializedEvent:
    """Return an encoded event. Its JSON has no line breaks, so that one line of data is enough."""
    start = f"id: {event.id}\ndata: ".encode()
    return SerializedEvent(
        event.id, event.table, event.type in (HELD, RELEASED), start + event.text + b"\n\n", len(start)
    )


@dataclass(frozen=True)
class CondensedEvents:
    """Many events, reduced to the newest ones.

    Args:
        newest: the newest of each table.
        omitted: how many events were left out.
    """

    newest: tuple[SerializedEvent, ...]
    omitted: int


class EventBuffer:
    """A part of the log, without a gap.

    Args:
        base: the commit before the first one.
        max_events: the size; the events of one commit stay together. `prepend` adds at most this many commits.
    """

    def __init__(self, base: str, max_events: int) -> None:
        self._max_events = max_events
        self._events: list[SerializedEvent] = []
        # By commit, oldest first: its first position and its number of events. None: not counted yet, since they are
        # before the buffer.
        self._positions: dict[str, tuple[int, int | None]] = {base: (0, None)}
        self._renumbered: set[str] = set()  # commits
        self._first_position = 0
        self.base = base
        self.head = base

    def __len__(self) -> int:
        return len(self._events)

    @property
    def first_position(self) -> int:
        """The position of the oldest event."""
        return self._first_position

    @property
    def end_position(self) -> int:
        """The position after the newest event."""
        return self._first_position + len(self._events)

    def append(self, commits: Iterable[CommitEvents]) -> list[SerializedEvent]:
        """Add commits at the new end, oldest first; return their events."""
        added: list[SerializedEvent] = []
        for commit_events in commits:
            self._positions[commit_events.commit.hash] = (self.end_position + len(added), len(commit_events.events))
            if commit_events.renumbered:
                self._renumbered.add(commit_events.commit.hash)
            added += map(serialize_event, commit_events.events)
            self.head = commit_events.commit.hash
        self._events += added
        self._trim()
        return added

    def prepend(self, base: str, commits: Sequence[CommitEvents]) -> bool:
        """Add commits at the old end, the newest ones that fit; return whether all fit.

        Args:
            base: the commit before them.
            commits: the commits, oldest first; the newest one is the buffer's base. Empty: nothing is before it.
        """
        unfitting, position = self._count_unfitting(commits), self._first_position
        positions: list[tuple[str, tuple[int, int | None]]] = []
        for commit_events in reversed(commits[max(0, unfitting - 1) :]):
            position -= len(commit_events.events)
            positions.append((commit_events.commit.hash, (position, len(commit_events.events))))
            if commit_events.renumbered:
                self._renumbered.add(commit_events.commit.hash)
        if not commits:
            positions = [(self.base, (self._first_position, 0))]
        elif not unfitting:
            positions.append((base, (position, None)))
        # Of what doesn't fit the newest commit was counted: a client that has all of its events can resume here.
        self._positions = dict(reversed(positions)) | {
            key: kept_position for key, kept_position in self._positions.items() if key != self.base
        }
        added = [serialize_event(event) for commit_events in commits[unfitting:] for event in commit_events.events]
        self._events[:0] = added
        self._first_position -= len(added)
        self.base = positions[-1][0]
        return not unfitting

    def position(self, cursor: Cursor) -> int | None:
        """Return the position after a cursor, None where the cursor is not in the buffer."""
        if cursor.hash not in self._positions or self.is_uncounted(cursor) or self.is_renumbered(cursor):
            return None
        start, count = self._positions[cursor.hash]
        taken = (count or 0) if cursor.number is None else cursor.number
        return start + taken if taken <= (count or 0) and start + taken >= self._first_position else None

    def is_renumbered(self, cursor: Cursor) -> bool:
        """Return whether the events of a cursor's commit have other numbers by now."""
        return bool(cursor.number) and cursor.hash in self._renumbered

    def is_uncounted(self, cursor: Cursor) -> bool:
        """Return whether a cursor is an event of the base, whose events weren't counted yet."""
        return cursor.number is not None and cursor.hash == self.base and self._positions[self.base][1] is None

    def read(self, position: int, max_events: int) -> Sequence[SerializedEvent]:
        """Return at most so many events from a position on."""
        offset = position - self._first_position
        return self._events[offset : offset + max_events]

    def condense(self, position: int, tables: Iterable[str]) -> CondensedEvents:
        """Return the newest events of some tables from a position on: for each, of its state and of its snapshot."""
        pending, newest, omitted = set(tables), dict[tuple[str, bool], SerializedEvent](), 0
        for event in reversed(self._events[position - self._first_position :]):
            if event.table not in pending:
                continue
            omitted += (event.table, event.is_state) in newest
            newest.setdefault((event.table, event.is_state), event)
        return CondensedEvents(tuple(reversed(newest.values())), omitted)

    def tables(self, position: int) -> set[str]:
        """Return the tables of all events from a position on."""
        return {event.table for event in self._events[position - self._first_position :]}

    def _count_unfitting(self, commits: Sequence[CommitEvents]) -> int:
        """Return how many of the oldest commits don't fit."""
        size, commit_count = len(self._events), len(self._positions)
        for unfitting in range(len(commits), 0, -1):
            size, commit_count = size + len(commits[unfitting - 1].events), commit_count + 1
            if size > self._max_events - self._max_events // _TRIM_DIVISOR or commit_count > self._max_events:
                return unfitting
        return 0

    def _trim(self) -> None:
        if len(self._events) <= self._max_events:
            return
        target = self._first_position + len(self._events) - self._max_events + self._max_events // _TRIM_DIVISOR
        cut, removed = self._first_position, []
        for hash, (start, count) in self._positions.items():
            if start + (count or 0) > target or hash == self.head:
                break
            removed.append(hash)
            cut = start + (count or 0)
        self.base = removed.pop()  # its count stays
        for hash in removed:
            del self._positions[hash]
            self._renumbered.discard(hash)
        del self._events[: cut - self._first_position]
        self._first_position = cut
