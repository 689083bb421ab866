"""The lag of a region: the oldest of its watermark's and its held tables'."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sterna.replication.replica.head import read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.lag import Lags, held_lag, measure_lag, measure_lags
from tests.support.small_world import World, gone, make_world, run

NOW = datetime(2026, 7, 31, 12, tzinfo=UTC)
MONTH = timedelta(days=30)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def held(key: str, since: str = "", **more: str) -> Held:
    return Held(key, "Unsupported", "is encrypted", since=since, **more)


def test_a_table_that_is_held_for_a_month_is_the_regions_lag(world: World) -> None:
    world.commit(a=world.write("a"), other=world.write("other"))
    run(world)
    world.commit(a=gone(world, "a"))
    for _ in range(2):
        world.commit(other=world.write("other"))
        report = run(world)
        assert [item.key for item in report.held] == ["ns.a"]
    (item,) = read_head(world.catalog, "main_replica_eu").held
    later = datetime.fromisoformat(item.since) + MONTH
    assert read_head(world.catalog, "main_replica_eu").watermark == world.catalog.reference("main").hash
    assert measure_lags(world.context(), later) == Lags(0.0, MONTH.total_seconds())
    assert measure_lag(world.context(), later) == MONTH.total_seconds()
    assert report.watermark_lag_seconds == 0.0
    assert report.lag_seconds


def test_a_report_tells_the_oldest_lag_also_when_there_was_nothing_to_do(world: World) -> None:
    world.commit(a=gone(world, "a"))
    first, idle = run(world), run(world)
    assert (first.outcome, idle.outcome) == ("published", "idle")
    for report in (first, idle):
        assert report.watermark_lag_seconds == 0.0
        assert report.lag_seconds


def test_one_that_waits_for_another_counts_as_well() -> None:
    since = (NOW - MONTH).isoformat()
    assert (
        held_lag([held("ns.b", since, waits_for="ns.a"), held("ns.a", NOW.isoformat())], NOW) == MONTH.total_seconds()
    )


def test_nothing_held_is_no_lag() -> None:
    assert held_lag([], NOW) == 0.0
    assert Lags(3.0, 0.0).oldest == 3.0


@pytest.mark.parametrize("since", ["", "yesterday"])
def test_held_nobody_knows_since_when_is_an_unknown_lag_and_never_none(since: str) -> None:
    assert held_lag([held("ns.a", since), held("ns.b", NOW.isoformat())], NOW) is None
    assert Lags(3.0, None).oldest is None


def test_a_clock_that_is_behind_makes_no_lag_below_nothing() -> None:
    assert held_lag([held("ns.a", (NOW + timedelta(seconds=5)).isoformat())], NOW) == 0.0
    assert held_lag([held("ns.a", "2026-07-31T11:00:00")], NOW) == 3600.0, "without an offset it is UTC"
