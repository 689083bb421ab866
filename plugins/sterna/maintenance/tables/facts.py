"""The inputs of retention as plain data: which version is shown where, and how far each region is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sterna.maintenance.deletion.references import ReferenceVersions
from sterna.replication.replica.held import Held
from sterna.replication.replica.reachability import TableVersion


@dataclass(frozen=True)
class MainCommit:
    """A commit of `main`."""

    hash: str
    at: datetime
    put: tuple[TableVersion, ...] = ()


@dataclass(frozen=True)
class RegionState:
    """How far a region is, by the head of its replica branch at the primary.

    Args:
        watermark: the commit of `main` that its replica is at; "" while it has none.
        held: tables that it holds, and those in transit.
        held_problem: why it isn't known what it holds; "" where it is.
        head_versions: what the heads of its replica branch showed within the time for which clean-ups keep them, and
            what was dropped there within the time for which a policy keeps that.
        excluded_keys: keys that policies or residency keep off it.
    """

    name: str
    watermark: str = ""
    held: tuple[Held, ...] = ()
    held_problem: str = ""
    head_versions: tuple[TableVersion, ...] = ()
    excluded_keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConsumerPosition:
    """How far a transform or a view of features has come in the table that it follows.

    Args:
        key: the table's key name.
        snapshot: the snapshot that it has read; it continues from there.
        consumer: name of the transform, or `region/view`.
    """

    key: str
    snapshot: int
    consumer: str


@dataclass(frozen=True)
class UnknownPosition:
    """A transform or feature view with an unknown position.

    Args:
        key: its table's key name.
        reason: why not.
    """

    key: str
    region: str
    reason: str


@dataclass(frozen=True)
class RetentionInputs:
    """All that retention depends on, read from the primary under one term.

    Args:
        head: the head of `main`.
        main: the versions that `main` shows.
        commits: the commits of `main`, newest first, back to the oldest that a region needs; all of them where a region
            names one that isn't there.
        base: what `main` showed at the last of these.
        references: all branches and tags but `main`, and what this region's own copy of the catalog shows.
        regions: all regions.
        term: the term; "" where the regions share one catalog.
        consumer_positions: how far each transform and each view of features has come.
        unknown_positions: those of them with an unknown position.
    """

    now: datetime
    head: str
    main: tuple[TableVersion, ...]
    commits: tuple[MainCommit, ...] = ()
    base: tuple[TableVersion, ...] = ()
    references: tuple[ReferenceVersions, ...] = ()
    regions: tuple[RegionState, ...] = field(default=())
    term: str = ""
    consumer_positions: tuple[ConsumerPosition, ...] = ()
    unknown_positions: tuple[UnknownPosition, ...] = ()
