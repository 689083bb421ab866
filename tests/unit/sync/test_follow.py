"""Following `main` in one process: what is small is published at once, in order, whatever else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sterna.errors import CatalogUnreachable, Diverged, SternaError, StoreUnreachable
from sterna.replication.replica import reloading_region, retry
from sterna.replication.replica.head import read_head
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.reloading_region import ReloadingRegion
from sterna.replication.sync import stages
from sterna.replication.sync.follow import Follower, FollowerLimits, FollowOptions
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import (
    World,
    gone,
    here,
    planned,
    refusing,
    run,
    with_registry,
    with_third_region,
    written_elsewhere,
)
from tests.unit.sync.test_bulk_copy import LARGE, begun, brought, small, with_lanes

QUICK = FollowOptions(
    busy_poll_seconds=0.01,
    idle_poll_seconds=0.02,
    bulk_poll_seconds=0.05,
    initial_backoff_seconds=0.02,
    max_backoff_seconds=0.1,
)


@dataclass
class Watching:
    """A follower in a thread, and what it tells."""

    world: World
    options: FollowOptions = QUICK
    reports: list[Report] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    opened: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._context: RegionContext | None = None
        self.follower = Follower(self, self.reports.append, self.lines.append, self.options, engine=here)
        self._thread = threading.Thread(target=self._run)

    def current(self) -> RegionContext:
        if self._context is None:
            self.opened += 1
            self._context = self.world.context()
        return self._context

    def disconnect(self) -> None:
        self._context = None

    def _run(self) -> None:
        try:
            self.follower.run()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.follower.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def until(self, what: Callable[[], Any], seconds: float = 20) -> None:
        """Wait for something."""
        paused = threading.Event()
        for _ in range(int(seconds / 0.01)):
            if what() or self.error:
                break
            paused.wait(0.01)
        assert what(), (self.lines, self.error)

    def until_at(self, hash: str) -> None:
        """Wait until the replica stands for a commit of main."""
        self.until(lambda: watermark(self.world) == hash)


def watermark(world: World) -> str:
    return read_head(world.catalog, "main_replica_eu").watermark


def log_of(world: World) -> list[str]:
    """The commits of main that the replica branch stood for, oldest first."""
    hashes = [
        commit.properties["sterna.source-hash"] for commit in world.catalog.history("main_replica_eu", operations=False)
    ]
    return hashes[::-1]


def assert_whole(world: World) -> None:
    assert verify_structure(world.context()).findings == ()


def test_commits_are_published_one_after_the_other_and_told(world: World) -> None:
    with Watching(world) as watching:
        for rows in range(1, 5):
            watching.until_at(world.commit(a=world.write("a", rows=rows)))
        watching.until(lambda: len(watching.reports) >= 4)
    heads = [commit.hash for commit in world.catalog.history("main", operations=False)][::-1]
    assert [report.source_hash for report in watching.reports if report.published] == heads
    assert log_of(world)[-4:] == heads
    assert watching.lines == [] and watching.opened == 1
    assert_whole(world)


def test_everything_is_opened_anew_now_and_then(world: World) -> None:
    with Watching(
        world, FollowOptions(busy_poll_seconds=0.01, idle_poll_seconds=0.02, reopen_after_syncs=2)
    ) as watching:
        for _ in range(4):
            watching.until_at(world.commit(a=world.write("a")))
        watching.until(lambda: watching.opened >= 3)
    assert watching.lines == []


def test_nothing_is_committed_while_main_stands_still(world: World) -> None:
    head = world.commit(a=world.write("a"))
    with Watching(world) as watching:
        watching.until_at(head)
        before = log_of(world)
        threading.Event().wait(0.3)
    assert log_of(world) == before
    assert [report.outcome for report in watching.reports] == ["published"]


@pytest.mark.parametrize(
    ("small", "why"),
    [
        (FollowerLimits(max_bytes=10_000), "bytes to copy, more than 10000"),
        (FollowerLimits(max_files=0), "files to copy and localize"),
    ],
)
def test_a_large_plan_is_left_to_others_and_said_so_once(world: World, small: FollowerLimits, why: str) -> None:
    world.commit(a=world.write("a", 50_000))
    options = FollowOptions(
        small, busy_poll_seconds=0.01, idle_poll_seconds=0.02, initial_backoff_seconds=0.02, max_backoff_seconds=0.1
    )
    with Watching(world, options) as watching:
        watching.until(lambda: watching.lines)
        threading.Event().wait(0.4)
        assert world.catalog.references()[0].name == "main" and len(world.catalog.references()) == 1
        (line,) = watching.lines
        assert line.startswith("left to the DAG: ") and why in line
        run(world)  # the DAG
        if small.max_files:
            watching.until_at(world.commit(b=world.write("b")))
            watching.until(lambda: watching.reports and watching.reports[-1].published == ("ns.b",))
    runs = world.folder / "eu" / "replica" / "_sterna" / "runs"
    kept_of = [{file.name for file in folder.rglob("*") if file.is_file()} for folder in runs.iterdir()]
    assert [names for names in kept_of if names and "report.json" not in names] == [], "a plan that was left stays"
    assert_whole(world)


def test_whoever_keeps_others_from_beginning_ends_for_what_is_left_to_them(world: World) -> None:
    world.commit(a=world.write("a", 50_000))
    options = replace(QUICK, limits=FollowerLimits(max_bytes=10_000), stop_on_handover=True)
    with Watching(world, options) as watching:
        watching.until(lambda: watching.follower.stop.is_set())
    assert [line.partition(":")[0] for line in watching.lines] == ["left to the DAG"]
    assert watching.reports == []


def test_whoever_keeps_others_from_beginning_ends_for_the_large_lane(world: World) -> None:
    regions = [{**region, "bulk_copy_threshold": 20_000} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    world.commit(a=world.write("a", 50_000), b=world.write("b"))
    with Watching(world, replace(QUICK, stop_on_handover=True)) as watching:
        watching.until(lambda: watching.follower.stop.is_set())
    (report,) = watching.reports
    assert ("ns.b" in report.published, "ns.a" in report.published, report.large) == (True, False, True)


def test_what_is_for_spark_is_left_to_others(world: World) -> None:
    regions = [{**region, "localize": "spark"} for region in world.registry.model_dump()["regions"]]
    with Watching(with_registry(world, regions=regions)) as watching:
        world.commit(a=world.write("a"))
        watching.until(lambda: any("files are for Spark" in line for line in watching.lines))


def test_what_is_in_transit_holds_up_no_other(world: World) -> None:
    regions = [{**region, "bulk_copy_threshold": 10_000} for region in world.registry.model_dump()["regions"]]
    limited = with_registry(world, regions=regions)
    limited.commit(big=limited.write("big", 50_000))
    limited.commit(a=limited.write("a"))
    with Watching(limited) as watching:
        watching.until(lambda: any("ns.a" in report.published for report in watching.reports))
        assert [item.key for item in watching.reports[-1].transit] == ["ns.big"]
        assert watching.reports[-1].large
        run(limited)  # brings it
        watching.until_at(limited.commit(a=limited.write("a")))
    assert {"ns.a", "ns.big"} <= limited.replica().keys()
    assert_whole(limited)


def test_two_followers_and_a_sync_publish_each_commit_once(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    with Watching(world) as one, Watching(world) as two:
        for number in range(6):
            head = world.commit(a=world.write("a", rows=number + 1))
            if number % 2:
                run(world)
            one.until_at(head)
    published = [report.source_hash for report in (*one.reports, *two.reports) if report.published]
    assert len(published) == len(set(published))
    ids = [c.properties["sterna.run-id"] for c in world.catalog.history("main_replica_eu", operations=False)]
    assert len(ids) == len(set(ids))
    assert one.lines == two.lines == []
    assert_whole(world)


def test_an_overtaken_sync_gives_up_quietly_and_looks_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, first, overtaken = stages.localize, threading.Event(), threading.Event()

    def localize(*arguments: Any, **options: Any) -> Any:
        if not first.is_set():
            first.set()
            run(world)
            overtaken.set()
        return real(*arguments, **options)

    monkeypatch.setattr(stages, "localize", localize)
    world.commit(a=world.write("a"))
    with Watching(world) as watching:
        watching.until(overtaken.is_set)
        watching.until_at(world.commit(b=world.write("b")))
    assert [report.published for report in watching.reports] == [("ns.b",)]
    assert watching.lines == []


@pytest.mark.parametrize("yields", [True, False])
def test_what_the_large_lane_brings_is_published_though_main_is_quiet(
    world: World, yields: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_lanes(world)
    world.commit(small=world.write("small"))
    run(world)
    world.commit(big=world.write("big", LARGE))
    assert small(world).large
    with Watching(world, replace(QUICK, stop_on_handover=yields)) as watching:
        watching.until(lambda: watching.follower.in_transit)
        assert [item.key for item in watching.follower.in_transit] == ["ns.big"]
        round, real, failed = begun(world), stages.plan, threading.Event()

        def plan(*arguments: Any, **options: Any) -> Any:
            if not failed.is_set():
                failed.set()
                raise StoreUnreachable("dark for a moment")
            return real(*arguments, **options)

        monkeypatch.setattr(stages, "plan", plan)
        brought(world, round)
        watching.until(lambda: watching.reports)
    assert [report.published for report in watching.reports] == [("ns.big",)]
    assert failed.is_set() and watching.lines[0] == "follow: StoreUnreachable: dark for a moment"
    assert_whole(world)


def test_a_dark_catalog_is_waited_for_and_told_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    dark, real = threading.Event(), type(world.catalog).reference

    def reference(catalog: Any, name: str) -> Any:
        if dark.is_set() and threading.current_thread() is not threading.main_thread():
            raise CatalogUnreachable("no answer")
        return real(catalog, name)

    monkeypatch.setattr(type(world.catalog), "reference", reference)
    with Watching(world) as watching:
        watching.until_at(world.commit(a=world.write("a")))
        dark.set()
        head = world.commit(b=world.write("b"))
        watching.until(lambda: watching.lines)
        watching.until(lambda: watching.follower.failures > 2)
        assert watching.lines == ["follow: CatalogUnreachable: no answer"]
        dark.clear()
        watching.until_at(head)
        watching.until(lambda: len(watching.lines) > 1)
    assert watching.lines[1].startswith("continues after")
    assert watching.opened > 2


def test_an_answer_that_was_lost_publishes_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = stages.publish

    def publish(*arguments: Any, **options: Any) -> Any:
        world.catalog.lose_next_answer()
        return real(*arguments, **options)

    monkeypatch.setattr(stages, "publish", publish)
    heads = [world.commit(a=world.write("a"))]
    with Watching(world) as watching:
        watching.until_at(heads[0])
        heads.append(world.commit(a=world.write("a")))
        watching.until_at(heads[1])
    assert log_of(world) == heads
    assert_whole(world)


def test_a_broken_table_is_held_and_the_others_go_on(world: World) -> None:
    with Watching(world) as watching:
        watching.until_at(world.commit(a=world.write("a")))
        world.commit(bad=gone(world, "bad"))
        watching.until_at(world.commit(a=world.write("a")))
        watching.until(lambda: watching.reports[-1].published == ("ns.a",))
        assert [item.key for item in watching.reports[-1].held] == ["ns.bad"]
        watching.until_at(world.commit(bad=world.write("bad")))
        watching.until(lambda: watching.reports[-1].held == ())
    assert {"ns.a", "ns.bad"} <= world.replica().keys()


def test_what_a_dark_store_holds_is_tried_again_without_a_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "INITIAL_DELAY_SECONDS", 0.2)
    wide = with_third_region(world)
    wide.write("far")
    location = written_elsewhere(wide, "far")
    with Watching(wide) as watching:
        with refusing(f"file://{wide.folder}/ap/", StoreUnreachable):
            wide.commit(a=wide.write("a"))
            wide.commit(far=location)
            watching.until(lambda: watching.reports and [item.key for item in watching.reports[-1].held] == ["ns.far"])
        watching.until(lambda: "ns.far" in wide.replica())


def test_main_reset_behind_the_watermark_ends_it(world: World) -> None:
    first = world.commit(a=world.write("a"))
    second = world.commit(b=world.write("b"))
    with Watching(world) as watching:
        watching.until_at(second)
        world.catalog.assign("main", first)
        watching.until(lambda: watching.error)
    assert isinstance(watching.error, Diverged)


def test_an_error_that_nobody_expects_is_told_and_survived(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failing = stages.publish, [ValueError("a bug"), ValueError("a bug")]

    def publish(*arguments: Any, **options: Any) -> Any:
        if failing:
            raise failing.pop()
        return real(*arguments, **options)

    monkeypatch.setattr(stages, "publish", publish)
    with Watching(world) as watching:
        watching.until_at(world.commit(a=world.write("a")))
    assert watching.lines[0].startswith("follow: EngineError: an unexpected error: ValueError;")
    assert "a bug" not in watching.lines[0], "it may hold a secret"


@contextmanager
def interrupted_at(name: str, when: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal comes before a stage, or after it."""
    real = getattr(stages, name)

    def stage(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            raise KeyboardInterrupt
        real(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stages, name, stage)
        yield


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["plan", "copy", "localize", "publish"])
def test_an_interruption_leaves_nothing_torn(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    world.commit(a=world.write("a"))
    run(world)
    head = world.commit(a=world.write("a"), b=world.write("b"))
    with interrupted_at(name, when, monkeypatch), pytest.raises(KeyboardInterrupt):
        Watching(world).follower.run()
    assert_whole(world)
    published = (name, when) == ("publish", "after")
    assert ("ns.b" in world.replica()) is published
    assert planned(world).idle is published
    with Watching(world) as watching:
        watching.until_at(head)
    assert {"ns.a", "ns.b"} <= world.replica().keys()
    assert len(log_of(world)) == 2
    assert_whole(world)


def test_it_ends_by_itself_after_the_time_that_it_was_given(world: World) -> None:
    world.commit(a=world.write("a"))
    watching = Watching(world)
    watching.follower.run(0.3)
    assert [report.published for report in watching.reports] == [("ns", "ns.a")]


def test_a_registry_that_changes_is_read_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = world.folder / "registry.yaml", []

    def open_region(*_: Any) -> RegionContext:
        opened.append(path.read_text())
        return world.context()

    monkeypatch.setattr(reloading_region, "open_region", open_region)
    path.write_text("one")
    region = ReloadingRegion(path, "eu", lambda name: None)  # type: ignore[arg-type, return-value]
    assert region.current() is region.current()
    path.write_text("two")
    region.current()
    region.disconnect()
    region.current()
    assert opened == ["one", "two", "two"]
    path.unlink()
    with pytest.raises(SternaError, match="can't read the registry"):
        region.current()
