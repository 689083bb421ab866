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

# Of so many parts one is taken off at a time, for that costs a copy of the rest. What is added at the old end leaves as
# much room: else the next event would take it off again, and whoever resumed there.
_TAKEN_OFF = 10


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
        most: events it has at most, but that one commit's stay together. At the old end as many commits are added.
    """

    def __init__(self, base: str, most: int) -> None:
        self._most = most
        self._items: list[Ready] = []
        # By commit, oldest first, its first place and its number of events. None: nobody has counted them yet; they lie
        # before the ring.
        self._places: dict[str, tuple[int, int | None]] = {base: (0, None)}
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
        """Add commits at the old end, the newest ones that fit; tell whether those are all.

        Args:
            base: the commit before them.
            told: the commits, oldest first; the newest one is the ring's base. None: there is nothing before it.
        """
        left, place = self._fitting(told), self._first
        places: list[tuple[str, tuple[int, int | None]]] = []
        for each in reversed(told[max(0, left - 1) :]):
            place -= len(each.events)
            places.append((each.commit.hash, (place, len(each.events))))
        if not told:
            places = [(self.base, (self._first, 0))]
        elif not left:
            places.append((base, (place, None)))
        # What doesn't fit is left out, but its newest commit was counted: whoever has all of its events goes on here.
        self._places = dict(reversed(places)) | {key: at for key, at in self._places.items() if key != self.base}
        added = [ready(event) for each in told[left:] for event in each.events]
        self._items[:0] = added
        self._first -= len(added)
        self.base = places[-1][0]
        return not left

    def place(self, cursor: Cursor) -> int | None:
        """Return the place after a cursor, None where the ring doesn't know it."""
        if cursor.hash not in self._places or self.lacks(cursor):
            return None
        start, count = self._places[cursor.hash]
        taken = (count or 0) if cursor.number is None else cursor.number
        return start + taken if taken <= (count or 0) and start + taken >= self._first else None

    def lacks(self, cursor: Cursor) -> bool:
        """Tell whether a cursor is one of the base's events, and those weren't counted yet."""
        return cursor.number is not None and cursor.hash == self.base and self._places[self.base][1] is None

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

    def _fitting(self, told: Sequence[Told]) -> int:
        """Return how many of some commits, the oldest, don't fit at the old end any more."""
        size, commits = len(self._items), len(self._places)
        for left in range(len(told), 0, -1):
            size, commits = size + len(told[left - 1].events), commits + 1
            if size > self._most - self._most // _TAKEN_OFF or commits > self._most:
                return left
        return 0

    def _trim(self) -> None:
        if len(self._items) <= self._most:
            return
        wanted = self._first + len(self._items) - self._most + self._most // _TAKEN_OFF
        cut, gone = self._first, []
        for hash, (start, count) in self._places.items():
            if start + (count or 0) > wanted or hash == self.head:
                break
            gone.append(hash)
            cut = start + (count or 0)
        self.base = gone.pop()  # its count stays
        for hash in gone:
            del self._places[hash]
        del self._items[: cut - self._first]
        self._first = cut
