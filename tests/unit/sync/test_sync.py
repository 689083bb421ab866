"""Planning and publishing against the in-memory catalog, with real files on disk."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from sterna.catalog.model import Content, Delete, Put, namespace_content
from sterna.config.registry.policy import Policy
from sterna.errors import BranchChanged, CatalogUnreachable, Diverged, UsageError
from sterna.notifications.change_log.fresh_tables import read_fresh_tables
from sterna.postgres import term
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica.codecs import PLAN
from sterna.replication.replica.head import read_head
from sterna.replication.replica.lag import measure_lag
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.sync.explain import OriginTotal, explain
from sterna.replication.sync.run import sync
from sterna.replication.sync.stages import PlannedRun, copy, localize, plan, publish
from tests.support.small_world import World, here, planned, quiet, run, table, with_registry


def test_a_first_sync_brings_everything_and_the_next_one_has_nothing_to_do(world: World):
    head = world.commit(a=world.write("a"), b=world.write("b"))
    report = run(world)
    assert report.outcome == "published"
    assert set(world.replica()) == {"ns", "ns.a", "ns.b"}
    assert report.copied.files == 2
    assert read_head(world.catalog, "main_replica_eu").watermark == head
    assert measure_lag(world.context()) == 0.0
    assert run(world).outcome == "idle"


def test_only_new_files_are_copied(world: World):
    world.commit(a=world.write("a"))
    run(world)
    world.commit(a=world.write("a", rows=5))
    report = run(world)
    assert report.copied.files == 1
    assert run(world).outcome == "idle"


def test_files_that_arrived_before_a_crash_are_not_copied_again(world: World):
    world.commit(a=world.write("a"))
    first = plan(world.context(), SyncOptions(), quiet)
    copy(world.context(), first.run, 0, quiet)
    again, _ = make_plan(world.context())
    assert again.batches == ()
    assert again.present_files == 1


def test_plan_writes_nothing(world: World):
    world.commit(a=world.write("a"))
    planned(world)
    assert not (world.folder / "eu" / "replica").exists()
    assert [reference.name for reference in world.catalog.references()] == ["main"]


def test_a_commit_on_main_that_changes_no_table_moves_the_watermark(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.commit(
        "main", world.catalog.reference("main").hash, [Put(("other",), namespace_content(("other",)))], "namespace"
    )
    run(world)
    assert read_head(world.catalog, "main_replica_eu").watermark == head


def test_a_dropped_table_goes_and_its_namespace_too(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.commit(a=None)
    world.catalog.commit("main", head, [Delete(("ns",))], "drop")
    run(world)
    assert world.replica() == {}


def test_a_seed_comes_in_groups_and_ends_with_the_watermark(world: World):
    world.commit(**{name: world.write(name) for name in "abc"})
    context = world.context()
    first = sync(context, SyncOptions(seed_group=2), quiet, until_done=False, engine=here)
    assert first.more
    assert read_head(world.catalog, "main_replica_eu").watermark == ""
    assert len(world.replica()) == 3
    report = run(world, seed_group=2)
    assert not report.more
    assert set(world.replica()) == {"ns", "ns.a", "ns.b", "ns.c"}


@pytest.mark.parametrize(
    "spoilt", ["file://{}/us/lake/a/metadata/00009-gone.metadata.json", "file:///elsewhere/x/metadata/1.metadata.json"]
)
def test_what_an_earlier_group_of_a_seed_shows_is_behind_since_its_first_change_after_that(world: World, spoilt: str):
    """No watermark tells that yet: with the newest commit's time, an alarm would come too late."""
    world.commit(**{name: world.write(name) for name in "abc"})
    shown = world.commit(d=world.write("d"))
    context = world.context()
    assert sync(context, SyncOptions(seed_group=2), quiet, until_done=False, engine=here).published[1:] == (
        "ns.a",
        "ns.b",
    )
    world.commit(a=world.write("a"))
    first = next(iter(world.catalog.history("main", operations=False)))
    world.commit(a=spoilt.format(world.folder), c=world.write("c"))
    held = run(world, seed_group=2).held
    assert [(item.key, item.since, item.good) for item in held if not item.waits_for] == [
        ("ns.a", first.commit_time.isoformat(), shown)
    ]


def test_a_table_that_can_not_be_read_does_not_stop_a_seed(world: World):
    world.commit(
        a=f"file://{world.folder}/us/lake/a/metadata/00000-gone.metadata.json", b=world.write("b"), c=world.write("c")
    )
    report = run(world, seed_group=1)
    assert set(world.replica()) == {"ns", "ns.b", "ns.c"}
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "SourceGone")]


