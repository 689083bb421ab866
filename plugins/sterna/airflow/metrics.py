"""Metrics for Airflow's statistics (StatsD or OpenTelemetry, as Airflow is configured)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from sterna.airflow.settings import get_patterns

if TYPE_CHECKING:
    from sterna.operations.alarms import AlarmLimits
    from sterna.operations.measures import Measure
    from sterna.operations.status.model import RegionStatus
    from sterna.replication.replica.model import Report
    from sterna.runtime.status import ReconcilerStatus

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.\-/]")
_MAX_NAME_LENGTH = 100  # characters: Airflow allows 250 for a metric's name with all of its tags


def record_sync(report: Report) -> None:
    """Report how a sync left its region: its lags in seconds, tables held and in transit, bytes copied, and from where.

    Of the large lane, which changes nothing of that, what it copied.
    """
    from airflow.sdk.observability import stats

    from sterna.operations.measures import lag_measures
    from sterna.replication.replica.lag import held_lag

    if report.outcome != "copied":
        transit_bytes, transit_lag = [table.bytes for table in report.transit], held_lag(report.transit)
        allowed = get_patterns("ignore_held")
        _record(
            report.region,
            lag_measures(report.watermark_lag_seconds, report.held, allowed, transit_bytes, transit_lag),
        )
    stats.incr("sterna.copied_bytes", report.copied.sent, tags={"region": report.region})
    for source, size in report.copied.sent_from.items():
        stats.incr("sterna.copied_from_bytes", size, tags={"region": report.region, "source": source})


def record_status(status: RegionStatus, limits: AlarmLimits) -> None:
    """Report a region's status: what the alert goes by, and how many alarms there are."""
    from sterna.operations.measures import region_measures

    _record(status.region, region_measures(status, limits))


def _record(region: str, measures: Iterable[Measure]) -> None:
    from airflow.sdk.observability import stats

    for measure in measures:
        stats.gauge(f"sterna.{measure.name}", measure.value, tags={"region": region, **measure.labels})


def record_reconcilers(region: str, kind: str, failed: Collection[str], statuses: Sequence[ReconcilerStatus]) -> None:
    """Report consumers that follow a log: a failure of each that failed, and the lag and alarms of each looked at.

    Args:
        kind: of consumers.
        failed: their names; what follows a colon, such as an activity, is left out.
    """
    from airflow.sdk.observability import stats

    for name in dict.fromkeys(name.partition(":")[0] for name in failed):
        stats.incr("sterna.reconciler_failures", tags={"region": region, "kind": kind, "name": to_tag(name)})
    for status in statuses:
        tags = {"region": region, "kind": kind, "name": to_tag(status.name)}
        if status.lag is not None and status.lag_unit == "s":
            stats.gauge("sterna.reconciler_lag_seconds", status.lag, tags=tags)
        stats.gauge("sterna.reconciler_blocked", int(status.blocked is not None), tags=tags)


def to_tag(name: str) -> str:
    """Return a name as a tag's value, with a digest where it differs from the name, so that no two become one.

    Airflow drops a metric whose tags have other characters, or are long.
    """
    tag = _INVALID_CHARACTERS.sub("_", name)[:_MAX_NAME_LENGTH]
    return tag if tag == name else f"{tag}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def count_watch_error(region: str) -> None:
    """Count one failed poll of the head of `main`."""
    from airflow.sdk.observability import stats

    stats.incr("sterna.watch_errors", tags={"region": region})
