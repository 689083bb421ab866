"""The small lane never waits for the lists of a very large table: the large one makes them, and they are taken over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.errors import EngineError, StoreUnreachable
from sterna.maintenance.gc.fencing import fence
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.plan import admission, sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.replica import bulk_state
from sterna.replication.replica.head import newest_commit, read_head
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.replica.pauses import pause, resume
from sterna.replication.sync import stages
from sterna.replication.sync.publish import invalidate_plans
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, here, quiet, refusing, run, with_registry

MANY = 7
SMALL = SyncOptions(lane="small")
LARGE = SyncOptions(lane="large", files_per_batch=3)
BRANCH = "main_replica_eu"


@pytest.fixture
def seeding(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A small table, published; and one of very many new files, which is in transit."""
    monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=MANY, max_group_manifests=2))
    regions = [{**region, "bulk_copy_threshold": 100_000} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    world.commit(a=world.write("a"))
    run(world)
    world.commit(big=grown(world, MANY + 2))
    assert in_transit(world) == {"ns.big"}
    return world


def grown(world: World, files: int) -> str:
    return [world.write("big") for _ in range(files)][-1]


def small(world: World, *, lists: bool = False) -> Report:
    """A sync of the small lane, which lists no very large table."""
    lines: list[str] = []
    report = sync(world.context(), SMALL, lines.append, engine=here)
    assert any(line.startswith("listing the files of ns.") for line in lines) == lists
    return report


def in_transit(world: World) -> set[str]:
    return {item.key for item in small(world).transit}


def begun(world: World, engine: Engine = here) -> stages.PlannedRun:
    return stages.plan(world.context(), LARGE, quiet, engine=engine)


def brought(
    world: World,
    planned: stages.PlannedRun,
    *,
    localize: bool = True,
    meanwhile: Callable[[World], object] = lambda world: None,
) -> Report:
    """All that follows the plan of a large lane, and what comes to pass before its last stage."""
    context = world.context()
    copied = sum((stages.copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    done = stages.localize(context, planned.run, copied, quiet, here) if localize else StageReport()
    meanwhile(world)
    return stages.finish_bulk(context, planned.run, copied, done, quiet)


def beside_huge(world: World) -> tuple[str, ...]:
    """Bring all of the table in a round that has another one to bring; return what the last batch says is here.

    That one is done again: whoever did it first may have been killed before anybody heard of it.
    """
    world.commit(huge=[world.write("huge") for _ in range(2 * MANY)][-1])
    small(world)
    planned = begun(world)
    of_big = [batch.number for batch in planned.batches if batch.table == "ns.big"]
    first, again = [stages.copy(world.context(), planned.run, number, quiet) for number in (*of_big, of_big[-1])][-2:]
    assert again.here == first.here
    return first.here


def closed(world: World) -> bool:
    return verify_structure(world.context()).findings == ()


def deleting(world: World) -> None:
    """What a clean-up does to the branch when it deletes."""
    head = newest_commit(world.catalog, BRANCH)
    assert head
    with fence(world.context(), head, "collect-1"):
        pass


def test_others_are_published_before_the_large_lane_has_listed_it(seeding: World) -> None:
    (item,) = (item for item in read_head(seeding.catalog, BRANCH).held if item.in_transit)
    assert item.bytes > 0
    assert item.reason == f"the large lane lists its files: {MANY + 2} new manifests, which have so many bytes"
    seeding.commit(a=seeding.write("a"))
    assert small(seeding).published == ("ns.a",)


@pytest.mark.parametrize("others", [False, True])
def test_a_pause_during_which_the_large_lane_looked_ends_with_its_marker(seeding: World, others: bool) -> None:
    pause(seeding.context(), ["ns.big"], "", apply=True)
    if others:
        small(seeding)
        seeding.commit(huge=[seeding.write("huge") for _ in range(2 * MANY)][-1])
        small(seeding)
        brought(seeding, begun(seeding))
    else:
        assert begun(seeding).report is not None  # planned before a sync saw the pause
    assert [item.kind for item in small(seeding).held] == ["Paused"]
    resume(seeding.context(), ["ns.big"], apply=True)
    report = small(seeding)
    assert (report.held, [item.key for item in report.transit], report.large) == ((), ["ns.big"], True)
    brought(seeding, begun(seeding))
    assert small(seeding).published == ("ns.big",)


def test_what_it_has_brought_is_published_from_its_lists(seeding: World) -> None:
    brought(seeding, begun(seeding))
    report = small(seeding)
    assert (report.published, report.transit, report.copied.files) == (("ns.big",), (), 0)
    assert closed(seeding)
    assert small(seeding).outcome == "idle"


def test_a_sync_of_everything_lists_it_once(seeding: World) -> None:
    lines: list[str] = []
    report = sync(seeding.context(), SyncOptions(), lines.append, engine=here)
    assert (report.published, report.held, report.transit) == (("ns.big",), (), ())
    assert len([line for line in lines if "in parts" in line]) == 1
    assert closed(seeding)


def test_what_was_committed_meanwhile_is_listed_alone(seeding: World) -> None:
    planned = begun(seeding)
    seeding.commit(big=grown(seeding, 2))
    brought(seeding, planned)
    report = small(seeding)
    assert (report.published, report.copied.files) == (("ns.big",), 2)
    assert closed(seeding)


def test_much_that_was_committed_meanwhile_is_for_the_large_lane_again(seeding: World) -> None:
    seeding.commit(big=grown(seeding, 3 * MANY))
    planned = begun(seeding)
    seeding.commit(big=grown(seeding, MANY))
    brought(seeding, planned)
    assert in_transit(seeding) == {"ns.big"}
    again = begun(seeding)
    assert sum(batch.files for batch in again.batches) == MANY
    brought(seeding, again)
    assert small(seeding).published == ("ns.big",)
    assert closed(seeding)


def test_a_table_that_changes_as_fast_as_it_is_brought_is_taken_along(seeding: World) -> None:
    planned = begun(seeding)
    seeding.commit(big=grown(seeding, MANY))
    brought(seeding, planned)
    assert small(seeding, lists=True).published == ("ns.big",), "else it would be in transit for ever"
    assert closed(seeding)


def test_a_table_that_is_made_anew_as_fast_as_it_is_brought_is_taken_along(seeding: World) -> None:
    planned = begun(seeding)
    seeding.writer.drop_table(("ns", "big"))
    seeding.commit(big=None)
    seeding.commit(big=grown(seeding, MANY))
    brought(seeding, planned)
    assert small(seeding, lists=True).published == ("ns.big",)
    assert closed(seeding)


def test_it_is_published_while_others_of_the_round_are_on_their_way(seeding: World) -> None:
    assert beside_huge(seeding) == ("ns.big",)
    report = small(seeding)
    assert (report.published, report.copied.files) == (("ns.big",), 0)
    assert {item.key for item in report.transit} == {"ns.huge"}
    assert closed(seeding)


def other_registry(world: World) -> World:
    locations = world.registry.model_dump(mode="json")["locations"]
    return with_registry(world, locations=[{**location, "egress_per_gb": {"*": 0.09}} for location in locations])


def fenced(world: World) -> World:
    deleting(world)
    return world


def localized(world: World, pattern: str) -> list[Path]:
    paths = [path for path in (world.folder / "eu/replica").rglob(pattern) if "/big/" in path.as_posix()]
    assert paths
    return paths


def written_anew(world: World) -> World:
    invalidate_plans(world.context(), "repair-1")
    return world


def without_metadata(world: World) -> World:
    for path in localized(world, "*.metadata.json"):
        path.unlink()
    return world


def broken(world: World) -> World:
    for path in localized(world, "*.metadata.json"):
        path.write_text("{}")
    return world


def without_manifest_lists(world: World) -> World:
    for path in localized(world, "snap-*.avro"):
        path.unlink()
    world.commit(big=grown(world, 1))  # else none of them is read
    return world


@pytest.mark.parametrize(
    "change", [other_registry, fenced, written_anew, without_metadata, broken, without_manifest_lists]
)
def test_where_it_may_prove_no_more_the_large_lane_looks_again(
    seeding: World, change: Callable[[World], World]
) -> None:
    """What came to pass between the round and the sync: another registry, a deletion, a lost or a broken file."""
    brought(seeding, begun(seeding))
    world = change(seeding)
    assert in_transit(world) == {"ns.big"}
    if change is broken:
        without_metadata(world)
    planned = begun(world)
    new = 1 if change is without_manifest_lists else 0
    assert sum(batch.files for batch in planned.batches) == new, "all else is here"
    brought(world, planned)
    assert small(world).published == ("ns.big",)
    assert closed(world)


def test_another_primary_knows_not_what_was_deleted(seeding: World, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = ["1-us", "2-eu"]
    monkeypatch.setattr(admission, "read_primary_term", lambda context: epochs[0])
    brought(seeding, begun(seeding))
    epochs.pop(0)
    assert in_transit(seeding) == {"ns.big"}
    brought(seeding, begun(seeding))
    assert small(seeding).published == ("ns.big",)


def test_where_clean_ups_delete_again_and_again_it_is_listed_by_the_small_lane(seeding: World) -> None:
    for _ in range(2):
        assert in_transit(seeding) == {"ns.big"}
        brought(seeding, begun(seeding))
        deleting(seeding)
    assert small(seeding, lists=True).published == ("ns.big",)
    assert closed(seeding)


def test_where_it_also_changes_a_little_each_time_it_is_listed_by_the_small_lane(seeding: World) -> None:
    for _ in range(2):
        assert in_transit(seeding) == {"ns.big"}
        brought(seeding, begun(seeding))
        seeding.commit(big=grown(seeding, 1))
        deleting(seeding)
    assert small(seeding, lists=True).published == ("ns.big",), "else it would be in transit for ever"
    assert closed(seeding)


def test_a_round_that_was_killed_is_none_that_a_clean_up_made_void(
    seeding: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(seeding)
    with monkeypatch.context() as patched:
        patched.setattr(bulk_state, "HEARTBEAT_TIMEOUT_SECONDS", -1.0)
        planned = begun(seeding)
    brought(seeding, planned)
    deleting(seeding)
    assert in_transit(seeding) == {"ns.big"}, "the large lane looks again"


def test_a_clean_up_during_a_long_round_makes_no_table_wait_for_its_end(seeding: World) -> None:
    beside_huge(seeding)
    deleting(seeding)
    assert small(seeding, lists=True).published == ("ns.big",)


def test_what_needs_no_copy_is_published_with_the_first_batch(seeding: World) -> None:
    brought(seeding, begun(seeding))
    deleting(seeding)
    seeding.commit(huge=[seeding.write("huge") for _ in range(2 * MANY)][-1])
    assert in_transit(seeding) == {"ns.big", "ns.huge"}
    planned = begun(seeding)
    assert {batch.table for batch in planned.batches} == {"ns.huge"}
    assert stages.copy(seeding.context(), planned.run, 1, quiet).here == ("ns.big",)
    assert small(seeding).published == ("ns.big",)
    assert stages.copy(seeding.context(), planned.run, 2, quiet).here == ()


def test_files_of_another_generation_are_made_by_who_asks_for_them(seeding: World) -> None:
    brought(seeding, begun(seeding))
    small(seeding)
    lines: list[str] = []
    options = SyncOptions(lane="small", tables=("ns.big",), generation=2)
    assert sync(seeding.context(), options, lines.append, engine=here).published == ("ns.big",)
    assert any(line.startswith("listing the files of ns.big") for line in lines)


def test_a_round_that_listed_little_says_nothing_of_very_many(seeding: World) -> None:
    seeding.commit(wide=seeding.write("wide", 50_000))
    assert in_transit(seeding) == {"ns.big", "ns.wide"}
    planned = begun(seeding)
    seeding.commit(wide=[seeding.write("wide") for _ in range(MANY)][-1])
    brought(seeding, planned)
    assert in_transit(seeding) == {"ns.wide"}


def test_a_round_that_copied_little_says_nothing_of_much(seeding: World) -> None:
    planned = begun(seeding)
    seeding.commit(big=seeding.write("big", 50_000))
    brought(seeding, planned)
    assert in_transit(seeding) == {"ns.big"}


def test_a_file_that_a_clean_up_took_is_missed(seeding: World) -> None:
    brought(seeding, begun(seeding))
    deleting(seeding)
    gone = next(Path(seeding.folder / "eu/replica/us-lake/big").rglob("*.parquet"))
    gone.unlink()
    assert in_transit(seeding) == {"ns.big"}
    planned = begun(seeding)
    assert sum(batch.files for batch in planned.batches) == 1
    brought(seeding, planned)
    assert small(seeding).published == ("ns.big",)
    assert closed(seeding)


def test_a_round_whose_localize_stage_was_left_out_proves_nothing(seeding: World) -> None:
    brought(seeding, begun(seeding), localize=False)
    assert in_transit(seeding) == {"ns.big"}


def test_what_is_not_localized_as_its_lists_say_is_held(seeding: World) -> None:
    brought(seeding, begun(seeding), meanwhile=lambda world: localized(world, "*-m0.avro")[0].unlink())
    assert [(item.key, item.kind) for item in small(seeding).held] == [("ns.big", "NotLocalized")]
    brought(seeding, begun(seeding))
    assert small(seeding).published == ("ns.big",)


def test_what_the_large_lane_can_not_list_the_small_one_holds_with_the_reason(seeding: World) -> None:
    def dying(*_: object) -> list[str]:
        raise EngineError("its workers died")

    planned = begun(seeding, dying)
    assert planned.report is not None
    for _ in range(2):
        report = small(seeding)
        assert [(item.key, item.kind) for item in report.held] == [("ns.big", "EngineError")]
        assert "its workers died" in report.held[0].reason
        assert report.transit == ()
    brought(seeding, begun(seeding))
    assert small(seeding).published == ("ns.big",)
    assert closed(seeding)


def test_a_fault_beyond_what_was_brought_is_told_each_time(seeding: World) -> None:
    brought(seeding, begun(seeding))
    seeding.commit(big=grown(seeding, 1))
    newest = max((seeding.folder / "us/lake/big/metadata").glob("*-m0.avro"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"no manifest")
    for _ in range(3):
        report = small(seeding)
        assert ([item.key for item in report.held], report.transit) == (["ns.big"], ())
    assert report.outcome == "idle"


def test_a_round_proves_nothing_by_a_metadata_json_that_can_not_be_read(seeding: World) -> None:
    brought(seeding, begun(seeding), meanwhile=broken)
    assert [(item.key, item.kind) for item in small(seeding).held] == [("ns.big", "NotLocalized")]


def test_what_a_dark_store_kept_from_the_large_lane_is_told_and_tried_again(seeding: World) -> None:
    with refusing(f"file://{seeding.folder}/us/", StoreUnreachable, files="*-m0.avro"):
        assert begun(seeding).report is not None
    report = small(seeding)
    (item,) = report.transit
    assert "the last time: " in item.reason
    assert report.large
    brought(seeding, begun(seeding))
    assert small(seeding).published == ("ns.big",)


def test_what_is_held_by_the_large_lane_holds_up_none_of_its_others(seeding: World) -> None:
    def dying(function: Callable[[str], str], items: list[str], label: str) -> list[str]:
        if any('"ns.big"' in item for item in items):
            raise EngineError("its workers died")
        return [function(item) for item in items]

    seeding.commit(huge=[seeding.write("huge") for _ in range(MANY)][-1])
    assert in_transit(seeding) == {"ns.big", "ns.huge"}
    planned = begun(seeding, dying)
    report = small(seeding)
    assert [(item.key, item.kind) for item in report.held] == [("ns.big", "EngineError")], "at once"
    brought(seeding, planned)
    report = small(seeding)
    assert report.published == ("ns.huge",)
    assert [(item.key, item.kind) for item in report.held] == [("ns.big", "EngineError")]


def test_without_lanes_whoever_plans_lists(seeding: World) -> None:
    regions = [{**region, "bulk_copy_threshold": 0} for region in seeding.registry.model_dump()["regions"]]
    world = with_registry(seeding, regions=regions)
    assert small(world, lists=True).published == ("ns.big",)


def test_a_round_that_an_older_version_left_proves_nothing(seeding: World) -> None:
    brought(seeding, begun(seeding))
    path = seeding.folder / "eu/replica/_sterna/transit/round.json"
    record = json.loads(path.read_text())
    for name in ("whole", "replica_hash", "digest", "registry", "held"):
        del record[name]
    path.write_text(json.dumps(record))
    assert in_transit(seeding) == {"ns.big"}
