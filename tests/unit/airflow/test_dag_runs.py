"""Runs of the DAGs, with the stages played by a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sterna.airflow import dags, operators
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.errors import RegistryError, StoreUnreachable
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.gc import run as gc_run
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.notifications.change_log import fresh_tables
from sterna.notifications.change_log.fresh_tables import Announcement, FreshTable
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import CopyBatch, Report, StageReport
from sterna.replication.sync import follow
from sterna.replication.sync import stages as sync_stages
from tests.unit.airflow.trial import trial_run

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

RUN = "s3://eu-lake/replica/_sterna/runs/run-1"


@dataclass
class Stages:
    """Stands for the stages of a sync: notes what they were called with, and answers what it was told to."""

    idle: bool = False
    batches: int = 2
    more: bool = False
    large: bool = False
    failing: dict[int, list[Exception]] = field(default_factory=dict)
    head: str = "head-1"
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def plan(self, context: object, options: SyncOptions, progress: Any) -> Any:
        from sterna.replication.sync.stages import PlannedRun

        self.calls.append(("plan", options))
        progress("the plan in one line")
        if self.idle:
            return PlannedRun("", (), Report("run-1", "eu", "h", "idle", "r", lag_seconds=0.0, large=self.large))
        return PlannedRun(RUN, tuple(CopyBatch(number, "us-lake", 10, 1000) for number in range(self.batches)))

    def copy(
        self, context: object, run: str, batch: int, progress: Any, *, deadline: float, unavailable: object
    ) -> StageReport:
        assert deadline > 0
        self.calls.append(("copy", run, batch))
        if self.failing.get(batch):
            raise self.failing[batch].pop(0)
        return StageReport(10, 1000, 900)

    def localize(self, context: object, run: str, copied: StageReport, progress: Any) -> StageReport:
        self.calls.append(("localize", run, copied))
        return StageReport(3, 30, 30)

    def publish(self, context: object, run: str, copied: StageReport, localized: StageReport, progress: Any) -> Report:
        self.calls.append(("publish", run, copied, localized))
        return Report(
            "run-1",
            "eu",
            "h",
            "published",
            "r",
            ("shop.orders",),
            copied=copied,
            lag_seconds=2.0,
            more=self.more,
            large=self.large,
            watermark_lag_seconds=2.0,
        )

    def finish_bulk(
        self, context: object, run: str, copied: StageReport, localized: StageReport, progress: Any
    ) -> Report:
        self.calls.append(("arrive", run, copied, localized))
        return Report("run-1", "eu", "h", "copied", "", copied=copied)

    def since(self, context: object, last: str | None) -> Announcement:
        self.calls.append(("since", last))
        news = () if last == self.head else (FreshTable("shop.orders", "r", "h", 7, "s3://eu-lake/m.json"),)
        return Announcement(self.head, news)

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def stages(known_dags: None, monkeypatch: pytest.MonkeyPatch, metrics: dict[str, float]) -> Stages:
    from types import SimpleNamespace

    stages = Stages()
    monkeypatch.setattr(dags, "RemedyRetryPolicy", partial(RemedyRetryPolicy, delay=timedelta(seconds=0.1)))
    for name in ("plan", "copy", "localize", "publish", "finish_bulk"):
        monkeypatch.setattr(sync_stages, name, getattr(stages, name))
    monkeypatch.setattr(fresh_tables, "read_fresh_tables", stages.since)
    monkeypatch.setattr(
        operators.SternaOperator, "open", lambda self: SimpleNamespace(region=SimpleNamespace(name="eu"))
    )
    return stages


@pytest.fixture
def events() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Announced assets, filled in by `_run`; the table of events is empty before and after."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    def clear() -> None:
        with create_session() as session:
            for event in session.query(AssetEvent):
                session.delete(event)

    clear()
    yield []
    clear()


def _events() -> list[tuple[str, dict[str, Any]]]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        return [(event.asset.uri, event.extra) for event in session.query(AssetEvent).order_by(AssetEvent.id)]


def _run(_dag_id: str = "sterna_sync", **conf: Any) -> DagRun:
    return trial_run(_dag_id, conf)


def _states(run: Any) -> dict[str, list[str]]:
    states: dict[str, list[str]] = {}
    for task in sorted(run.get_task_instances(), key=lambda task: (task.task_id, task.map_index)):
        states.setdefault(task.task_id, []).append(str(task.state))
    return states


@pytest.mark.parametrize(
    ("conf", "asked"),
    [
        ({}, GcOptions(delete=True)),
        (
            {"dry_run": True, "keep": "2d", "grace": "3h", "evict": True},
            GcOptions(timedelta(days=2), timedelta(hours=3), evict=True),
        ),
    ],
)
def test_a_clean_up_does_what_it_is_asked_for(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], asked: GcOptions
) -> None:
    calls: list[GcOptions] = []

    def collect(context: object, options: GcOptions, progress: Any) -> GcReport:
        calls.append(options)
        some = Amount(3, 30)
        return GcReport(
            region="eu",
            pass_id="collect-1",
            replica_hash="r",
            dry_run=not options.delete,
            objects=some,
            strange=Amount(),
            unreachable=some,
            garbage=some,
            refused=Amount(),
        )

    monkeypatch.setattr(gc_run, "run_gc", collect)
    run = trial_run("sterna_gc", conf)
    assert str(run.state) == "success"
    assert calls == [asked]
    (task,) = run.get_task_instances()
    assert task.xcom_pull(task_ids="gc")["garbage_bytes"] == 30


@pytest.mark.usefixtures("events")
def test_a_sync_goes_through_all_stages(stages: Stages, metrics: dict[str, float]) -> None:
    run = _run(tables=["o'clock <x>"], files_per_batch=7)
    assert _states(run) == {
        "plan": ["success"],
        "copy": ["success"] * 2,
        "localize": ["success"],
        "publish": ["success"],
        "announce": ["success"],
    }
    copied = StageReport(20, 2000, 1800)
    assert stages.calls[0] == ("plan", SyncOptions(tables=("o'clock <x>",), files_per_batch=7, lane="small"))
    assert sorted(stages.calls[1:3]) == [("copy", RUN, 0), ("copy", RUN, 1)]
    assert stages.calls[3:] == [
        ("localize", RUN, copied),
        ("publish", RUN, copied, StageReport(3, 30, 30)),
        ("since", None),
    ]
    assert {task.rendered_map_index for task in run.get_task_instances() if task.task_id == "copy"} == {
        "us-lake 10 files 1 kB"
    }
    assert metrics == {
        "sterna.lag_seconds": 2.0,
        "sterna.watermark_lag_seconds": 2.0,
        "sterna.held_lag_seconds": 0.0,
        "sterna.held_tables": 0,
        "sterna.held_ignored_tables": 0,
        "sterna.transit_tables": 0,
        "sterna.transit_bytes": 0,
        "sterna.transit_lag_seconds": 0.0,
        "sterna.copied_bytes": 1800,
    }
    assert _events() == [
        ("sterna://eu/shop.orders", {"replica_hash": "r", "source_hash": "h", "snapshot_id": 7}),
        ("sterna://eu/", {"replica_hash": "head-1"}),
    ]


@pytest.mark.usefixtures("events")
def test_with_nothing_to_copy_the_rest_still_runs(stages: Stages) -> None:
    stages.batches = 0
    assert _states(_run())["copy"] == ["skipped"]
    assert stages.names == ["plan", "localize", "publish", "since"]
    assert stages.calls[1] == ("localize", RUN, StageReport())


@pytest.mark.usefixtures("events")
def test_with_nothing_to_do_only_a_lost_announcement_is_made_up_for(stages: Stages, metrics: dict[str, float]) -> None:
    stages.idle = True
    run = _run()
    assert stages.names == ["plan", "since"]
    states = _states(run)
    assert [states[name] for name in ("copy", "localize", "publish")] == [["skipped"]] * 3
    assert metrics["sterna.lag_seconds"] == 0.0
    assert [uri for uri, _ in _events()] == ["sterna://eu/shop.orders", "sterna://eu/"]
    _run()
    assert stages.calls[-1] == ("since", "head-1")
    assert len(_events()) == 2


@pytest.mark.usefixtures("events")
def test_a_dry_run_only_explains(stages: Stages) -> None:
    run = _run(dry_run=True)
    assert stages.names == ["plan"]
    assert str(run.state) == "success"
    assert _events() == []


@pytest.mark.usefixtures("events")
def test_more_to_do_starts_the_next_run_through_main_s_asset(stages: Stages) -> None:
    stages.more = True
    _run()
    assert "sterna://eu/main" in [uri for uri, _ in _events()]


@pytest.mark.usefixtures("events")
def test_tables_in_transit_start_the_large_lane(stages: Stages) -> None:
    _run()
    assert "sterna://eu/transit" not in [uri for uri, _ in _events()]
    stages.large = True
    _run()
    assert "sterna://eu/transit" in [uri for uri, _ in _events()]


@pytest.mark.usefixtures("events")
def test_tables_that_a_follower_put_in_transit_start_the_large_lane_too(stages: Stages) -> None:
    stages.idle = stages.large = True
    assert str(_run(dry_run=True).state) == "success"
    assert _events() == []
    assert str(_run().state) == "success"
    assert "sterna://eu/transit" in [uri for uri, _ in _events()]


@dataclass
class FakeFollower:
    """Stands for a follower: publishes once, or fails."""

    stages: Stages
    error: Exception | None = None
    large: bool = False
    seconds: list[float] = field(default_factory=list)

    def __call__(self, region: object, on_published: Any, notify: Any, options: Any) -> FakeFollower:
        assert options.stop_on_handover, "neither the next run nor the large lane begins before this task has ended"
        self.on_published = on_published
        return self

    def run(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self.error:
            raise self.error
        self.stages.head = "head-2"
        lag: Any = {"lag_seconds": 0.5, "watermark_lag_seconds": 0.5}
        self.on_published(
            Report("run-2", "eu", "h2", "published", "r2", published=("shop.orders",), large=self.large, **lag)
        )


@pytest.fixture
def following(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> FakeFollower:
    follower = FakeFollower(stages)
    monkeypatch.setattr(follow, "Follower", follower)
    monkeypatch.setenv("AIRFLOW__STERNA__FOLLOW_FOR", "90s")
    return follower


@pytest.mark.usefixtures("events")
def test_after_a_publication_a_run_lingers_and_announces_what_that_brought(
    stages: Stages, following: FakeFollower, metrics: dict[str, float]
) -> None:
    run = _run()
    assert _states(run)["linger"] == ["success"]
    assert following.seconds == [90.0]
    # The run's own tables are announced before it lingers: they don't wait for its end.
    assert stages.names[-3:] == ["publish", "since", "since"]
    assert stages.calls[-1] == ("since", "head-1")
    assert [uri for uri, _ in _events()] == ["sterna://eu/shop.orders", "sterna://eu/"] * 2
    assert metrics["sterna.lag_seconds"] == 0.5


@pytest.mark.usefixtures("events")
def test_what_is_put_in_transit_while_a_run_lingers_starts_the_large_lane(following: FakeFollower) -> None:
    following.large = True
    assert str(_run().state) == "success"
    assert "sterna://eu/transit" in [uri for uri, _ in _events()]


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize("conf", [{}, {"dry_run": True}])
def test_a_run_that_published_nothing_does_not_linger(
    stages: Stages, following: FakeFollower, conf: dict[str, Any]
) -> None:
    stages.idle = not conf
    run = _run(**conf)
    assert (_states(run)["linger"], following.seconds) == (["skipped"], [])
    assert str(run.state) == "success"


@pytest.mark.usefixtures("events")
def test_an_error_that_waits_for_somebody_fails_the_lingering_and_what_was_published_stays_announced(
    stages: Stages, following: FakeFollower
) -> None:
    following.error = RegistryError("the registry is wrong")
    run = _run()
    assert (_states(run)["linger"], _states(run)["announce"]) == (["failed"], ["success"])
    assert [uri for uri, _ in _events()] == ["sterna://eu/shop.orders", "sterna://eu/"]
    assert len(following.seconds) == 1


@pytest.mark.usefixtures("events")
def test_the_large_lane_goes_through_its_stages_and_starts_the_sync(stages: Stages, metrics: dict[str, float]) -> None:
    run = _run("sterna_large")
    assert str(run.state) == "success"
    assert stages.names == ["plan", "copy", "copy", "localize", "arrive"]
    assert stages.calls[0] == ("plan", SyncOptions(lane="large"))
    assert stages.calls[-1] == ("arrive", RUN, StageReport(20, 2000, 1800), StageReport(3, 30, 30))
    assert [uri for uri, _ in _events()] == ["sterna://eu/main"]
    assert metrics == {"sterna.copied_bytes": 1800}


@pytest.mark.usefixtures("events")
def test_with_nothing_in_transit_the_large_lane_ends_after_its_plan(stages: Stages, metrics: dict[str, float]) -> None:
    stages.idle = True
    states = _states(_run("sterna_large"))
    assert [states[name] for name in ("copy", "localize", "arrive")] == [["skipped"]] * 3
    assert stages.names == ["plan"]
    assert (_events(), metrics) == ([], {})


@pytest.mark.usefixtures("events")
def test_a_batch_that_cannot_be_copied_stops_the_run_before_anything_is_published(stages: Stages) -> None:
    stages.failing[1] = [RegistryError("the registry is wrong")]
    run = _run()
    assert str(run.state) == "failed"
    assert _states(run)["copy"] == ["success", "failed"]
    assert stages.names == ["plan", "copy", "copy"]
    assert _events() == []


@pytest.mark.usefixtures("events")
def test_a_batch_is_repeated_where_that_helps(stages: Stages) -> None:
    stages.failing[0] = [StoreUnreachable("no answer"), StoreUnreachable("no answer")]
    run = _run()
    assert str(run.state) == "success"
    assert stages.names.count("copy") == 4
