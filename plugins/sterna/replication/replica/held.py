"""A held key: one that stays at its last good version, because it can't be localized now, or is still on its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sterna.errors import Remedy, printable, remedy_of

IN_TRANSIT = "InTransit"
"""The kind of a key that nothing is wrong with: much is to be copied for it, or for what it moves together with."""

TO_SHIP = "WaitsToShip"
"""The kind of a key that nothing is wrong with: its policy lets it wait for compaction, or something that it moves
together with."""

WAITS = "Waits"
"""The kind of a key that waits for another one, which has a fault."""


@dataclass(frozen=True)
class Held:
    """A key that stays at its last good version.

    Reason and file are foreign text, made printable: they go into commits, JSON and logs.

    Args:
        key: key name.
        kind: the error's class name, such as `UnregisteredUri`.
        reason: what is wrong, for people.
        file: the URI it is about, for people, or "".
        since: commit time (ISO 8601, UTC) of the oldest commit on `main` that the replica does not show for this key.
        good: hash of `main` whose version of this key the replica still shows, or "" when it shows none.
        waits_for: the held key that this one was committed together with, or "" when the fault is its own.
        group: one of the held keys that it moves together with, the same for all of them, or "" when it moves alone.
        bytes: what the large lane has to copy for it, as far as a plan found out, or of its manifests, where the large
            lane is to list it; 0 where the large lane has no part.
        until: when (ISO 8601, UTC) it is published without a new commit; "" where no time limits it.
        more: a newer version's fields, as JSON; preserved.
    """

    key: str
    kind: str
    reason: str
    file: str = ""
    since: str = ""
    good: str = ""
    waits_for: str = ""
    group: str = ""
    bytes: int = 0
    until: str = ""
    more: str = field(default="", repr=False, compare=False, metadata={"internal": True})

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))
        object.__setattr__(self, "file", printable(self.file))

    @property
    def in_transit(self) -> bool:
        """Whether nothing is wrong with it: it is on its way, or waits for compaction."""
        return self.kind in (IN_TRANSIT, TO_SHIP)

    @property
    def is_lasting(self) -> bool:
        """Whether it is held by a fault of its own that no later sync gets over by itself."""
        return not self.in_transit and self.kind != WAITS and remedy_of(self.kind) is Remedy.HOLD

    @property
    def to_ship(self) -> bool:
        """Whether it waits for compaction."""
        return self.kind == TO_SHIP

    @property
    def state(self) -> str:
        """What people call the state that it is in."""
        return "waiting for compaction" if self.to_ship else "in transit" if self.in_transit else "held"

    @property
    def line(self) -> str:
        """A description in one line, for logs and commands."""
        if self.in_transit:
            remaining = f"{self.bytes} bytes left; " if self.bytes else ""
            return printable(f"{self.state} {self.key} since {self.since}: {remaining}{self.reason}", 10_000)
        return printable(f"held {self.key} since {self.since}: {self.kind}: {self.reason} {self.file}".rstrip(), 10_000)


def split_in_transit(held: Iterable[Held]) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Return the keys that are held for a fault, of theirs or of others, and those that are in transit."""
    keys = tuple(held)
    return tuple(key for key in keys if not key.in_transit), tuple(key for key in keys if key.in_transit)


def held_since(held: Held) -> datetime | None:
    """Return the commit time from which on a key is behind, None when unknown."""
    return parse_commit_time(held.since)


def parse_commit_time(text: str) -> datetime | None:
    """Return a commit time from its form in held keys, None when it is empty or invalid."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
