"""Announcing as assets what became fresh, and lingering for what comes next."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.assets import announcements, region_asset, replica_asset, transit_asset
from sterna.airflow.base import SternaOperator
from sterna.airflow.metrics import record_sync

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext
    from pydantic import JsonValue

    from sterna.replica.records import Report
    from sterna.replica.region import RegionContext


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
        super().__init__(region=region, **announcing(after_skipped(kwargs)))
        self.replica = region_asset(region)

    def execute(self, context: TaskContext) -> int:
        """Announce, and return the number of tables."""
        return self.announce(context, self.open())

    def announce(self, context: TaskContext, region: RegionContext) -> int:
        """Announce what a region shows, and return the number of tables."""
        from sterna.feed.fresh import fresh_since

        events, name = context["outlet_events"][announcements()], region.region.name
        newest = context["inlet_events"][self.replica].ascending(False).limit(1)
        last = str((newest[0].extra or {}).get("replica_hash", "")) if len(newest) else None
        news = fresh_since(region, last)
        for fresh in news.tables:
            self.say(f"fresh: {fresh.key} at snapshot {fresh.snapshot_id}")
            extra: dict[str, JsonValue] = {
                "replica_hash": fresh.replica_hash,
                "source_hash": fresh.source_hash,
                "snapshot_id": fresh.snapshot_id,
            }
            events.add(replica_asset(name, fresh.key), extra=extra)
        if news.head != last:
            events.add(self.replica, extra={"replica_hash": news.head})
        return len(news.tables)


class SternaLingerOperator(SternaAnnounceOperator):
    """Follow `main` for a while after a publication, and announce what that brought; return the number of tables.

    Commits that follow one another then need no further run each. Airflow stores the events of a task when it ends, and
    not before: so each table is announced once, at the end, and this task never takes longer than it was given. It
    ends at once where something is for the next run, or for the large lane: neither begins before. It stands behind
    `SternaAnnounceOperator`, so that the run's own tables don't wait for it.

    Args:
        linger: for how long.
        kwargs: see `SternaAnnounceOperator`.
    """

    def __init__(self, *, linger: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.linger = linger

    def execute(self, context: TaskContext) -> int:
        """Follow, and announce."""
        from sterna.render.sync import publication_text
        from sterna.sync.follow import Follower, FollowOptions

        def told(report: Report) -> None:
            self.say(publication_text(report))
            record_sync(report)
            want_large_lane(context, report)

        Follower(self.kept(), told, self.say, FollowOptions(yields=True)).run(self.linger.total_seconds())
        return self.announce(context, self.open())


def want_large_lane(context: TaskContext, report: Report) -> None:
    """Start the large lane, where a report says that it is wanted and nobody is at work."""
    if report.large:
        context["outlet_events"][announcements()].add(
            transit_asset(report.region), extra={"reason": "tables are in transit, and no large lane is at work"}
        )


def after_skipped(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that runs also when tasks before it were skipped.

    With nothing to copy no copy task runs, and the stages behind go on. A failed one stops them.
    """
    return {"trigger_rule": "none_failed", **kwargs}


def announcing(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's settings, for one that may announce assets."""
    return {**kwargs, "outlets": [*(kwargs.get("outlets") or ()), announcements()]}
