"""What a region's catalog looks like from outside, and what some of them tell about the primary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sterna.postgres.term import Term


@dataclass(frozen=True)
class Slot:
    """A place in a primary's log that it keeps for one region.

    Args:
        name: `sterna_<region>`.
        active: the region is connected.
        wal_status: Postgres' word: reserved, extended, unreserved, lost.
        behind: bytes of log that the region has not confirmed.
        used: the share that it needs of `max_slot_wal_keep_size`, beyond which the log is taken away; None where there
            is no such limit.
    """

    name: str
    active: bool
    wal_status: str
    behind: int
    used: float | None = None


@dataclass(frozen=True)
class CatalogSubscription:
    """How a region follows a primary.

    Args:
        region: whom.
        working: connected, and it has heard something: a worker whose connection is never answered waits for ever.
        received: the primary's log position up to which everything was applied.
        heard: when it last heard from the primary.
    """

    region: str
    working: bool
    received: int
    heard: datetime | None


@dataclass(frozen=True)
class CatalogSite:
    """One region's catalog.

    Args:
        region: its name.
        problem: why it can't be looked at, or ""; then nothing below is known.
        refuses: that is because it answers and refuses: so it may be at work.
        unasked: that is because its credential is missing here, and it was not asked: so it may be at work.
        slow: that is because it granted a connection and gave no answer in time, or its name could not be looked up:
            so it may be at work.
        epoch: the newest epoch that it knows.
        writable: its Nessie has the right to write references.
        main: head of `main` as it serves it, "" when it was not seeded yet.
        references: digest over all references and where they point, "" when it was not seeded yet.
        following: its subscription, None when it has none.
        slots: what it keeps for others.
    """

    region: str
    problem: str = ""
    refuses: bool = False
    unasked: bool = False
    slow: bool = False
    epoch: Term | None = None
    writable: bool = False
    main: str = ""
    references: str = ""
    following: CatalogSubscription | None = None
    slots: tuple[Slot, ...] = ()

    @property
    def is_silent(self) -> bool:
        """It gives no answer: it may be gone, or only out of reach from here."""
        return bool(self.problem) and not (self.refuses or self.unasked or self.slow)

    @property
    def unseen_reason(self) -> str:
        """In a word or two why it was not seen, "" when it was."""
        if not self.problem:
            return ""
        flags = {"refuses": self.refuses, "was not asked": self.unasked, "is slow": self.slow}
        return next((reason for reason, is_set in flags.items() if is_set), "does not answer")


@dataclass(frozen=True)
class Primary:
    """Who the primary is, as far as the regions' catalogs tell.

    Args:
        known: every region was seen, and nothing contradicts anything.
        region: the primary; "" where there is none yet, and where that can't be told.
        newest: the newest epoch that was seen, None where no region that was seen knows one.
        unseen: by region, why its catalog was not seen: it may know a newer epoch.
        doubts: what contradicts itself in what was seen.
    """

    known: bool
    region: str
    newest: Term | None
    unseen: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
