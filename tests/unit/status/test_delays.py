"""How late new versions became visible: windows, objectives, and what is said where nothing is known."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sterna.config.registry.model import Registry
from sterna.operations.alarms import AlarmLimits, find_alarms
from sterna.operations.measures import MEASURES, Measure, region_measures
from sterna.operations.status import delays as delays_module
from sterna.operations.status.delay_model import RegionDelays
from sterna.operations.status.delays import read_region_delays, summarize_delays
from sterna.operations.status.gather import gather_status
from sterna.operations.status.model import RegionStatus
from sterna.operations.status.read import read_alarm_status, read_status, with_delays
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.delay_hours import DelayHour, IndexUnusable, hour_of, hour_start
from sterna.replication.replica.delay_index import DelayIndex
from sterna.replication.replica.delay_tracker import DelayState, OpenCommits
from sterna.text.status import status_text
from tests.support.small_world import World, gone, run

NOW = datetime(2026, 11, 28, 19, 33, tzinfo=UTC)
STATE = DelayState(1_764_000_000_000, "r", "m")


def hour(back: int, **tables: dict[int, dict[int, int]]) -> DelayHour:
    name = hour_of(int((NOW - timedelta(hours=back)).timestamp() * 1000))
    return DelayHour(name, "", "", STATE, {f"ns.{table}": slots for table, slots in tables.items()})


def registry(world: World, *policies: dict[str, object]) -> Registry:
    return Registry.model_validate({**world.registry.model_dump(mode="json"), "policies": list(policies)})


def test_a_window_has_what_ended_in_it_and_what_goes_on(world: World) -> None:
    index = DelayIndex(
        (hour(100, a={0: {500: 1}}), hour(20, a={3: {80: 2}}), hour(1, a={5: {7: 9}}), hour(0, a={6: {5: 90}})),
        {"ns.b": (OpenCommits(int((NOW - timedelta(seconds=30)).timestamp() * 1000), 1),)},
    )
    delays = summarize_delays(index, world.registry, "eu", NOW)
    windows = {summary.window: summary for summary in delays.windows}
    assert {name: summary.count for name, summary in windows.items()} == {"hour": 91, "day": 102, "week": 103}
    assert (windows["hour"].p50, windows["hour"].p99, windows["hour"].most) == (5, 30, 30)
    assert (windows["day"].most, windows["week"].most) == (80, 500)
    tables = {table.key: table.windows for table in delays.tables}
    assert [summary.count for summary in tables["ns.b"]] == [1, 1, 1]
    assert [summary.count for summary in tables["ns.a"]] == [90, 101, 102]
    assert (delays.points[0].most, delays.points[-1]) == (80, delays.points[-1].__class__(int(NOW.timestamp()), 5, 30))


def test_an_hour_is_its_last_twelve_parts(world: World) -> None:
    start = hour_start(hour(0).hour)
    parts = {slot: {slot: 1} for slot in range(7)}
    index = DelayIndex((hour(1, a={slot: {100 + slot: 1} for slot in range(12)}), hour(0, a=parts)), {})
    delays = summarize_delays(index, world.registry, "eu", NOW)
    assert NOW.timestamp() - start == 33 * 60
    # Of 18:33 to 19:33, with the part of 18:30 that has some of it.
    assert delays.windows[0].count == 6 + 7


def test_without_any_there_is_no_percentile(world: World) -> None:
    delays = summarize_delays(DelayIndex((hour(0),), {}), world.registry, "eu", NOW)
    assert {(summary.count, summary.p50, summary.most) for summary in delays.windows} == {(0, None, None)}
    assert delays.points == ()


def test_a_table_counts_for_the_first_policy_that_matches_it(world: World) -> None:
    objective = {"lag": "60s", "share": 0.9}
    ruled = registry(
        world,
        {"tables": ["ns.a"], "objective": objective},
        {"tables": ["ns.c"]},
        {"tables": ["**"], "objective": {"lag": "1h", "share": 0.99}},
        {"tables": ["x.**"], "replicate": False, "objective": objective},
    )
    index = DelayIndex((hour(0, a={6: {5: 9, 61: 1}}, b={6: {61: 4}}, c={6: {9_000: 1}}),), {})
    first, second = summarize_delays(index, ruled, "eu", NOW).objectives
    assert (first.policy, first.count, first.late, first.burning) == (1, 10, 1, False)
    assert first.left == pytest.approx(0.0)
    assert (second.policy, second.count, second.late, second.left) == (3, 4, 0, 1.0)


def test_a_held_table_burns_the_budget_and_the_alert_says_so(world: World) -> None:
    world = replace(world, registry=registry(world, {"tables": ["**"], "objective": {"lag": "1s", "share": 0.99}}))
    world.commit(a=world.write("a"))
    run(world)
    world.commit(bad=gone(world, "bad"))
    run(world)
    status = gather_status(world.context())
    index_now = read_region_delays(
        world.context(), world.context().objects, now=datetime.now(UTC) + timedelta(seconds=90)
    )
    assert status.delays is not None and not status.delays.problem
    burning = replace(status, delays=index_now)
    (alarm,) = (alarm for alarm in find_alarms(burning, AlarmLimits(math.inf)) if alarm.reason == "objective")
    assert "misses an objective: 99 % of ** within 1 s: 1 of 1 versions of a week are late" in alarm.message
    assert "burning at up to 100 times" in alarm.message
    text = status_text(burning)
    assert "objective 99 % of ** within 1 s: 0 of 1 in a week, its budget is exceeded 100 times (BURNING)" in text
    assert "the slowest tables: ns.bad day p50" in status_text(status)


def test_what_is_unknown_is_said_and_never_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = replace(world, registry=registry(world, {"tables": ["**"], "objective": {"lag": "60s", "share": 0.99}}))
    world.commit(a=world.write("a"))
    run(world)

    def unusable(*_: object) -> None:
        raise IndexUnusable("the index of delays is damaged")

    assert find_alarms(read_alarm_status(world.context()), AlarmLimits(math.inf)) == ()
    monkeypatch.setattr(delays_module, "read_delay_index", unusable)
    status = read_alarm_status(world.context())
    (alarm,) = find_alarms(status, AlarmLimits(math.inf))
    assert (alarm.reason, alarm.exit_code) == ("objective", 4)
    assert "whether objectives are met is unknown: the index of delays is damaged" in alarm.message
    assert "what is left of its budget is unknown" in status_text(status)
    names = {measure.name: measure.value for measure in region_measures(status, AlarmLimits(math.inf))}
    assert (names["delays_unknown"], names["objective_unknown"]) == (1, 1)
    assert not {"objective_left", "objective_burning", "delay_seconds"} & names.keys()


def test_while_a_region_is_cut_off_no_objective_counts_as_met(world: World) -> None:
    world = replace(world, registry=registry(world, {"tables": ["**"], "objective": {"lag": "60s", "share": 0.99}}))
    world.commit(a=world.write("a"))
    run(world)
    outage = PrimaryOutage("us", "does not answer", "ab" * 32, "2026-07-01T00:00:00+00:00", "")
    status = with_delays(world.context(), replace(read_status(world.context()), cut_off=outage))
    assert status.delays is not None
    assert status.delays.problem.startswith("cut off: primary us does not answer")
    assert [objective.burning for objective in status.delays.objectives] == [None]
    assert [alarm.reason for alarm in find_alarms(status, AlarmLimits(math.inf))] == ["cut off"]
    names = {measure.name: measure.value for measure in region_measures(status, AlarmLimits(math.inf))}
    assert (names["objective_unknown"], names["cut_off"]) == (1, 1)
    assert not {"objective_left", "objective_burning", "delay_seconds"} & names.keys()


def test_each_number_is_described_and_has_the_labels_that_it_is_to_have(world: World) -> None:
    world = replace(world, registry=registry(world, {"tables": ["**"], "objective": {"lag": "60s", "share": 0.99}}))
    world.commit(a=world.write("a"))
    run(world)
    world.commit(a=world.write("a"))
    run(world)
    measures = region_measures(read_alarm_status(world.context()), AlarmLimits(60.0))
    assert {measure.name for measure in measures} >= {"lag_seconds", "delay_seconds", "objective_left"}
    for measure in measures:
        assert tuple(measure.labels) == MEASURES[measure.name][1], measure
    assert Measure("objective_left", 1.0, {"policy": "1"}) in measures
    assert Measure("delays", 1, {"window": "hour"}) in measures


def test_a_region_of_which_nothing_was_read_has_no_line_of_delays() -> None:
    status = RegionStatus("eu", "main_replica_eu", "r", "w", "h", 0.0, "run-1", "", (), ())
    assert "visible" not in status_text(status)
    assert "unknown: gone" in status_text(replace(status, delays=RegionDelays(problem="gone")))