def test_a_content_of_an_unknown_kind_is_held_and_named(world: World):
    world.commit(a=world.write("a"))
    delta = Content.of({"type": "DELTA_LAKE_TABLE", "metadataLocationHistory": [], "checkpointLocationHistory": []})
    world.catalog.commit("main", world.catalog.reference("main").hash, [Put(("ns", "delta"), delta)], "delta")
    report = run(world)
    assert [(item.key, item.kind) for item in report.held] == [("ns.delta", "Unsupported")]
    assert run(world).outcome == "idle"


def test_what_was_committed_with_a_held_table_waits_and_follows_with_it(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    before = world.replica()
    gone = f"file://{world.folder}/us/lake/a/metadata/00009-gone.metadata.json"
    world.commit(a=gone, b=world.write("b"))
    report = run(world)
    assert {item.key: item.waits_for for item in report.held} == {"ns.a": "", "ns.b": "ns.a"}
    assert world.replica() == before
    assert run(world).outcome == "idle"
    world.commit(a=world.write("a"))
    report = run(world)
    assert report.held == ()
    assert {"ns.a", "ns.b"} <= set(report.published)


def test_a_new_policy_takes_effect_without_a_commit_on_main(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    policies = [Policy(tables=["ns.b"], replicate=False)]
    stricter = World(
        world.folder, world.catalog, world.writer, world.registry.model_copy(update={"policies": policies})
    )
    run(stricter)
    assert set(world.replica()) == {"ns", "ns.a"}


def test_main_reset_behind_the_watermark_stops_the_sync(world: World):
    first = world.commit(a=world.write("a"))
    second = world.commit(b=world.write("b"))
    run(world)
    world.catalog.assign("main", first)
    with pytest.raises(Diverged, match=second):
        run(world)


def test_a_watermark_that_the_catalog_lost_costs_only_time(world: World):
    first = world.commit(a=world.write("a"))
    run(world)
    world.commit(b=world.write("b"))
    world.catalog.forget(first)
    run(world)
    assert set(world.replica()) == {"ns", "ns.a", "ns.b"}


def test_a_foreign_commit_on_the_replica_branch_stops_the_sync(world: World):
    world.commit(a=world.write("a"))
    run(world)
    foreign = world.catalog.commit_as("somebody", "main_replica_eu", [Put(("x",), namespace_content(("x",)))])
    world.commit(b=world.write("b"))
    with pytest.raises(BranchChanged, match=foreign):
        run(world)


def stages(world: World, before_publish: Callable[[], None] = lambda: None) -> Report:
    context = world.context()
    sync_plan: PlannedRun = plan(context, SyncOptions(), quiet)
    copied = sum((copy(context, sync_plan.run, batch.number, quiet) for batch in sync_plan.batches), StageReport())
    localized = localize(context, sync_plan.run, copied, quiet, here)
    before_publish()
    return publish(context, sync_plan.run, copied, localized, quiet)


def test_a_commit_whose_answer_was_lost_is_recognised(world: World):
    world.commit(a=world.write("a"))
    report = stages(world, world.catalog.lose_next_answer)
    assert report.outcome == "published"
    assert len(list(world.catalog.history("main_replica_eu", operations=False))) == 1


def test_of_two_syncs_the_second_ends_quietly(world: World):
    world.commit(a=world.write("a"))
    report = stages(world, lambda: run(world) and None)
    assert report.outcome == "superseded"
    assert len(list(world.catalog.history("main_replica_eu", operations=False))) == 1


@pytest.fixture
def copied_catalogs(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same world where each region's catalog is a copy of the primary's, which is eu's by now."""
    monkeypatch.setattr(term, "find_primary", lambda regions, secrets: world.registry.region("eu"))
    database = {"hosts": ["127.0.0.1:1"], "credential_id": "pg"}
    regions = world.registry.model_dump(mode="json")["regions"]
    return with_registry(
        world, regions=[{**region, "catalog": {**region["catalog"], "database": database}} for region in regions]
    )


def no_failover(world: World, first: str, second: str) -> None:
    """Leave `main` as it is."""


def kept_on_a_branch(world: World, first: str, second: str) -> None:
    world.catalog.create_branch("kept", second)
    world.catalog.assign("main", first)


def forgotten(world: World, first: str, second: str) -> None:
    world.catalog.assign("main", first)
    world.catalog.forget(second)


@pytest.mark.parametrize(
    ("failover", "outcome"), [(no_failover, "published"), (kept_on_a_branch, "superseded"), (forgotten, "superseded")]
)
def test_a_plan_for_a_commit_that_a_failover_took_off_main_is_not_published(
    copied_catalogs: World, failover: Callable[[World, str, str], None], outcome: str
):
    world = copied_catalogs
    first = world.commit(a=world.write("a"))
    run(world)
    before = world.replica()
    second = world.commit(b=world.write("b"))
    assert stages(world, lambda: failover(world, first, second)).outcome == outcome
    assert (world.replica() == before) == (outcome == "superseded")


def test_an_unreachable_catalog_publishes_nothing(world: World):
    world.commit(a=world.write("a"))
    with pytest.raises(CatalogUnreachable):
        stages(world, lambda: world.catalog.fail_next(CatalogUnreachable("away")))
    assert run(world).outcome == "published"


def test_a_missing_copy_report_is_noticed(world: World):
    world.commit(a=world.write("a"))
    context = world.context()
    sync_plan = plan(context, SyncOptions(), quiet)
    with pytest.raises(Exception, match="left out"):
        publish(context, sync_plan.run, StageReport(), StageReport(), quiet)


def test_some_tables_only(world: World):
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    run(world)
    watermark = read_head(world.catalog, "main_replica_eu").watermark
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    report = run(world, tables=("ns.a",))
    assert report.published == ("ns.a",)
    assert read_head(world.catalog, "main_replica_eu").watermark == watermark
    assert run(world).published == ("ns.b",)


def test_tables_asked_for_bring_those_committed_with_them(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=world.write("a"), b=world.write("b"))
    assert set(run(world, tables=("ns.a",)).published) == {"ns.a", "ns.b"}


def test_a_table_that_does_not_exist_is_answered_with_those_that_do(world: World):
    world.commit(a=world.write("a"))
    run(world)
    assert run(world, tables=("ns.a",)).outcome == "idle"
    with pytest.raises(UsageError, match=r"no table ns\.b on main: there are ns\.a"):
        run(world, tables=("ns.b",))


def test_a_key_that_changes_its_kind_does_so_in_two_steps(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.reference("main").hash
    head = world.catalog.commit("main", head, [Delete(("ns", "a"))], "drop")
    world.catalog.commit("main", head, [Put(("ns", "a"), namespace_content(("ns", "a")))], "a namespace now")
    assert not run(world).more
    assert world.replica()["ns.a"].kind == "NAMESPACE"


def test_a_table_dropped_and_created_again_has_another_id_and_a_changed_one_keeps_its(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    before = world.replica()
    world.commit(a=None, b=world.write("b"))
    world.commit(a=world.write("a"))
    run(world)
    after = world.replica()
    assert after["ns.a"].id not in (None, before["ns.a"].id)
    assert after["ns.b"].id == before["ns.b"].id
    assert after["ns.b"] != before["ns.b"]


def test_news_are_told_once_and_none_is_lost(world: World):
    world.commit(a=world.write("a"))
    run(world)
    first = read_fresh_tables(world.context(), None)
    assert [fresh.key for fresh in first.tables] == ["ns.a"]
    assert read_fresh_tables(world.context(), first.head).tables == ()
    world.commit(b=world.write("b"))
    run(world)
    world.commit(c=world.write("c"))
    run(world)
    news = read_fresh_tables(world.context(), first.head)
    assert [fresh.key for fresh in news.tables] == ["ns.b", "ns.c"]
    assert read_fresh_tables(world.context(), "ab" * 32).tables[0].key == "ns.a"


def test_a_plan_explains_itself_and_survives_its_journey_through_json(world: World):
    world.commit(a=world.write("a"))
    sync_plan, files = make_plan(world.context())
    assert PLAN.loads(PLAN.dumps(sync_plan)) == sync_plan
    explained = explain(world.context(), sync_plan, files)
    size = sync_plan.batches[0].bytes
    assert explained.origins == {"us-lake": OriginTotal(1, 1, size)}
    (table_put,) = (action for action in explained.actions if action.key == "ns.a")
    assert (table_put.change, table_put.files, table_put.bytes) == ("put", 1, size)


def test_lag_counts_from_the_oldest_commit_that_is_not_served(world: World):
    assert measure_lag(world.context()) == 0.0
    for _ in range(2):
        first = world.commit(a=world.write("a"))
        world.commit(b=world.write("b"))
        oldest = next(
            commit for commit in world.catalog.history("main", operations=False) if commit.hash == first
        ).commit_time
        assert measure_lag(world.context(), oldest + timedelta(seconds=60)) == 60.0
        run(world)
        assert measure_lag(world.context()) == 0.0


def test_content_of_the_double_is_a_table():
    assert table("file:///x").kind == "ICEBERG_TABLE"


def test_an_empty_main_is_nothing_to_do_but_the_watermark(world: World):
    assert run(world).outcome == "published"
    assert world.replica() == {}
    assert run(world).outcome == "idle"
