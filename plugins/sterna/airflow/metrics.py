"""Metrics for Airflow's statistics (StatsD or OpenTelemetry, as Airflow is configured)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sterna.airflow.settings import get_patterns

if TYPE_CHECKING:
    from sterna.operations.alarms import AlarmLimits
    from sterna.operations.status.model import RegionStatus
    from sterna.replication.replica.held import Held
    from sterna.replication.replica.model import Report
    from sterna.runtime.status import ReconcilerStatus


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
    from sterna.replication.replica.held import split_in_transit
    from sterna.replication.replica.lag import Lags, held_lag

    tags = {"region": region}
    held, transit = split_in_transit(lagging)
    counted = without_allowed(held, allowed)
    held_lag_seconds, transit_lag = held_lag(counted), held_lag(transit)
    stats.gauge("sterna.held_tables", len(held), tags=tags)
    stats.gauge("sterna.held_ignored_tables", len(held) - len(counted), tags=tags)
    stats.gauge("sterna.transit_tables", len(transit), tags=tags)
    stats.gauge("sterna.transit_bytes", bytes_left, tags=tags)
    oldest = None if watermark is None else Lags(watermark, held_lag_seconds, transit_lag).oldest
    for name, lag in {
        "sterna.lag_seconds": oldest,
        "sterna.watermark_lag_seconds": watermark,
        "sterna.held_lag_seconds": held_lag_seconds,
        "sterna.transit_lag_seconds": transit_lag,
    }.items():
        if lag is not None:
            stats.gauge(name, lag, tags=tags)


def record_status(status: RegionStatus, limits: AlarmLimits) -> None:
    """Report a region's status: what the alert goes by, and how many alarms there are."""
    from airflow.sdk.observability import stats

    from sterna.operations.measures import region_measures

    for measure in region_measures(status, limits):
        stats.gauge(f"sterna.{measure.name}", measure.value, tags={"region": status.region, **measure.labels})


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
