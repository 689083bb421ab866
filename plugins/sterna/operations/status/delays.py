"""How late new versions became visible in a region: percentiles over an hour, a day and a week, and objectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sterna.config.registry.model import Registry
from sterna.errors import CatalogError, CredentialError, StoreError
from sterna.operations.objectives import PERIOD_SECONDS, WINDOWS, ObjectiveStatus, measure_objective
from sterna.operations.status.delay_model import DelayPoint, DelaySummary, RegionDelays, TableDelays
from sterna.replication.replica.delay_hours import DelayHour, IndexUnusable, hour_start
from sterna.replication.replica.delay_index import DelayIndex, read_delay_index
from sterna.replication.replica.delay_tracker import OpenCommits
from sterna.replication.replica.delays import (
    HOUR_SECONDS,
    SLOT_SECONDS,
    Histogram,
    histogram_of,
    merge_histograms,
    percentile,
)
from sterna.replication.replica.region import RegionContext
from sterna.storage.objects import Objects

SHOWN_WINDOWS: Final = {"hour": HOUR_SECONDS, "day": 24 * HOUR_SECONDS, "week": PERIOD_SECONDS}
_ALL_WINDOWS = tuple(sorted({*SHOWN_WINDOWS.values(), *WINDOWS}))
_DAY_SLOTS = SHOWN_WINDOWS["day"] // SLOT_SECONDS


def read_region_delays(
    context: RegionContext, objects: Objects, *, tables: bool = False, now: datetime | None = None
) -> RegionDelays:
    """Return how late new versions became visible in a region; what keeps it from that is its `problem`.

    Args:
        context: the region.
        objects: the stores.
        tables: of each table, too.
        now: the time; default: the clock's.
    """
    now = now or datetime.now(UTC)
    try:
        index = read_delay_index(context, objects, now - timedelta(seconds=PERIOD_SECONDS))
    except (IndexUnusable, CatalogError, StoreError, CredentialError) as error:
        return unknown_delays(context.registry, str(error))
    delays = summarize_delays(index, context.registry, context.region.name, now)
    return delays if tables else replace(delays, tables=())


def unknown_delays(registry: Registry, problem: str) -> RegionDelays:
    """Return that nothing is known of how late new versions became visible, nor of any objective.

    Args:
        problem: why.
    """
    return RegionDelays(objectives=tuple(_unknown_objectives(registry)), problem=problem)


def summarize_delays(index: DelayIndex, registry: Registry, region: str, now: datetime) -> RegionDelays:
    """Return what an index says of the windows up to a time; tables that a rule keeps off the region don't count."""
    by_table = {
        table: windows
        for table, windows in _table_windows(index, now.timestamp()).items()
        if not registry.exclusion_reason(table, region)
    }
    begun = index.hours[0].state.begun / 1000
    return RegionDelays(
        since=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        windows=_summaries(_merge_windows(by_table.values())),
        objectives=tuple(_objectives(registry, by_table)),
        rebuilt=index.rebuilt,
        tables=tuple(TableDelays(table, _summaries(by_table[table])) for table in sorted(by_table)),
        points=_day_points(index, int(now.timestamp())),
    )


def _table_windows(index: DelayIndex, now: float) -> dict[str, dict[int, dict[int, int]]]:
    """Return the histograms of each table, by the seconds of their window; what is open counts with its age."""
    parts: dict[str, dict[int, list[Histogram]]] = {}
    for end, table, histogram in _slots(index.hours):
        for seconds in _ALL_WINDOWS:
            if end > now - seconds:
                parts.setdefault(table, {}).setdefault(seconds, []).append(histogram)
    for table, entries in index.open.items():
        ages = _ages(entries, now)
        for seconds in _ALL_WINDOWS:
            parts.setdefault(table, {}).setdefault(seconds, []).append(ages)
    return {
        table: {seconds: merge_histograms(histograms) for seconds, histograms in windows.items()}
        for table, windows in parts.items()
    }


def _slots(hours: Iterable[DelayHour]) -> Iterator[tuple[int, str, Histogram]]:
    """Yield the histograms of hours, each with the second at which its part ends, and its table."""
    for hour in hours:
        start = hour_start(hour.hour)
        for table, slots in hour.delays.items():
            for slot, histogram in slots.items():
                yield start + (slot + 1) * SLOT_SECONDS, table, histogram


def _ages(entries: Sequence[OpenCommits], now: float) -> dict[int, int]:
    return histogram_of((now - entry.at / 1000, entry.count) for entry in entries)


def _merge_windows(tables: Iterable[Mapping[int, Histogram]]) -> dict[int, dict[int, int]]:
    listed = list(tables)
    return {seconds: merge_histograms(windows.get(seconds, {}) for windows in listed) for seconds in _ALL_WINDOWS}


def _summaries(windows: Mapping[int, Histogram]) -> tuple[DelaySummary, ...]:
    return tuple(_summary(name, windows.get(seconds, {})) for name, seconds in SHOWN_WINDOWS.items())


def _summary(window: str, histogram: Histogram) -> DelaySummary:
    p50, p95, p99, most = (percentile(histogram, share) for share in (0.5, 0.95, 0.99, 1.0))
    return DelaySummary(window, sum(histogram.values()), p50, p95, p99, most)


def _objectives(registry: Registry, by_table: Mapping[str, Mapping[int, Histogram]]) -> Iterator[ObjectiveStatus]:
    """Yield the objectives of all policies; a table counts for the first policy that matches it, as everywhere."""
    for objective in _unknown_objectives(registry):
        policy = registry.policies[objective.policy - 1]
        tables = (windows for table, windows in by_table.items() if registry.policy(table) is policy)
        yield measure_objective(
            objective.policy, objective.tables, objective.lag, objective.share, _merge_windows(tables)
        )


def _unknown_objectives(registry: Registry) -> Iterator[ObjectiveStatus]:
    for number, policy in enumerate(registry.policies, 1):
        if policy.objective is not None and policy.replicate:
            yield ObjectiveStatus(number, tuple(policy.tables), policy.objective.lag_seconds, policy.objective.share)


def _day_points(index: DelayIndex, now: int) -> tuple[DelayPoint, ...]:
    """Return the delays of the last day by their five minutes; the last point is now, with what is open."""
    by_slot: dict[int, list[Histogram]] = {}
    for end, _, histogram in _slots(index.hours):
        if end > now - _DAY_SLOTS * SLOT_SECONDS:
            by_slot.setdefault(end, []).append(histogram)
    ages = merge_histograms(_ages(entries, now) for entries in index.open.values())
    if not (by_slot or ages):
        return ()
    by_point = {min(end, now): merge_histograms(histograms) for end, histograms in sorted(by_slot.items())}
    by_point[now] = merge_histograms([by_point.get(now, {}), ages])
    return tuple(
        DelayPoint(at, percentile(histogram, 0.5) or 0, percentile(histogram, 1.0) or 0)
        for at, histogram in by_point.items()
    )
