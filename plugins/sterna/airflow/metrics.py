"""What sterna tells Airflow's statistics (StatsD or OpenTelemetry, as Airflow is configured)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sterna.replica.records import Report


def record_sync(report: Report) -> None:
    """Report how a sync left its region: lag in seconds, tables held, bytes copied."""
    from airflow.sdk.observability import stats

    tags = {"region": report.region}
    stats.gauge("sterna.lag_seconds", report.lag_seconds, tags=tags)
    stats.gauge("sterna.held_tables", len(report.held), tags=tags)
    stats.incr("sterna.copied_bytes", report.copied.sent, tags=tags)


def record_lag(region: str, seconds: float, held: int) -> None:
    """Report a region's lag in seconds and its tables held, measured outside of a sync."""
    from airflow.sdk.observability import stats

    stats.gauge("sterna.lag_seconds", seconds, tags={"region": region})
    stats.gauge("sterna.held_tables", held, tags={"region": region})


def count_watch_error(region: str) -> None:
    """Count one failed look at the head of `main`."""
    from airflow.sdk.observability import stats

    stats.incr("sterna.watch_errors", tags={"region": region})
