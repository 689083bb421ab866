"""How late new versions of tables became visible in a region, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.operations.objectives import ObjectiveStatus


@dataclass(frozen=True)
class DelaySummary:
    """The delays of a window up to now, in seconds; None where there were none.

    Args:
        window: `hour`, `day` or `week`.
        count: how many there are, those that go on among them.
        p50, p95, p99: within which so many hundredths are.
        most: the longest.
    """

    window: str
    count: int
    p50: int | None
    p95: int | None
    p99: int | None
    most: int | None


@dataclass(frozen=True)
class TableDelays:
    """The delays of one table."""

    key: str
    windows: tuple[DelaySummary, ...]


@dataclass(frozen=True)
class DelayPoint:
    """The delays that ended in five minutes.

    Args:
        at: when these end, in seconds since 1970.
        p50, most: of them, in seconds.
    """

    at: int
    p50: int
    most: int


@dataclass(frozen=True)
class RegionDelays:
    """How late new versions became visible in a region.

    Args:
        since: from when on delays are counted (ISO 8601, UTC); "" where nothing is known.
        windows: of all tables; empty where nothing is known.
        objectives: of the registry's policies.
        problem: why nothing is known, or "".
        rebuilt: why the figures come from the catalog and not from the index; "" where they come from it.
        tables: of each table; empty where not read.
        points: those of the last day, the oldest first.
    """

    since: str = ""
    windows: tuple[DelaySummary, ...] = ()
    objectives: tuple[ObjectiveStatus, ...] = ()
    problem: str = ""
    rebuilt: str = ""
    tables: tuple[TableDelays, ...] = ()
    points: tuple[DelayPoint, ...] = ()
