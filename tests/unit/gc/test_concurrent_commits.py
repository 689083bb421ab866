"""Clean-ups and syncs at the same time: nothing that a sync counts on goes, and each of them gets on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.catalog.model import Commit, Delete, Unchanged
from sterna.config.registry import run_names
from sterna.errors import Busy, CatalogConflict, CatalogStateUnknown
from sterna.maintenance.deletion import delete as cleaning_deleting
from sterna.maintenance.gc import fencing as gc_fence
from sterna.maintenance.gc import scope as deleting
from sterna.maintenance.gc.evidence import PendingRuns
from sterna.maintenance.gc.fencing import fence
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.run import run_gc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica import head as replica_head
from sterna.replication.replica.head import newest_commit, read_head
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.sync import stages
from sterna.storage.objects import Objects
from tests.support.gc import after, assert_closed, clean, files, much_later, rewritten
from tests.support.regions import injected
from tests.support.small_world import World, here, no_secrets, quiet, run


def in_flight(world: World) -> str:
    """A sync that is between plan and publication; its run's folder."""
    world.commit(b=world.write("b"))
    return stages.plan(world.context(), SyncOptions(), quiet).run


def finish(world: World, folder: str) -> Report:
    context = world.context()
    plan = stages.load_plan(context, folder)
    copied = sum((stages.copy(context, folder, batch.number, quiet) for batch in plan.batches), StageReport())
    return stages.publish(context, folder, copied, stages.localize(context, folder, copied, quiet, here), quiet)


def head_of(world: World) -> Commit:
    commit = newest_commit(world.catalog, "main_replica_eu")
    assert commit is not None
    return commit


def soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files look old and heads be out of the window, and a pass see it, so that a clean-up of right now has
    something to do.
    """
    listing = Objects.list

    def older(self: Objects, prefix: str, **options: Any):
        for uri, size, modified in listing(self, prefix, **options):
            yield uri, size, modified if "/_sterna/runs/" in uri else modified - timedelta(days=3)

    monkeypatch.setattr(Objects, "list", older)
    now_clean(world, delete=False)


def now_clean(world: World, **options: Any) -> GcReport:
    return clean(world, datetime.now(UTC), keep=timedelta(0), **options)


def test_nothing_is_deleted_while_a_sync_is_in_flight(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    soon(world, monkeypatch)
    run_id = in_flight(world).rpartition("/")[2]
    before = files(world)
    assert now_clean(world, delete=False).in_flight == (run_id,)
    with pytest.raises(Busy, match=run_id):
        now_clean(world)
    assert files(world) == before
    assert finish(world, f"file://{world.folder}/eu/replica/_sterna/runs/{run_id}").outcome == "published"
    assert now_clean(world).deleted.files > 0
    assert_closed(world)


@pytest.mark.parametrize("text", [b"", b"{", b"not JSON", b"{}", b'{"version": 999}'], ids=repr)
def test_a_sync_whose_plan_can_not_be_read_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch, text: bytes):
    """It may be a newer version's, and about to be published."""
    rewritten(world)
    soon(world, monkeypatch)
    run_id = in_flight(world).rpartition("/")[2]
    (world.folder / "eu/replica/_sterna/runs" / run_id / run_names.PLAN).write_bytes(text)
    before = files(world)
    assert now_clean(world, delete=False).in_flight == (run_id,)
    with pytest.raises(Busy, match=run_id):
        now_clean(world)
    assert files(world) == before


def test_a_sync_that_was_planned_for_another_head_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    soon(world, monkeypatch)
    in_flight(world)
    run(world)
    report = now_clean(world)
    assert report.in_flight == ()
    assert report.deleted.files > 0


def old_file_reused(world: World) -> tuple[Path, Callable[[], None]]:
    """A data file that is garbage here, and a commit that makes `main` name it again."""
    first = world.write("a")
    world.commit(a=first)
    run(world)
    (data,) = (world.folder / "eu/replica/us-lake").rglob("*.parquet")
    world.commit(a=None)
    run(world)
    return data, lambda: world.commit(a=first) and None


def test_a_sync_that_found_an_old_file_before_the_deletion_is_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    again()
    context = world.context()
    plan, listed = make_plan(context, SyncOptions())
    assert plan.present_files == 1, "the plan counts on the old file"
    # Its plan isn't written down yet, so that the clean-up can't know of it.
    assert now_clean(world).deleted.files > 0
    assert not data.exists()
    folder = stages.run_folder.save_plan(context, plan, listed)
    report = finish(world, folder)
    assert report.outcome == "superseded"
    assert report.more, "somebody has to plan again"
    assert run(world).outcome == "published"
    assert data.exists()
    assert_closed(world)


