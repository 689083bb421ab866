"""Tables in transit, as status tells of them: since when, how much is left, and whether somebody is at it."""

from __future__ import annotations

from sterna.errors import StoreUnreachable
from sterna.operations.status.read import read_alarm_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from sterna.text.status import status_text
from tests.support.small_world import World, here, quiet, refusing, run, with_registry


def in_transit(world: World) -> World:
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    run(world)
    world = with_registry(world, regions=regions)
    world.commit(big=world.write("big"))
    sync(world.context(), SyncOptions(lane="small"), quiet, engine=here)
    return world


def test_a_table_in_transit_is_not_held_and_has_a_lag(world: World) -> None:
    world = in_transit(world)
    status = read_alarm_status(world.context())
    (item,) = status.transit
    assert (status.held, status.held_lag_seconds, status.watermark_lag_seconds) == ((), 0.0, 0.0)
    assert status.lag_seconds == status.transit_lag_seconds == item.lag_seconds
    assert item.bytes_left == item.held.bytes > 0
    assert item.under_way is False
    text = status_text(status)
    assert f"in transit ns.big since {item.held.since}" in text
    assert f"{item.bytes_left} bytes left, no bulk run is copying it" in text
    assert "(without tables in transit 0.0 s)" in text


def test_how_far_its_copy_is(world: World) -> None:
    world = in_transit(world)
    context = world.context()
    planned = stages.plan(context, SyncOptions(lane="large"), quiet)
    (item,) = read_alarm_status(context).transit
    assert (item.bytes_left, item.under_way) == (item.held.bytes, True)
    stages.copy(context, planned.run, 0, quiet)
    (item,) = read_alarm_status(context).transit
    assert (item.bytes_left, item.under_way) == (0, True)
    assert "0 bytes left, being copied" in status_text(read_alarm_status(context))


def test_where_the_store_is_dark_it_says_what_the_head_says(world: World) -> None:
    world = in_transit(world)
    with refusing(f"file://{world.folder}/eu/replica/_sterna/transit", StoreUnreachable):
        status = read_alarm_status(world.context())
    (item,) = status.transit
    assert (item.bytes_left, item.under_way) == (item.held.bytes, None)
    assert any("in transit" in line for line in status.unseen)
