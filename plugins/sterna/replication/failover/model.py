"""The state of a region's catalog, and which region is the primary by the states of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sterna.postgres.term import Term


@dataclass(frozen=True)
class Slot:
    """A replication slot: the log that a primary keeps for one region.

    Args:
        name: `sterna_<region>`.
        active: the region is connected.
        wal_status: as Postgres has it: reserved, extended, unreserved, lost.
        behind: bytes of log that the region has not confirmed.
        used: the share that it needs of `max_slot_wal_keep_size`, beyond which the log is dropped; None where there is
            no such limit.
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
        region: the region that it follows.
        working: connected, and it has received a message: a worker without any answer waits for ever.
        received: the primary's log position up to which everything was applied.
        heard: when it last received a message from the primary.
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
        problem: why it can't be read, or ""; then nothing below is known.
        refuses: that is because it answers and refuses: so it may be at work.
        unasked: that is because its credential is missing here: so it may be at work.
        slow: that is because it granted a connection and gave no answer in time, or its name could not be looked up:
            so it may be at work.
        term: the newest term in its table of terms.
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
    term: Term | None = field(default=None, metadata={"json": "epoch"})
    writable: bool = False
    main: str = ""
    references: str = ""
    following: CatalogSubscription | None = None
    slots: tuple[Slot, ...] = ()

    @property
    def is_silent(self) -> bool:
        """It gives no answer: it may be lost, or only unreachable from here."""
        return bool(self.problem) and not (self.refuses or self.unasked or self.slow)

    @property
    def unseen_reason(self) -> str:
        """Why it could not be read, in a word or two; "" when it was."""
        if not self.problem:
            return ""
        flags = {"refuses": self.refuses, "was not contacted": self.unasked, "is slow": self.slow}
        return next((reason for reason, is_set in flags.items() if is_set), "does not answer")


@dataclass(frozen=True)
class Primary:
    """Which region is the primary, by the regions' catalogs.

    Args:
        known: every region was seen, and nothing contradicts anything.
        region: the primary; "" where there is none yet, or it isn't certain.
        newest: the newest term that was seen, None where no region that was seen has one.
        unseen: by region, why its catalog was not seen: it may have a newer term.
        doubts: contradictions in what was seen.
    """

    known: bool
    region: str
    newest: Term | None
    unseen: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
