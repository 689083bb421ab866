"""What a region's catalog looks like from outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sterna.edges.postgres.epoch import Epoch


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
class Following:
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
        problem: why it can't be looked at, or "".
        refuses: that is because it answers and refuses: so it may be at work.
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
    epoch: Epoch | None = None
    writable: bool = False
    main: str = ""
    references: str = ""
    following: Following | None = None
    slots: tuple[Slot, ...] = ()
