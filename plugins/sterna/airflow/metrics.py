"""Metrics for Airflow's statistics (StatsD or OpenTelemetry, as Airflow is configured)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sterna.airflow.settings import get_patterns

if TYPE_CHECKING:
    from sterna.operations.status.model import RegionStatus
    from sterna.replication.replica.held import Held
    from sterna.replication.replica.model import Report
    from sterna.runtime.status import Condition, ReconcilerStatus


def record_sync(report: Report) -> None:
    """Report how a sync left its region: its lags in seconds, tables held and in transit, bytes copied.

    Of the large lane, which changes nothing of that, what it copied.
    """
    from airflow.sdk.observability import stats

    if report.outcome != "copied":
        lagging = (*report.held, *report.transit)
        bytes_left = sum(table.bytes for table in report.transit)
        record_lags(report.region, report.watermark_lag_seconds, lagging, get_patterns("ignore_held"), bytes_left)
    stats.incr("sterna.copied_bytes", report.copied.sent, tags={"region": report.region})


def record_lags(
    region: str, watermark: float | None, lagging: Sequence[Held], allowed: Sequence[str], bytes_left: int
) -> None:
    """Report a region's lags in seconds, and how many tables stay behind; an unknown lag is not reported.

    Args:
        watermark: its lag without the tables that stay behind, None when it is unknown.
        lagging: the tables that are held or in transit.
        allowed: patterns of those that an operator accepts to be held: they are counted, and make no lag.
        bytes_left: bytes that are left to be copied for those in transit.
    """
    from airflow.sdk.observability import stats

    from sterna.operations.alarms import without_allowed
    from sterna.replication.replica.lag import Lags, held_lag

    tags = {"region": region}
    held, transit = ([table for table in lagging if table.in_transit is in_transit] for in_transit in (False, True))
    counted = without_allowed(held, allowed)
    held_lag_seconds, transit_lag = held_lag(counted), held_lag(transit)
    stats.gauge("sterna.held_tables", len(held), tags=tags)
    stats.gauge("sterna.held_ignored_tables", len(held) - len(counted), tags=tags)
    stats.gauge("sterna.transit_tables", len(transit), tags=tags)
    stats.gauge("sterna.transit_bytes", bytes_left, tags=tags)
    oldest = None if watermark is None else Lags(watermark, held_lag_seconds, transit_lag).oldest
    _record_lag_gauges(region, oldest, watermark, held_lag_seconds)
    if transit_lag is not None:
        stats.gauge("sterna.transit_lag_seconds", transit_lag, tags=tags)


def record_unreadable_held(status: RegionStatus) -> None:
    """Report how many tables a region holds, and its lags with them, where the list of them can't be read."""
    from airflow.sdk.observability import stats

    count = status.unread_held.count if status.unread_held else 0
    stats.gauge("sterna.held_tables", count, tags={"region": status.region})
    _record_lag_gauges(status.region, status.lag_seconds, status.watermark_lag_seconds, status.held_lag_seconds)


def _record_lag_gauges(region: str, oldest: float | None, watermark: float | None, held: float | None) -> None:
    from airflow.sdk.observability import stats

    for name, lag in {
        "sterna.lag_seconds": oldest,
        "sterna.watermark_lag_seconds": watermark,
        "sterna.held_lag_seconds": held,
    }.items():
        if lag is not None:
            stats.gauge(name, lag, tags={"region": region})


def record_alarms(status: RegionStatus, active_alarms: Sequence[Condition]) -> None:
    """Report what the alert checks beside the lags, and how many alarms there are."""
    from airflow.sdk.observability import stats

    from sterna.operations.alarms import evidence_age

    tags = {"region": status.region}
    stats.gauge("sterna.alarms", len(active_alarms), tags=tags)
    stats.gauge("sterna.unseen", len(status.unseen), tags=tags)
    stats.gauge("sterna.cut_off", int(status.cut_off is not None), tags=tags)
    age = evidence_age(status)
    if age is not None:
        stats.gauge("sterna.gc_lag_seconds", age, tags=tags)
    if status.stored:
        stats.gauge("sterna.stored_bytes", status.stored.objects.bytes, tags=tags)
        stats.gauge("sterna.evidence_bytes", status.stored.evidence.bytes, tags=tags)
        stats.gauge("sterna.superseded_bytes", status.stored.superseded.bytes, tags=tags)
        stats.gauge("sterna.garbage_bytes", status.stored.garbage.bytes, tags=tags)
    if status.silent is not None:
        stats.gauge("sterna.maintenance_waits_for", len(status.silent), tags=tags)
    if status.slots:
        stats.gauge("sterna.slot_behind_bytes", max(slot.behind for slot in status.slots), tags=tags)
        stats.gauge("sterna.slot_used", max(slot.used or 0.0 for slot in status.slots), tags=tags)


def record_reconcilers(region: str, kind: str, failed: Collection[str], statuses: Sequence[ReconcilerStatus]) -> None:
    """Report consumers that follow a log: a failure of each that failed, and the lag and alarms of each looked at.

    Args:
        kind: of consumers.
        failed: their names; what follows a colon, such as an activity, is left out.
    """
    from airflow.sdk.observability import stats

    for name in dict.fromkeys(name.partition(":")[0] for name in failed):
        stats.incr("sterna.reconciler_failures", tags={"region": region, "kind": kind, "name": name})
    for status in statuses:
        tags = {"region": region, "kind": kind, "name": status.name}
        if status.lag is not None and status.lag_unit == "s":
            stats.gauge("sterna.reconciler_lag_seconds", status.lag, tags=tags)
        stats.gauge("sterna.reconciler_blocked", int(status.blocked is not None), tags=tags)


def count_watch_error(region: str) -> None:
    """Count one failed poll of the head of `main`."""
    from airflow.sdk.observability import stats

    stats.incr("sterna.watch_errors", tags={"region": region})