def test_a_sync_between_its_look_and_its_plan_goes_on_by_itself(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    again()
    save = stages.run_folder.save_plan
    swept: list[GcReport] = []

    def slow(*args: Any) -> str:
        if not swept:
            swept.append(now_clean(world))
        return save(*args)

    monkeypatch.setattr(stages.run_folder, "save_plan", slow)
    report = run(world)
    assert swept[0].deleted.files > 0
    assert report.outcome == "published"
    assert data.exists()
    assert_closed(world)


@pytest.mark.parametrize("before", ["newest_commit", "fence"])
def test_an_old_file_that_a_sync_took_up_again_before_the_deletion_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, before: str
):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    real, published = getattr(deleting, before), []

    def published_meanwhile(*args: Any) -> Any:
        if not published:
            again()
            published.append(run(world))
        return real(*args)

    monkeypatch.setattr(deleting, before, published_meanwhile)
    now_clean(world, max_wait_seconds=60.0)
    assert published
    assert data.exists()
    assert_closed(world)


class BusyCatalog:
    """A catalog beside which writers commit, and syncs follow one another without a pause: one is published, and the
    next one planned, at every fourth call to it, and whenever a clean-up sleeps.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls = 0
        self._busy = False
        self._flying = ""
        self.outcomes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._world.catalog, name)
        if callable(attribute):
            self._calls += 1
            if self._calls % 4 == 0:
                self.go_on()
        return attribute

    def go_on(self, seconds: float = 0.0) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            if self._flying:
                self.outcomes.append(finish(self._world, self._flying).outcome)
            self._flying = ""
            self._flying = in_flight(self._world)
        except Busy:
            self.outcomes.append("waits")
        finally:
            self._busy = False


def test_a_clean_up_gets_on_while_syncs_follow_one_another(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    soon(world, monkeypatch)
    catalog = BusyCatalog(world)
    context = injected(world.registry, "eu", no_secrets, catalog=catalog, primary=catalog)
    monkeypatch.setattr(cleaning_deleting, "MAX_PART_FILES", 1)
    slices: list[str] = []
    monkeypatch.setattr(deleting.Fence, "has_time", property(lambda fence: fence.hash not in slices))
    real = Objects.delete

    def one(self: Objects, uris: Any, **options: Any) -> Any:
        if "may_continue" in options:  # a sync takes away what its own stages left
            slices.append(next(iter(world.catalog.history("main_replica_eu", operations=False))).hash)
        return real(self, uris, **options)

    monkeypatch.setattr(Objects, "delete", one)
    monkeypatch.setattr(deleting, "time", SimpleNamespace(monotonic=time.monotonic, sleep=catalog.go_on))
    report = run_gc(context, GcOptions(keep=timedelta(0), delete=True, max_wait_seconds=60.0))
    assert report.deleted.files == report.garbage.files == len(slices) > 2
    assert catalog.outcomes.count("published") > len(slices), "syncs got on, too"
    assert_closed(world)


def test_what_began_before_is_not_listed_again(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    flying = in_flight(world)
    listing, asked = Objects.list, []

    def watched(self: Objects, prefix: str, *, after: str = "") -> Any:
        if prefix.endswith("/runs"):
            asked.append(after)
        return listing(self, prefix, after=after)

    monkeypatch.setattr(Objects, "list", watched)
    now = datetime.now(UTC)
    runs, head = PendingRuns(world.context(), now, timedelta(hours=24)), head_of(world).hash
    name = flying.rpartition("/")[2]
    assert runs.in_flight(head) == (name,)
    assert runs.in_flight(head) == (name,)
    assert asked == [
        format_timestamp(now - timedelta(hours=25)),
        format_timestamp(parse_start_time(name) - timedelta(hours=1)),
    ]
    assert runs.still_in_flight([name], "another head") == ()
    finish(world, flying)
    assert runs.still_in_flight([name], head) == ()
    assert len(asked) == 2


def test_no_sync_is_planned_while_files_are_being_deleted(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    again()
    delete, seen = Objects.delete, []

    def watched(self: Objects, uris: Any, **options: Any) -> Any:
        with pytest.raises(Busy, match="collect-"):
            run(world)
        seen.append(uris)
        return delete(self, uris, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", watched)
        now_clean(world)
    assert seen
    assert run(world).outcome == "published"
    assert data.exists()
    assert_closed(world)


def test_what_is_published_while_the_store_is_listed_is_not_taken_for_unreachable(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.commit(a=world.write("a"))
    run(world)
    listing = Objects.list

    def slow(self: Objects, prefix: str, **options: Any) -> Any:
        if prefix.endswith("/replica") and not files(world, "/b/"):
            world.commit(b=world.write("b"))
            run(world)
        return listing(self, prefix, **options)

    monkeypatch.setattr(Objects, "list", slow)
    report = clean(world, after(), delete=False)
    assert files(world, "/b/")
    assert report.unreachable.files == 0


def test_a_clean_up_that_was_killed_stops_counting_and_the_next_one_finishes(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    rewritten(world)
    clean(world)
    delete = Objects.delete

    def killed(self: Objects, uris: list[str], **options: Any) -> Any:
        delete(self, uris[: len(uris) // 2], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", killed)
        # The process is gone before it can take its fence down.
        patched.setattr(gc_fence, gc_fence.commit_fence.__name__, _first_only(world))
        with pytest.raises((KeyboardInterrupt, CatalogStateUnknown)):
            clean(world, much_later())
    assert read_head(world.catalog, "main_replica_eu").is_gc_running
    world.commit(b=world.write("b"))
    with pytest.raises(Busy):
        run(world)
    with pytest.raises(Busy, match="another clean-up"):
        clean(world, much_later())
    monkeypatch.setattr(replica_head, "GC_EXPIRY_SECONDS", 0.0)
    assert clean(world, much_later()).deleted.files > 0
    assert clean(world, much_later()).garbage.files == 0
    assert run(world).outcome == "published"
    assert_closed(world)


@pytest.mark.parametrize("skew", [timedelta(minutes=-16), timedelta(minutes=16), timedelta(hours=3)], ids=str)
def test_clocks_that_differ_don_t_let_a_sync_through_while_files_go(
    world: World, monkeypatch: pytest.MonkeyPatch, skew: timedelta
):
    """Between the catalog's host, which says when the fence was made, and the sync's."""
    rewritten(world)
    with fence(world.context(), head_of(world), "collect-x"):
        world.commit(b=world.write("b"))
        now = datetime.now
        skewed = SimpleNamespace(now=lambda zone: now(zone) + skew, fromisoformat=datetime.fromisoformat)
        monkeypatch.setattr(replica_head, "datetime", skewed)
        with pytest.raises(Busy):
            make_plan(world.context())
    assert make_plan(world.context())[0].actions


def test_one_that_was_killed_stops_counting_for_who_has_watched_it_long_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    rewritten(world)
    monkeypatch.setattr(gc_fence, gc_fence.commit_fence.__name__, _first_only(world))
    with pytest.raises(CatalogStateUnknown), fence(world.context(), head_of(world), "collect-x"):
        pass
    seen = []
    for moment in (5.0, 360.0, 366.0):
        clock = SimpleNamespace(monotonic=lambda at=moment: at)
        monkeypatch.setattr(replica_head, "time", clock)
        seen.append(read_head(world.catalog, "main_replica_eu").is_gc_running)
    assert seen == [True, True, False]


def test_one_that_was_killed_long_ago_is_not_watched(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    monkeypatch.setattr(gc_fence, gc_fence.commit_fence.__name__, _first_only(world))
    with pytest.raises(CatalogStateUnknown), fence(world.context(), head_of(world), "collect-x"):
        pass
    now = datetime.now
    monkeypatch.setattr(replica_head, "datetime", SimpleNamespace(now=lambda zone: now(zone) + timedelta(hours=7)))
    assert not read_head(world.catalog, "main_replica_eu").is_gc_running


def _first_only(world: World) -> Callable[..., str]:
    from sterna.maintenance.gc import fencing as module

    commit, calls = module.commit_fence, []

    def once(*args: Any) -> str:
        calls.append(args)
        if len(calls) > 1:
            raise CatalogStateUnknown("killed")
        return commit(*args)

    return once


def test_a_fence_keeps_all_that_the_head_says(world: World):
    rewritten(world)
    context = world.context()
    before = read_head(world.catalog, "main_replica_eu")
    with fence(context, head_of(world), "collect-x") as standing:
        inside = read_head(world.catalog, "main_replica_eu")
        assert inside.hash == standing.hash
        assert inside.is_gc_running
    after = read_head(world.catalog, "main_replica_eu")
    assert after.hash == standing.hash
    assert (after.gc_pass, after.watermark, after.digest, after.bindings) == (
        "",
        before.watermark,
        before.digest,
        before.bindings,
    )
    assert run(world).outcome == "idle"


def test_a_fence_whose_answer_was_lost_stands(world: World):
    rewritten(world)
    parent = head_of(world)
    world.catalog.lose_next_answer()
    with fence(world.context(), parent, "collect-x"):
        assert read_head(world.catalog, "main_replica_eu").is_gc_running
        world.catalog.lose_next_answer()
    assert not read_head(world.catalog, "main_replica_eu").gc_pass


def test_a_branch_that_moves_at_every_try_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    real = deleting.fence

    def moved(context: Any, at: Commit, pass_id: str) -> Any:
        world.catalog.commit("main_replica_eu", at.hash, [Unchanged(("x",))], "another", at.properties)
        return real(context, at, pass_id)

    before = files(world)
    monkeypatch.setattr(deleting, "fence", moved)
    with pytest.raises(Exception, match="no more at"):
        clean(world, much_later())
    assert files(world) == before


def test_a_fence_whose_answer_was_lost_stands_only_while_it_is_the_head(world: World):
    world.commit(a=world.write("a"))
    run(world)
    context = world.context()
    head = head_of(world)
    world.catalog.lose_next_answer()
    commit = world.catalog.commit

    def overtaken(*arguments: Any, **options: Any) -> str:
        world.catalog.commit = commit
        try:
            return commit(*arguments, **options)
        finally:
            world.catalog.commit_as("mallory", context.region.replica_branch, [Delete(("ns", "a"))])

    world.catalog.commit = overtaken
    with pytest.raises(CatalogConflict, match="moved on as the clean-up began"), fence(context, head, "gc-1"):
        pytest.fail("it would have deleted")
