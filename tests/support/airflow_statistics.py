"""Reports every metric of sterna to Airflow's statistics, as tasks do: a program, for its Airflow has its own settings.

Region eu has a status, add-ons and a watcher; us has a sync.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sterna.airflow import metrics
from sterna.maintenance.deletion.model import Amount
from sterna.operations.alarms import AlarmLimits
from sterna.operations.objectives import WINDOWS, ObjectiveStatus
from sterna.operations.status.delay_model import DelaySummary, RegionDelays
from sterna.operations.status.model import HeldStatus, InTransitStatus, LaggingRegion, RegionStatus, StorageUsage
from sterna.replication.failover.model import Slot
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report, StageReport
from sterna.runtime.status import ReconcilerStatus, blocked

LIMITS = AlarmLimits(3600.0)
WATCH_ERRORS = 2
_MONTH = timedelta(days=30)


def region_status() -> RegionStatus:
    """Return a status of eu in which every number is known."""
    since = (datetime.now(UTC) - _MONTH).isoformat()
    held, transit = Held("a.held", "Damaged", "not ours", since=since), Held("a.transit", "InTransit", "", since=since)
    return RegionStatus(
        *("eu", "main_replica_eu", "r", "w", "h", _MONTH.total_seconds(), "run-1", since),
        held=(HeldStatus(held, _MONTH.total_seconds(), "wait"),),
        other_registry=(),
        watermark_lag_seconds=0.125,
        slots=(Slot("sterna_eu", active=True, wal_status="extended", behind=2**40, used=0.8125),),
        oldest_evidence=since,
        unseen=("a bucket",),
        stored=StorageUsage(since, *(Amount(1, number * 10**15) for number in (9, 1, 2, 3, 4))),
        transit=(InTransitStatus(transit, 1e-07, 7),),
        transit_lag_seconds=1e-07,
        silent=(LaggingRegion("ap", None),),
        delays=region_delays(),
    )


def region_delays() -> RegionDelays:
    """Return delays with an objective whose budget is exceeded, and one of which nothing is known."""
    objective = ObjectiveStatus(1, ("**",), 60, 0.99, left=-0.25, burn=dict.fromkeys(WINDOWS, 14.5), burning=True)
    windows = (DelaySummary(window, 4, 1, 20, 300, 4000) for window in ("hour", "day", "week"))
    return RegionDelays(windows=tuple(windows), objectives=(objective, ObjectiveStatus(2, ("a.*",), 60, 0.9)))


def sync_report() -> Report:
    """Return how a sync of us ended."""
    copied = StageReport(2, 20, 10, sent_from={"ap": 7})
    return Report("run-1", "us", "h", "published", "r", copied=copied, watermark_lag_seconds=1.5)


def views() -> tuple[ReconcilerStatus, ...]:
    """Return how far two views of features are: one is late and needs an operator, of the other nothing is known."""
    late = ReconcilerStatus("view", "clicks", "", "1", 12.5, "s", (blocked("Damaged", "not ours"),))
    return late, ReconcilerStatus("view", "buys", "", "", None, "s", ())


def main() -> None:
    """Report all of it, with Airflow's statistics as its task runner begins with them."""
    from airflow.sdk.configuration import conf
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    legacy_names = conf.getboolean("metrics", "legacy_names_on")
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy_names)
    metrics.record_sync(sync_report())
    metrics.record_status(region_status(), LIMITS)
    metrics.record_reconcilers("eu", "cdc", ["shop/public.orders: reading", "shop/public.orders: log"], ())
    metrics.record_reconcilers("eu", "cdc", ["shop/public.order lines"], ())
    metrics.record_reconcilers("eu", "features", ["clicks"], views())
    for _ in range(WATCH_ERRORS):
        metrics.count_watch_error("eu")


if __name__ == "__main__":
    main()
