"""What a horizon is made of: who shows which version of which table, and how far each region is. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sterna.replica.held import Held


@dataclass(frozen=True)
class Shown:
    """A version of a table or view, as a commit of the catalog shows it.

    Args:
        key: key name.
        kind: content type.
        metadata: its metadata.json.
        snapshot: its current snapshot; None where it has none.
    """

    key: str
    kind: str
    metadata: str
    snapshot: int | None = None


@dataclass(frozen=True)
class MainCommit:
    """A commit of `main`.

    Args:
        hash: its hash.
        at: its time.
        put: what it put.
    """

    hash: str
    at: datetime
    put: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class ShowingReference:
    """A branch or tag other than `main`, at its head.

    Args:
        name: its name.
        shown: what it shows.
        replica_of: the region whose replica it shows, where sterna made it; else "".
    """

    name: str
    shown: tuple[Shown, ...]
    replica_of: str = ""


@dataclass(frozen=True)
class RegionFacts:
    """How far a region is, as the head of its replica branch says at the primary.

    Args:
        name: its name.
        watermark: the commit of `main` that its replica stands for; "" while it has none.
        held: tables that it holds, and those in transit.
        lost: why nobody knows what it holds; "" where that is known.
        heads: what the heads of its replica branch showed within the time for which clean-ups keep them.
        refused: keys that policies or residency keep off it.
    """

    name: str
    watermark: str = ""
    held: tuple[Held, ...] = ()
    lost: str = ""
    heads: tuple[Shown, ...] = ()
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Followed:
    """How far a flow or a view of features has come in the table that it follows.

    Args:
        key: the table's key name.
        snapshot: the snapshot up to which it has come: what came since is read from there.
        who: the flow's name, or the view's and its region's.
    """

    key: str
    snapshot: int
    who: str


@dataclass(frozen=True)
class Untold:
    """A view of features of which nobody can tell how far it is.

    Args:
        key: its table's key name.
        region: its region.
        reason: why, for people.
    """

    key: str
    region: str
    reason: str


@dataclass(frozen=True)
class Facts:
    """All that a horizon depends on, read from the primary under one epoch.

    Args:
        now: the time.
        head: the head of `main`.
        main: what it shows.
        commits: the commits of `main`, newest first, back to the oldest that anything below asks for; all of them where
            something asks for one that isn't there.
        base: what `main` showed at the last of these.
        references: all other branches and tags, and what this region's own copy of the catalog shows.
        regions: all regions.
        epoch: the epoch; "" where the regions share one catalog.
        followed: how far each flow and each view of features has come.
        untold: views of features of which that isn't known.
    """

    now: datetime
    head: str
    main: tuple[Shown, ...]
    commits: tuple[MainCommit, ...] = ()
    base: tuple[Shown, ...] = ()
    references: tuple[ShowingReference, ...] = ()
    regions: tuple[RegionFacts, ...] = field(default=())
    epoch: str = ""
    followed: tuple[Followed, ...] = ()
    untold: tuple[Untold, ...] = ()
