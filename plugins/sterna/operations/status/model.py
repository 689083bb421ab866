"""The state of a region as plain data, which commands, pages and tasks show."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.errors import printable
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount
from sterna.operations.status.delay_model import RegionDelays
from sterna.replication.failover.model import Slot
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.held import Held


@dataclass(frozen=True)
class HeldStatus:
    """A held key with its own lag, and what to do about it.

    Args:
        held: its entry in the replica's head.
        lag_seconds: how far it is behind; None when unknown.
        do: what an operator does.
        tries: how many syncs have reported it since, as far as their reports still exist; None where not read.
        last_try: when the newest of them began (ISO 8601, UTC), "" when there is none.
        card: link to the run book's card of its error, or "".
    """

    held: Held
    lag_seconds: float | None
    do: str
    tries: int | None = None
    last_try: str = ""
    card: str = ""


@dataclass(frozen=True)
class InTransitStatus:
    """A key in transit.

    Args:
        held: its entry in the replica's head.
        lag_seconds: how far it is behind; None when unknown.
        bytes_left: what is left to be copied, by the state of the bulk run, else by the head; 0 for one that only waits
            for others.
        under_way: a bulk run is copying it; None where not read.
    """

    held: Held
    lag_seconds: float | None
    bytes_left: int
    under_way: bool | None = None


@dataclass(frozen=True)
class UnreadableHeldList:
    """Held keys whose list can't be read: only what the replica's head has of them is known.

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
        """The message for operators, in one line."""
        return printable(f"{self.count} tables are held, among them {', '.join(self.first)}; {self.why}", 10_000)


@dataclass(frozen=True)
class ExcludedTable:
    """A key of `main` that may have no replica in a region.

    Args:
        key: key name.
        reason: the rule that excludes it.
        files, bytes: what the region still stores of it, from the time before the rule; None where not read.
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
    """The objects below a region's replica root, as the newest clean-up counted and left them.

    Args:
        at: when that clean-up began (ISO 8601, UTC); later changes aren't included.
        objects: all.
        evidence: plans and reports of runs, and records of clean-ups.
        superseded: metadata.json that are kept only for older heads.
        unreachable: what no kept head reaches, garbage included.
        garbage: what may be deleted at once.
        verbatim: verbatim copies of other regions' path-bearing files.
        dropped: files that only dropped tables need, kept for `sterna restore`.
    """

    at: str
    objects: Amount
    evidence: Amount
    superseded: Amount
    unreachable: Amount
    garbage: Amount
    verbatim: Amount = ZERO_AMOUNT
    dropped: Amount = ZERO_AMOUNT


@dataclass(frozen=True)
class LaggingRegion:
    """A region that maintenance of `main` has to wait for.

    Args:
        lag_seconds: how far its watermark is behind `main`; None where unknown.
        why: what is wrong with its branch, "" where it is only behind.
    """

    name: str
    lag_seconds: float | None
    why: str = ""

    @property
    def line(self) -> str:
        """The message for operators, in one line."""
        problem = self.why or f"it is {self.lag_seconds or 0.0:.0f} s behind main"
        return printable(f"maintenance of main waits for {self.name}, and storage grows: {problem}", 10_000)


@dataclass(frozen=True)
class RegionStatus:
    """One region's replica branch against `main`.

    Args:
        replica_hash: the branch's head, "" when it doesn't exist yet.
        watermark: hash of `main` that it is at, "" while it is being seeded.
        source_hash: hash of `main`'s head.
        lag_seconds: how far it is behind with all tables: the oldest of the three lags below. None when one of them is
            unknown.
        last_run: id of the run that made the head.
        last_commit: when (ISO 8601, UTC), "" when never.
        held: keys that stay behind, since something is wrong.
        unread_held: those whose list can't be read; then `held` is empty. None where `held` has all of them.
        other_registry: regions whose last commit was made with another registry than this one.
        problem: why the branch can't be used, or "".
        problem_kind, problem_card: that error's class name, and the link to its card in the run book, or "".
        refused: keys of `main` that policies or residency keep off this region.
        unserved: the branch's head at the primary, where the region's own copy of the catalog does not serve it yet.
        cut_off: the primary does not answer: all else is from the region's own copy of the catalog. None when it does.
        short_retention: tables that `main` may expire too soon for this region; empty where not read.
        watermark_lag_seconds: how far it is behind with the tables that are neither held nor in transit; from the first
            commit of `main` on while it is being seeded. None when there is a problem. Cut off: at most so much.
        held_lag_seconds: how far it is behind with the table that is held for the longest time; 0 when none is, None
            when unknown.
        slots: what the primary keeps of its log for this region; all its slots where this region is the primary. Empty
            where the regions have no catalogs of their own, or it was not read.
        oldest_evidence: when the oldest evidence of a run was written that no clean-up has deleted yet (ISO 8601), ""
            when there is none or it was not read.
        unseen: what could not be read, and why.
        stored: what the newest clean-up counted; None when there was none, or it was not read.
        transit: keys that stay behind while a bulk run copies them.
        transit_lag_seconds: how far it is behind with the table that is in transit for the longest time; 0 when none
            is, None when unknown.
        silent: regions for which maintenance waits for longer than its `max_wait`; None where no maintenance is
            configured, or it was not read.
        uncopied: key names of tables and views whose verbatim copies aren't all here; empty where the region keeps
            none, or it was not read.
        delays: how late new versions became visible; None where not read.
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
    uncopied: tuple[str, ...] = ()
    delays: RegionDelays | None = None
    problem_kind: str = ""
    problem_card: str = ""
