"""A table of which much is to be copied is in transit: others are published meanwhile, and it follows by itself."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sterna.errors import Busy, StoreDenied, UsageError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import bulk_state
from sterna.replication.replica.bulk_state import read_bulk_state
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.sync import run as sync_run
from sterna.replication.sync import stages
from sterna.replication.sync.localize import localize_files
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.storage import objects
from tests.support.patching import replace_functions
from tests.support.small_world import World, here, quiet, refusing, run, with_registry

LARGE = 50_000  # rows; some 145 kB
LIMIT = 100_000  # bytes

SMALL, LARGE_LANE = SyncOptions(lane="small"), SyncOptions(lane="large")


@pytest.fixture
def lanes(world: World) -> World:
    """Tables a and b, published; and big, which is new and large."""
    world = with_lanes(world)
    for name in "ab":
        world.commit(**{name: world.write(name)})
    run(world)
    world.commit(big=world.write("big", LARGE))
    return world


def with_lanes(world: World, limit: int = LIMIT) -> World:
    regions = [{**region, "bulk_copy_threshold": limit} for region in world.registry.model_dump()["regions"]]
    return with_registry(world, regions=regions)


def small(world: World) -> Report:
    """A sync of the small lane."""
    return sync(world.context(), SMALL, quiet, engine=here)


def head(world: World) -> Head:
    return read_head(world.catalog, "main_replica_eu")


def moving(world: World) -> dict[str, Held]:
    """What is in transit, as the replica's head tells it."""
    return {item.key: item for item in head(world).held if item.in_transit}


def begun(world: World) -> stages.PlannedRun:
    return stages.plan(world.context(), LARGE_LANE, quiet)


