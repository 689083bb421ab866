"""The one ring of serialized events that all connections read from: a connection is a place in it.

Places are counted on for ever, so that what is taken off at the old end moves nobody. The ring holds a part of the log
without a gap: every cursor that lies in it is found there, and the catalog is asked for none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.feed.cursor import Cursor
from sterna.feed.event import HELD, RELEASED, Event
from sterna.feed.log import Told

_TAKEN_OFF = 10  # of so many parts one is taken off at a time, for that costs a copy of the rest


@dataclass(frozen=True, slots=True)
class Ready:
    """An event as it is sent.

    Args:
        id: the cursor after it.
        table: the key name.
        state: whether it tells of being held, and not of what is shown.
        frame: it as server-sent event.
        start: where in the frame its JSON begins.
    """

    id: str
    table: str
    state: bool
    frame: bytes
    start: int

    @property
    def text(self) -> bytes:
        """The event as JSON."""
        return self.frame[self.start : -2]


def ready(event: Event) -> Ready:
    """Return an event as it is sent. JSON has no line breaks of its own, so one line of data is enough."""
    start = f"id: {event.id}\ndata: ".encode()
    return Ready(event.id, event.table, event.type in (HELD, RELEASED), start + event.text + b"\n\n", len(start))


@dataclass(frozen=True)
class Condensed:
    """What is left of many events.

    Args:
        left: the newest of each table.
        count: how many of them were left out.
    """

    left: tuple[Ready, ...]
    count: int


class Ring:
    """A part of the log, without a gap.

    Args:
        base: the commit before it.
        most: events it has at most, but that one commit's stay together.
    """

    def __init__(self, base: str, most: int) -> None:
        self._most = most
        self._items: list[Ready] = []
        self._places: dict[str, tuple[int, int]] = {base: (0, 0)}  # by commit, its first place and its number of events
        self._first = 0
        self.base = base
        self.head = base

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> int:
        """The oldest place."""
        return self._first

    @property
    def end(self) -> int:
        """The place after the newest event."""
        return self._first + len(self._items)

    def append(self, told: Iterable[Told]) -> list[Ready]:
        """Add commits at the new end, oldest first; return their events."""
        added: list[Ready] = []
        for each in told:
            self._places[each.commit.hash] = (self.end + len(added), len(each.events))
            added += map(ready, each.events)
            self.head = each.commit.hash
        self._items += added
        self._trim()
        return added

    def prepend(self, base: str, told: Sequence[Told]) -> bool:
        """Add commits at the old end, unless that makes it too long; tell whether it was done.

        Args:
            base: the commit before them.
            told: the commits, oldest first; the newest one is the ring's base.
        """
        added = [ready(event) for each in told for event in each.events]
        if len(added) + len(self._items) > self._most:
            return False
        place = self._first - len(added)
        self._places[base] = (place, 0)
        for each in told:
            self._places[each.commit.hash] = (place, len(each.events))
            place += len(each.events)
        self._items[:0] = added
        self._first -= len(added)
        self.base = base
        return True

    def place(self, cursor: Cursor) -> int | None:
        """Return the place after a cursor, None where the ring doesn't know it."""
        start, count = self._places.get(cursor.hash, (0, -1))
        taken = count if cursor.number is None else cursor.number
        if count < 0 or taken > count or start + taken < self._first:
            return None
        return start + taken

    def read(self, place: int, most: int) -> Sequence[Ready]:
        """Return events from a place on."""
        at = place - self._first
        return self._items[at : at + most]

    def newest(self, place: int, shows: Iterable[str]) -> Condensed:
        """Return, of all events from a place on, the newest of each of some tables: of its state, and of what it shows.

        Args:
            place: where to begin.
            shows: the tables.
        """
        wanted, found, count = set(shows), dict[tuple[str, bool], Ready](), 0
        for each in reversed(self._items[place - self._first :]):
            if each.table not in wanted:
                continue
            count += (each.table, each.state) in found
            found.setdefault((each.table, each.state), each)
        return Condensed(tuple(reversed(found.values())), count)

    def tables(self, place: int) -> set[str]:
        """Return the tables of all events from a place on."""
        return {each.table for each in self._items[place - self._first :]}

    def _trim(self) -> None:
        if len(self._items) <= self._most:
            return
        wanted = self._first + len(self._items) - self._most + self._most // _TAKEN_OFF
        cut, gone = self._first, []
        # By place: what was added at the old end stands last in the dictionary.
        for hash, (start, count) in sorted(self._places.items(), key=lambda each: each[1]):
            if start + count > wanted or hash == self.head:
                break
            gone.append(hash)
            self.base, cut = hash, start + count
        for hash in gone:
            del self._places[hash]
        del self._items[: cut - self._first]
        self._first = cut
        self._places[self.base] = (cut, 0)
