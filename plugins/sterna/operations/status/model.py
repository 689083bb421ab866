"""What is known of a region's state: facts that commands, pages and tasks show, each in its own way."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.errors import printable
from sterna.maintenance.deletion.model import Amount
from sterna.replication.failover.model import Slot
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.held import Held


@dataclass(frozen=True)
class HeldStatus:
    """A held key with its own lag, and what to do about it.

    Args:
        held: what the replica's head says of it.
        lag_seconds: since when it is behind; None when nobody knows.
        do: what an operator does.
        tries: how many syncs have reported it since, as far as their reports are still there; None where nobody looked.
        last_try: when the newest of them began (ISO 8601, UTC), "" when there is none.
    """

    held: Held
    lag_seconds: float | None
    do: str
    tries: int | None = None
    last_try: str = ""


@dataclass(frozen=True)
class InTransitStatus:
    """A key in transit.

    Args:
        held: what the replica's head says of it.
        lag_seconds: how far it is behind; None when nobody knows.
        bytes_left: what is left to be copied, as far as the large lane tells, else as the head says; 0 for one that
            only waits for others.
        under_way: a large lane is at work on it; None where nobody looked.
    """

    held: Held
    lag_seconds: float | None
    bytes_left: int
    under_way: bool | None = None


@dataclass(frozen=True)
class UnreadableHeldList:
    """Held keys of which nobody knows more than the replica's head says, since the list of them can't be read.

    Args:
        count: how many there are.
        first: a few of their names.
        why: what is wrong with the list.
    """

    count: int
    first: tuple[str, ...]
    why: str

    @property
    def line(self) -> str:
        """What people are told, in one line."""
        return printable(f"{self.count} tables are held, among them {', '.join(self.first)}; {self.why}", 10_000)


@dataclass(frozen=True)
class ExcludedTable:
    """A key of `main` that may have no replica in a region.

    Args:
        key: key name.
        reason: the rule that says so.
        files, bytes: what the region still holds of it, from the time before the rule; None where nobody looked.
    """

    key: str
    reason: str
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class ShortRetention:
    """A table whose snapshots `main` may expire before this region has them.

    Args:
        key: key name.
        keeps_seconds: how long `main` keeps a snapshot, by the table's properties.
        lag_seconds: how far this region is behind with the table.
    """

    key: str
    keeps_seconds: float
    lag_seconds: float


@dataclass(frozen=True)
class StorageUsage:
    """What lies below a region's replica root, as the newest clean-up counted and left it.

    Args:
        at: when that clean-up began (ISO 8601, UTC): what came or went since isn't in it.
        objects: all.
        evidence: plans and reports of runs, and records of clean-ups.
        superseded: metadata.json that stay for older heads alone.
        unreachable: what no kept head reaches, garbage included.
        garbage: what may be deleted at once.
    """

    at: str
    objects: Amount
    evidence: Amount
    superseded: Amount
    unreachable: Amount
    garbage: Amount


@dataclass(frozen=True)
class LaggingRegion:
    """A region that upkeep of `main` has to wait for.

    Args:
        name: its name.
        lag_seconds: how far its watermark is behind `main`; None where that can't be told.
        why: what is wrong with its branch, "" where it is only behind.
    """

    name: str
    lag_seconds: float | None
    why: str = ""

    @property
    def line(self) -> str:
        """What people are told, in one line."""
        problem = self.why or f"it is {self.lag_seconds or 0.0:.0f} s behind main"
        return printable(f"upkeep of main waits for {self.name}, and storage grows: {problem}", 10_000)


@dataclass(frozen=True)
class RegionStatus:
    """One region's replica branch against `main`.

    Args:
        region, branch: which.
        replica_hash: the branch's head, "" when it doesn't exist yet.
        watermark: hash of `main` that it stands for, "" while it is being seeded.
        source_hash: `main`'s head.
        lag_seconds: how far it is behind with all tables: the oldest of the three lags below. None when one of them is
            unknown.
        last_run: id of the run that made the head.
        last_commit: when (ISO 8601, UTC), "" when never.
        held: keys that stay behind, since something is wrong.
        unread_held: those of which only the number is known; then `held` is empty. None where it has all of them.
        other_registry: regions whose last commit was made with another registry than this one.
        problem: why the branch can't be used, or "".
        refused: keys of `main` that policies or residency keep off this region.
        unserved: the branch's head at the primary, where the region's own copy of the catalog does not serve it yet.
        cut_off: the primary does not answer: all else is what the region's own copy says. None when it does.
        short_retention: tables that `main` may expire too soon for this region, where that was asked.
        watermark_lag_seconds: how far it is behind with the tables that are neither held nor in transit; from the first
            commit of `main` on while it is being seeded. None when there is a problem. Cut off: at most so much.
        held_lag_seconds: how far it is behind with the table that is held for the longest time; 0 when none is, None
            when nobody knows.
        slots: what the primary keeps of its log for this region; all its slots where this region is the primary. Empty
            where the regions have no catalogs of their own, or nobody looked.
        oldest_evidence: when the oldest evidence of a run was written that no clean-up has deleted yet (ISO 8601), ""
            when there is none or nobody looked.
        unseen: what could not be looked at, and why.
        stored: what the newest clean-up counted; None when there was none, or nobody looked.
        transit: keys that stay behind while the large lane brings them.
        transit_lag_seconds: how far it is behind with the table that is in transit for the longest time; 0 when none
            is, None when nobody knows.
        silent: regions for which upkeep waits for longer than its `max_wait`; None where no upkeep is configured, or
            nobody looked.
    """

    region: str
    branch: str
    replica_hash: str
    watermark: str
    source_hash: str
    lag_seconds: float | None
    last_run: str
    last_commit: str
    held: tuple[HeldStatus, ...]
    other_registry: tuple[str, ...]
    problem: str = ""
    refused: tuple[ExcludedTable, ...] = ()
    unserved: str = ""
    cut_off: PrimaryOutage | None = None
    short_retention: tuple[ShortRetention, ...] = ()
    watermark_lag_seconds: float | None = None
    held_lag_seconds: float | None = 0.0
    slots: tuple[Slot, ...] = ()
    oldest_evidence: str = ""
    unseen: tuple[str, ...] = ()
    unread_held: UnreadableHeldList | None = None
    stored: StorageUsage | None = None
    transit: tuple[InTransitStatus, ...] = ()
    transit_lag_seconds: float | None = 0.0
    silent: tuple[LaggingRegion, ...] | None = None