def brought(world: World, planned: stages.PlannedRun) -> Report:
    """All that follows the plan of a large lane."""
    context = world.context()
    copied = sum((stages.copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    localized = stages.localize(context, planned.run, copied, quiet, here)
    return stages.finish_bulk(context, planned.run, copied, localized, quiet)


def copies(world: World, name: str) -> list[Path]:
    return sorted((world.folder / "eu" / "replica" / "us-lake" / name).rglob("*.parquet"))


def test_what_is_large_is_in_transit_and_the_others_are_published(lanes: World):
    lanes.commit(a=lanes.write("a"))
    report = small(lanes)
    assert report.published == ("ns.a",)
    assert (report.held, [item.key for item in report.transit]) == ((), ["ns.big"])
    assert head(lanes).watermark == lanes.catalog.reference("main").hash
    (entry,) = moving(lanes).values()
    assert entry.bytes > LIMIT
    assert (entry.good, entry.waits_for, entry.file) == ("", "", "")
    assert not copies(lanes, "big")


def test_small_ones_go_on_while_the_large_copy_hangs_and_it_is_published_when_it_is_there(lanes: World):
    small(lanes)
    planned = begun(lanes)
    assert sum(batch.bytes for batch in planned.batches) > LIMIT
    for _ in range(3):
        lanes.commit(a=lanes.write("a"))
        assert small(lanes).published == ("ns.a",)
    report = brought(lanes, planned)
    assert (report.outcome, report.published) == ("copied", ())
    assert copies(lanes, "big")
    report = small(lanes)
    assert (report.published, report.transit) == (("ns.big",), ())
    assert report.copied.sent == 0
    assert verify_structure(lanes.context()).findings == ()


def test_a_sync_of_everything_publishes_the_small_ones_first(lanes: World):
    lanes.commit(a=lanes.write("a"))
    lines: list[str] = []
    report = sync(lanes.context(), SyncOptions(), lines.append, engine=here)
    assert set(report.published) == {"ns.a", "ns.big"}
    assert (report.held, report.transit) == ((), ())
    steps = [line for line in lines if line.startswith(("published", "copied"))]
    assert [line.partition(":")[0] for line in steps] == ["published", "copied", "published"]
    assert verify_structure(lanes.context()).findings == ()
    assert run(lanes).outcome == "idle"


def test_without_a_limit_there_are_no_lanes(lanes: World):
    assert run(with_lanes(lanes, 0)).published == ("ns.big",)
    lanes.commit(big=lanes.write("big", LARGE))
    report = sync(with_lanes(lanes, 0).context(), SMALL, quiet, engine=here)
    assert (report.published, report.transit) == (("ns.big",), ())


def test_a_plan_for_stages_of_one_s_own_takes_everything(lanes: World):
    planned = stages.plan(lanes.context(), SyncOptions(), quiet)
    assert sum(batch.bytes for batch in planned.batches) > LIMIT


def test_what_was_committed_together_is_in_transit_together(lanes: World):
    lanes.commit(a=lanes.write("a"), big=lanes.write("big"))
    lanes.commit(b=lanes.write("b"))
    report = small(lanes)
    assert report.published == ("ns.b",)
    entries = moving(lanes)
    assert {name: item.group for name, item in entries.items()} == {"ns.a": "ns.a", "ns.big": "ns.a"}
    lanes.commit(a=lanes.write("a"))  # a follows big, whatever becomes of it
    assert small(lanes).published == ()
    brought(lanes, begun(lanes))
    assert set(small(lanes).published) == {"ns.a", "ns.big"}


def test_two_that_are_small_alone_are_large_together(world: World):
    world = with_lanes(world)
    world.commit(a=world.write("a"))
    run(world)
    world.commit(x=world.write("x", LARGE // 2), y=world.write("y", LARGE // 2))
    world.commit(z=world.write("z", LARGE // 2))
    assert small(world).published == ("ns.z",)
    assert set(moving(world)) == {"ns.x", "ns.y"}


def test_what_has_a_fault_is_held_and_what_waits_for_it_is_not_in_transit(lanes: World):
    small(lanes)
    gone = f"file://{lanes.folder}/us/lake/a/metadata/00009-gone.metadata.json"
    lanes.commit(a=gone, big=lanes.write("big"))
    report = small(lanes)
    assert {item.key: item.kind for item in report.held} == {"ns.a": "SourceGone", "ns.big": "Waits"}
    assert report.transit == ()
    assert begun(lanes).report is not None


def test_while_it_is_being_copied_the_small_lane_does_not_look_at_it(lanes: World):
    small(lanes)
    planned = begun(lanes)
    lanes.commit(a=lanes.write("a"), b=lanes.write("b"))
    with refusing(f"file://{lanes.folder}/us/lake/big/", StoreDenied) as requests:
        assert set(small(lanes).published) == {"ns.a", "ns.b"}
    assert requests == []
    assert set(moving(lanes)) == {"ns.big"}
    brought(lanes, planned)
    assert small(lanes).published == ("ns.big",)


def test_a_large_lane_that_was_killed_is_looked_after(lanes: World, monkeypatch: pytest.MonkeyPatch):
    small(lanes)
    planned = begun(lanes)
    stages.copy(lanes.context(), planned.run, 0, quiet)  # and then it dies, before it could tell
    assert small(lanes).published == (), "for as long as it may be at work"
    monkeypatch.setattr(bulk_state, "HEARTBEAT_TIMEOUT_SECONDS", -1.0)
    assert small(lanes).published == ("ns.big",)


def test_without_its_marker_nothing_is_lost(lanes: World):
    small(lanes)
    planned = begun(lanes)
    for path in (lanes.folder / "eu/replica/_sterna/transit").rglob("*.json"):
        path.unlink()
    lanes.commit(a=lanes.write("a"))
    assert small(lanes).published == ("ns.a",)
    assert set(moving(lanes)) == {"ns.big"}
    brought(lanes, planned)
    assert small(lanes).published == ("ns.big",)


def test_a_marker_that_nobody_understands_is_none(lanes: World):
    small(lanes)
    begun(lanes)
    (lanes.folder / "eu/replica/_sterna/transit/round.json").write_text("[]")
    assert read_bulk_state(lanes.context().objects, lanes.context().region) is None
    assert begun(lanes).batches


def test_a_second_large_lane_stops_with_the_reason(lanes: World):
    small(lanes)
    planned = begun(lanes)
    with pytest.raises(Busy, match=planned.run.rpartition("/")[2]):
        begun(lanes)
    brought(lanes, planned)
    assert begun(lanes).batches == ()


def test_of_two_that_plan_at_once_the_second_one_to_end_stops(lanes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """To list a very large table takes long, and nobody shows himself meanwhile."""
    small(lanes)
    others: list[stages.PlannedRun] = []
    make = stages.make_plan

    def overtaken(*args: Any) -> Any:
        first_plan = make(*args)
        monkeypatch.setattr(stages, "make_plan", make)
        others.append(begun(lanes))
        return first_plan

    monkeypatch.setattr(stages, "make_plan", overtaken)
    with pytest.raises(Busy, match="another bulk run"):
        begun(lanes)
    brought(lanes, others[0])
    assert small(lanes).published == ("ns.big",)


@pytest.mark.parametrize("over", [False, True])
def test_a_round_ends_no_other_one_s_record(lanes: World, monkeypatch: pytest.MonkeyPatch, over: bool) -> None:
    small(lanes)
    first = begun(lanes)
    with monkeypatch.context() as patched:
        patched.setattr(bulk_state, "HEARTBEAT_TIMEOUT_SECONDS", -1.0)
        second = begun(lanes)
    if over:
        brought(lanes, second)
    brought(lanes, first)
    recorded = read_bulk_state(lanes.context().objects, lanes.context().region)
    assert recorded and recorded.run.run_id == second.run.rpartition("/")[2] and recorded.is_alive is not over


def test_a_large_lane_has_nothing_to_do_before_something_is_in_transit(lanes: World):
    planned = begun(lanes)
    assert planned.report is not None
    assert planned.report.outcome == "idle"


def test_a_large_lane_can_not_publish(lanes: World):
    small(lanes)
    planned = begun(lanes)
    with pytest.raises(UsageError, match="publishes nothing"):
        stages.publish(lanes.context(), planned.run, StageReport(), StageReport(), quiet)


def test_a_sync_that_overtakes_loses_no_copied_byte(lanes: World):
    small(lanes)
    planned = begun(lanes)
    lanes.commit(big=lanes.write("big"))  # three rows more, while the copy is under way
    brought(lanes, planned)
    report = small(lanes)
    assert report.published == ("ns.big",)
    assert 0 < report.copied.sent < LIMIT


def test_a_table_that_grew_much_meanwhile_goes_once_more(lanes: World):
    lanes.commit(big=lanes.write("big", 4 * LARGE))
    small(lanes)
    planned = begun(lanes)
    lanes.commit(big=lanes.write("big", LARGE))
    brought(lanes, planned)
    assert small(lanes).published == ()
    again = begun(lanes)
    assert LIMIT < sum(batch.bytes for batch in again.batches) < 5 * LIMIT
    brought(lanes, again)
    assert small(lanes).published == ("ns.big",)


def test_a_table_that_grows_as_fast_as_it_is_copied_is_taken_along(lanes: World):
    small(lanes)
    planned = begun(lanes)
    lanes.commit(big=lanes.write("big", LARGE))
    brought(lanes, planned)
    assert small(lanes).published == ("ns.big",), "else it would be in transit for ever"
    lanes.commit(big=lanes.write("big", LARGE))
    assert small(lanes).published == (), "what an earlier round brought says nothing of a later one"


def test_what_grew_while_others_were_brought_for_longer_goes_once_more(lanes: World):
    """The next round is shorter by those: it is not taken along with all that grew."""
    lanes.commit(huge=lanes.write("huge", 6 * LARGE))
    small(lanes)
    planned = begun(lanes)
    lanes.commit(big=lanes.write("big", LARGE))
    brought(lanes, planned)
    report = small(lanes)
    assert (report.published, [item.key for item in report.transit]) == (("ns.huge",), ["ns.big"])
    brought(lanes, begun(lanes))
    assert small(lanes).published == ("ns.big",)


def test_what_the_large_lane_can_not_bring_is_held_with_the_reason(lanes: World):
    small(lanes)
    planned = begun(lanes)
    (data,) = (lanes.folder / "us/lake/big").rglob("*.parquet")
    data.rename(data.with_suffix(".away"))
    report = brought(lanes, planned)
    assert [(item.table, item.kind) for item in report.copied.failed] == [("ns.big", "SourceGone")]
    report = small(lanes)
    assert [(item.key, item.kind) for item in report.held] == [("ns.big", "SourceGone")]
    assert report.transit == ()
    assert small(lanes).outcome == "idle"
    data.with_suffix(".away").rename(data)
    brought(lanes, begun(lanes))
    assert small(lanes).published == ("ns.big",)


def test_no_other_round_is_asked_for_while_one_brings_the_table(lanes: World):
    small(lanes)
    planned = begun(lanes)
    (data,) = (lanes.folder / "us/lake/big").rglob("*.parquet")
    data.rename(data.with_suffix(".away"))
    brought(lanes, planned)
    assert small(lanes).transit == ()
    data.with_suffix(".away").rename(data)
    begun(lanes)
    lanes.commit(a=lanes.write("a"))
    report = small(lanes)
    assert ([item.key for item in report.transit], report.large) == (["ns.big"], False)


def test_a_dropped_table_is_in_transit_no_more(lanes: World):
    small(lanes)
    planned = begun(lanes)
    lanes.commit(big=None)
    report = small(lanes)
    assert (report.transit, report.held) == ((), ())
    brought(lanes, planned)
    assert small(lanes).outcome == "idle"
    assert begun(lanes).report is not None


def test_a_renamed_table_keeps_its_old_name_until_it_is_there(lanes: World):
    run(lanes)
    location = lanes.write("big", LARGE)
    hash = lanes.catalog.reference("main").hash
    from sterna.catalog.model import Delete, Put
    from tests.support.small_world import table

    content = lanes.catalog.contents("main", hash, [("ns", "big")])["ns", "big"]
    put = Put(("ns", "new"), table(location, content.id))
    lanes.catalog.commit("main", hash, [Delete(("ns", "big")), put], "rename")
    small(lanes)
    assert set(moving(lanes)) == {"ns.big", "ns.new"}
    planned = begun(lanes)
    lanes.commit(a=lanes.write("a"))
    assert small(lanes).published == ("ns.a",)
    assert "ns.big" in lanes.replica()
    brought(lanes, planned)
    assert set(small(lanes).published) == {"ns.big", "ns.new"}


def test_a_seed_with_a_large_table_publishes_the_others_at_once(world: World):
    world = with_lanes(world)
    world.commit(a=world.write("a"), b=world.write("b"))
    world.commit(big=world.write("big", LARGE))
    world.commit(c=world.write("c"))
    report = sync(world.context(), replace(SMALL, seed_group=1), quiet, engine=here)
    assert {"ns.a", "ns.b", "ns.c"} <= set(report.published)
    assert set(moving(world)) == {"ns.big"}
    assert head(world).watermark
    brought(world, begun(world))
    assert small(world).published == ("ns.big",)


def test_its_lag_is_its_own_and_the_region_s(lanes: World):
    report = small(lanes)
    (item,) = report.transit
    assert item.since
    assert report.watermark_lag_seconds == 0.0
    assert report.lag_seconds is not None
    assert report.lag_seconds > 0.0


def test_only_some_tables_leave_the_others_in_transit(lanes: World):
    small(lanes)
    lanes.commit(a=lanes.write("a"))
    report = sync(lanes.context(), replace(SMALL, tables=("ns.a",)), quiet, engine=here)
    assert report.published == ("ns.a",)
    assert set(moving(lanes)) == {"ns.big"}
    assert stages.plan(lanes.context(), replace(LARGE_LANE, tables=("ns.a",)), quiet).report is not None
    assert stages.plan(lanes.context(), replace(LARGE_LANE, tables=("ns.b*",)), quiet).batches


def test_a_publication_says_when_a_large_lane_is_wanted(lanes: World):
    assert small(lanes).large
    planned = begun(lanes)
    lanes.commit(a=lanes.write("a"))
    assert not small(lanes).large, "one is at work"
    brought(lanes, planned)
    assert not small(lanes).large


def test_how_far_the_copy_is_can_be_read(lanes: World):
    small(lanes)
    planned = begun(lanes)
    (entry,) = moving(lanes).values()
    assert (
        bulk_state := read_bulk_state(lanes.context().objects, lanes.context().region, count_remaining=True)
    ) is not None
    assert (bulk_state.is_alive, bulk_state.remaining_bytes) == (True, {"ns.big": entry.bytes})
    for batch in planned.batches:
        stages.copy(lanes.context(), planned.run, batch.number, quiet)
    assert (
        bulk_state := read_bulk_state(lanes.context().objects, lanes.context().region, count_remaining=True)
    ) is not None
    assert bulk_state.remaining_bytes == {"ns.big": 0}


def test_a_heartbeat_that_can_not_be_written_stops_no_copy(lanes: World):
    small(lanes)
    planned = begun(lanes)
    with patch.object(objects.Objects, "overwrite", side_effect=StoreDenied("no")):
        assert stages.copy(lanes.context(), planned.run, 0, quiet).files


def test_a_sync_leaves_the_large_copy_to_another_one_that_shows_itself(lanes: World, monkeypatch: pytest.MonkeyPatch):
    small(lanes)
    planned = begun(lanes)
    lanes.commit(a=lanes.write("a"))
    messages: list[str] = []

    def beat(seconds: float) -> None:
        stages.copy(lanes.context(), planned.run, 0, quiet)

    replace_functions(monkeypatch, sync_run, time, sleep=beat)
    report = sync(lanes.context(), SyncOptions(), messages.append, engine=here)
    assert (report.published, [item.key for item in report.transit]) == (("ns.a",), ["ns.big"])
    assert any(planned.run.rpartition("/")[2] in line for line in messages)


def test_a_sync_takes_over_from_one_that_is_dead(lanes: World, monkeypatch: pytest.MonkeyPatch):
    small(lanes)
    begun(lanes)

    def expire(seconds: float) -> None:
        monkeypatch.setattr(bulk_state, "HEARTBEAT_TIMEOUT_SECONDS", -1.0)

    replace_functions(monkeypatch, sync_run, time, sleep=expire)
    assert run(lanes).published == ("ns.big",)


def test_a_round_is_alive_while_it_localizes_for_minutes_without_a_word(
    lanes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last batch is long done: without a sign of its own it would count as dead, and be done twice."""
    small(lanes)
    planned = begun(lanes)
    context = lanes.context()
    copied = sum((stages.copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    monkeypatch.setattr(bulk_state, "HEARTBEAT_SECONDS", 0.01)
    shown: list[Path] = []

    def silent(*args: Any) -> StageReport:
        until = time.monotonic() + 30
        while not shown and time.monotonic() < until:
            shown.extend((lanes.folder / "eu" / "replica").rglob("at-work.json"))
        return localize_files(*args)

    with patch.object(stages, "localize_files", silent):
        stages.localize(context, planned.run, copied, quiet, here)
    assert shown
    assert not [thread for thread in threading.enumerate() if thread.name == "sterna-at-work"], (
        "it ends with what it tells of"
    )
