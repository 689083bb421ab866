"""Announcing as assets what became fresh, and following for what comes next."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.assets import asset_alias, region_asset, replica_asset, transit_asset
from sterna.airflow.base import SternaOperator
from sterna.airflow.metrics import record_sync

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext
    from pydantic import JsonValue

    from sterna.replication.replica.model import Report
    from sterna.replication.replica.region import RegionContext


class SternaAnnounceOperator(SternaOperator):
    """Announce as assets what became fresh on the replica branch since the last announcement, by whichever run.

    The last announcement is the newest event of the region's own asset: Airflow stores it together with this task's
    success and the tables' events, so that a task killed in between announces everything again, and nothing is left
    out.

    Args:
        region: name of the region; not a template, because the asset has to be known before any task runs.
        kwargs: see `SternaOperator`.
    """

    template_fields = ("registry",)

    def __init__(self, *, region: str, **kwargs: Any) -> None:
        kwargs["inlets"] = [*(kwargs.get("inlets") or ()), region_asset(region)]
        super().__init__(region=region, **with_asset_outlet(with_none_failed_trigger(kwargs)))
        self.replica = region_asset(region)

    def execute(self, context: TaskContext) -> int:
        """Announce, and return the number of tables."""
        return self.announce(context, self.open())

    def announce(self, context: TaskContext, region: RegionContext) -> int:
        """Announce what a region shows, and return the number of tables."""
        from sterna.notifications.change_log.fresh_tables import read_fresh_tables

        events, name = context["outlet_events"][asset_alias()], region.region.name
        newest_events = context["inlet_events"][self.replica].ascending(False).limit(1)
        last_announced = str((newest_events[0].extra or {}).get("replica_hash", "")) if len(newest_events) else None
        freshness = read_fresh_tables(region, last_announced)
        for table in freshness.tables:
            self.log_progress(f"fresh: {table.key} at snapshot {table.snapshot_id}")
            extra: dict[str, JsonValue] = {
                "replica_hash": table.replica_hash,
                "source_hash": table.source_hash,
                "snapshot_id": table.snapshot_id,
            }
            events.add(replica_asset(name, table.key), extra=extra)
        if freshness.head != last_announced:
            events.add(self.replica, extra={"replica_hash": freshness.head})
        return len(freshness.tables)


class SternaFollowOperator(SternaAnnounceOperator):
    """Follow `main` for a while after a publication, and announce what that brought; return the number of tables.

    Commits that follow one another then need no further run each. Airflow stores the events of a task when it ends, and
    not before: so each table is announced once, at the end, and this task never takes longer than it was given. It
    ends at once where something is for the next run, or for the large lane: neither begins before. It stands behind
    `SternaAnnounceOperator`, so that the run's own tables don't wait for it.

    Args:
        kwargs: see `SternaAnnounceOperator`.
    """

    def __init__(self, *, follow_for: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.follow_for = follow_for

    def execute(self, context: TaskContext) -> int:
        """Follow, and announce."""
        from sterna.replication.sync.follow import Follower, FollowOptions
        from sterna.text.sync import publication_text

        def on_publication(report: Report) -> None:
            self.log_progress(publication_text(report))
            record_sync(report)
            trigger_bulk_lane(context, report)

        Follower(self.open_reloading(), on_publication, self.log_progress, FollowOptions(stop_on_handover=True)).run(
            self.follow_for.total_seconds()
        )
        return self.announce(context, self.open())


def trigger_bulk_lane(context: TaskContext, report: Report) -> None:
    """Start the large lane, where a report says that it is wanted and nobody is at work."""
    if report.large:
        context["outlet_events"][asset_alias()].add(
            transit_asset(report.region), extra={"reason": "tables are in transit, and no bulk run is copying them"}
        )


def with_none_failed_trigger(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that runs also when tasks before it were skipped.

    With nothing to copy no copy task runs, and the stages behind go on. A failed one stops them.
    """
    return {"trigger_rule": "none_failed", **kwargs}


def with_asset_outlet(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that may announce assets."""
    return {**kwargs, "outlets": [*(kwargs.get("outlets") or ()), asset_alias()]}
