"""Groups that couldn't be written: told once, not priced again, and tried again when something about them is another.

The kind: work that comes to nothing each time, and is in the way of what would. It falls under it that the same files
are told again in smaller groups of one run, that another region's take of the day's price, and that what was to blame
was no group at all: Spark or a store that was gone. A record that can't be read costs a try.

Another kind: an alarm that goes green though nothing is well. It falls under it that reads are taken for a proof that
writes work (a denied PutObject, a quota, a full scratch disk), that another location's writes are, and that the runs
which leave such a group alone end well. The other way round: without any proof a lone group costs three runs, then one
a day, and not each.

A third one: others' stores are asked one after another, each for as long as it may be silent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.config.registry.folders import MAINTENANCE, state_folder
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import EngineError, StoreUnreachable
from sterna.maintenance.tables import failed_groups
from sterna.maintenance.tables.failed_groups import (
    RETRY_AFTER,
    build_unwritten_group,
    exclude_unwritten,
    read_unwritten,
    write_unwritten,
)
from sterna.maintenance.tables.model import Group, MaintenanceReport, TablePlan, TableReport
from sterna.maintenance.tables.plan import find_tables, plan_maintenance
from sterna.maintenance.tables.run import MaintenanceRun, has_work
from sterna.spark.rewrite_data_files import PlannedGroup
from sterna.storage.objects import Objects
from sterna.text.maintenance import done_text
from tests.support.small_world import World, make_world

RULE = {"match": ["ns.**"], "min_age": "10m"}
SETTINGS = Maintenance.model_validate({"tables": [RULE]})
NOW = datetime.now(UTC) + timedelta(hours=6)  # a run of all tests begins long before


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    for _ in range(5):
        world.write("a")
    world.commit(a=world.write("a"))
    return world


def planned(world: World, now: datetime = NOW, settings: Maintenance = SETTINGS, region: str = "us") -> TablePlan:
    return plan_maintenance(world.context(region), settings, now=now).tables[0]


def write_down(world: World, group: Group) -> None:
    unwritten = build_unwritten_group("ns.a", group, SETTINGS.tables[0], "EngineError: broken", NOW)
    write_unwritten(world.context("us"), [unwritten], NOW)


def test_it_is_told_once_and_waits_for_a_change_or_a_day(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    for region in ("us", "eu"):
        table_plan = planned(world, region=region)
        assert table_plan.groups == ()
        assert not has_work(table_plan, "us")
        assert table_plan.left[-1].startswith("6 files of us, the whole table, could not be written at ")
        assert table_plan.left[-1].endswith(": EngineError: broken")
    assert planned(world, NOW + RETRY_AFTER).groups == (group,)
    assert planned(world, NOW - timedelta(days=3)).groups != ()  # of a clock that was wrong nobody waits for long
    other = Maintenance.model_validate({"tables": [RULE | {"sort": "id"}]})
    assert planned(world, settings=other).groups == (group,)
    world.commit(a=world.write("a"))
    assert [planned_group.files for planned_group in planned(world).groups] == [7]


def test_whoever_names_a_table_has_it_tried_at_once(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    for tables, groups in ((["ns.a"], (group,)), (["ns.*"], ())):
        assert plan_maintenance(world.context("us"), SETTINGS, tables, now=NOW).tables[0].groups == groups
        run = MaintenanceRun(world.context("us"), SETTINGS, "u", Spark(), print, lambda: NOW, frozenset(tables))  # type: ignore[arg-type]
        table, _ = run.inspect("ns.a")
        assert table is not None and table.groups == groups


def test_another_group_keeps_its_place_in_the_file(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    write_down(world, replace(group, paths=frozenset({"x"})))
    assert len(read_unwritten(world.context("us"), NOW)) == 2
    assert read_unwritten(world.context("eu"), NOW) == {}
    assert len(read_unwritten(world.context("eu"), NOW, ["us", "eu"])) == 2
    later = NOW + timedelta(hours=30)
    unwritten = build_unwritten_group("ns.b", group, SETTINGS.tables[0], "x", later)
    write_unwritten(world.context("us"), [unwritten], later)
    assert list(read_unwritten(world.context("us"), later)) == [unwritten.digest]


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"groups": [{"digest": "x"}]}', b'{"groups": 3}'])
def test_what_cannot_be_read_costs_a_try(world: World, written: bytes) -> None:
    context = world.context("us")
    context.objects.overwrite(f"{state_folder(context.region.replica_root, MAINTENANCE)}/unwritten.json", written)
    assert len(planned(world).groups) == 1
    (group,) = planned(world).groups
    write_down(world, group)
    assert planned(world).groups == ()


class Spark:
    """A driver whose executors answer, or don't."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def check_executors(self) -> None:
        if self.error:
            raise self.error


def ran(world: World, spark: Spark) -> tuple[MaintenanceRun, Group]:
    """A run that could not write its one group."""
    (group,) = planned(world).groups
    run = MaintenanceRun(world.context("us"), SETTINGS, "upkeep-1", spark, print, lambda: NOW)  # type: ignore[arg-type]
    unwritten = build_unwritten_group("ns.a", group, SETTINGS.tables[0], "EngineError: broken", NOW)
    run.unwritten.append((unwritten, group, "us-lake"))
    run.writable.add("us-lake")
    return run, group


def test_one_run_tries_no_file_of_it_again(world: World) -> None:
    run, group = ran(world, Spark())
    table, _ = run.inspect("ns.a", 4)
    assert table is not None
    assert table.groups == ()
    run.unwritten[0] = (run.unwritten[0][0], replace(group, paths=frozenset({"x"})), "us-lake")
    table, _ = run.inspect("ns.a", 4)
    assert table is not None
    assert len(table.groups) == 1


def test_what_spark_or_a_store_is_to_blame_for_is_tried_at_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, group = ran(world, Spark(EngineError("Spark is gone")))
    run.record_unwritten()
    assert planned(world).groups == (group,)
    run, group = ran(world, Spark())

    def dark(uri: str) -> Callable[[str], Any]:
        raise StoreUnreachable("dark")

    with monkeypatch.context() as patched:
        patched.setattr(run.context.objects, "size", dark)
        run.record_unwritten()
    assert planned(world).groups == (group,)
    run.record_unwritten()
    assert planned(world).groups == ()


def test_nothing_is_written_where_all_went_well(world: World) -> None:
    MaintenanceRun(world.context("us"), SETTINGS, "upkeep-1", Spark(), print, lambda: NOW).record_unwritten()  # type: ignore[arg-type]
    assert read_unwritten(world.context("us"), NOW) == {}
    (table,) = plan_maintenance(world.context("us"), SETTINGS, now=NOW).tables
    assert exclude_unwritten(table, SETTINGS.tables[0], {}) == table


class Written:
    """Spark, which writes what it may."""

    def __init__(self, denied: frozenset[str]) -> None:
        self.denied = denied

    def write(self, planned: PlannedGroup, index: int) -> SimpleNamespace:
        if planned.paths & self.denied:
            raise EngineError("Access Denied (PutObject, 403)")
        return SimpleNamespace(files=1, bytes=9)

    def replace_files(self, written: object, summary_properties: object) -> None:
        pass


def batch(world: World, denied: str, *, apart: str = "") -> MaintenanceReport:
    """A run over two groups, of which those named by their partition couldn't be written; and what is planned then."""
    plan = plan_maintenance(world.context("us"), SETTINGS, now=NOW)
    (group,) = plan.tables[0].groups
    groups = [replace(group, partition=name) for name in "ab"]
    groups[1] = replace(groups[1], paths=frozenset({"x"}), into=apart)
    _, (ruled,) = find_tables(world.context("us"), SETTINGS, ["ns.a"])
    run = MaintenanceRun(world.context("us"), SETTINGS, "upkeep-1", Spark(), print, lambda: NOW)  # type: ignore[arg-type]
    spark: Any = Written(frozenset().union(*(group.paths for group in groups if group.partition in denied)))
    run.write_batch(spark, ruled, groups, TableReport("ns.a"))
    run.record_unwritten()
    return MaintenanceReport("us", "upkeep-2", False, plan_maintenance(world.context("us"), SETTINGS, now=NOW))


def test_nothing_is_put_aside_by_a_store_that_refuses_all_writes(world: World) -> None:
    assert batch(world, "ab").plan.tables[0].groups != ()
    # What another location takes is no proof for this one.
    assert batch(world, "a", apart=f"file://{world.folder}/eu/lake/a").plan.tables[0].groups != ()


def lone(world: World, hours: float) -> MaintenanceReport:
    """A run over the only group that there is, which can't be written; and what is planned then."""
    now = NOW + timedelta(hours=hours)
    (table,) = plan_maintenance(world.context("us"), SETTINGS, now=now).tables
    _, (ruled,) = find_tables(world.context("us"), SETTINGS, ["ns.a"])
    run = MaintenanceRun(world.context("us"), SETTINGS, "upkeep-1", Spark(), print, lambda: now)  # type: ignore[arg-type]
    if table.groups:
        spark: Any = Written(frozenset().union(*(group.paths for group in table.groups)))
        run.write_batch(spark, ruled, table.groups, TableReport("ns.a"))
    run.record_unwritten()
    return MaintenanceReport("us", "upkeep-2", False, plan_maintenance(world.context("us"), SETTINGS, now=now))


def test_a_lone_group_costs_three_runs_and_then_one_a_day(world: World) -> None:
    tried = []
    for hour in range(60):
        before = planned(world, NOW + timedelta(hours=hour)).groups
        done = lone(world, hour)
        if before:
            tried.append(hour)
        elif not done.plan.tables[0].groups:
            assert done.failed == ("ns.a",), "it is an alarm as long as it can't be written"
    assert tried == [0, 1, 2, 26, 50]
    world.commit(a=world.write("a"))
    assert [group.files for group in planned(world, NOW + timedelta(hours=61)).groups] == [7]


def test_what_an_older_sterna_wrote_down_had_a_proof(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    context = world.context("us")
    uri = f"{state_folder(context.region.replica_root, MAINTENANCE)}/unwritten.json"
    written = json.loads(context.objects.read(uri))
    for stored_group in written["groups"]:
        del stored_group["unproven"]
    context.objects.overwrite(uri, json.dumps(written).encode())
    assert planned(world).groups == ()


def test_stores_that_are_silent_cost_one_limit_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one that is silent waits until all have been asked: one after another nobody would be the last."""
    (group,) = planned(world).groups
    write_down(world, group)
    context, asked = world.context("us"), threading.Barrier(3, timeout=60)
    read, silent = failed_groups.read_region_groups, threading.Event()

    def hang(context: Any, region: str) -> Any:
        if region == "us":
            return read(context, region)
        asked.wait()
        silent.wait(60)
        return ()

    monkeypatch.setattr(failed_groups, "read_region_groups", hang)
    monkeypatch.setattr(failed_groups, "STORE_TIMEOUT_SECONDS", 0.2)
    try:
        names = ["eu", "us", "ap", "af"]
        assert len(read_unwritten(context, NOW, names)) == 1
    finally:
        silent.set()
    assert not asked.broken


def test_runs_fail_while_a_group_stands_that_no_run_could_write(world: World) -> None:
    done = batch(world, "a")
    assert done.plan.tables[0].groups == ()
    assert done.failed == ("ns.a",)
    assert "ns.a: groups of us could not be written" in done_text(done)
    assert "PutObject, 403" in done_text(done)
    assert replace(done, region="eu").failed == ()
    assert replace(done, dry_run=True).failed == ()
    later = plan_maintenance(world.context("us"), SETTINGS, now=NOW + RETRY_AFTER)
    assert replace(done, plan=later).failed == ()


def test_a_region_that_is_gone_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    gone = Maintenance.model_validate({"tables": [RULE], "gone": ["us"]})
    assert planned(world, settings=gone, region="eu").groups != ()
    assert planned(world, settings=gone).groups == ()
    asked: list[float] = []
    build = Objects.__init__

    def built(self: Objects, mapping: Any, secrets: Any, *, timeout: float = 60.0, workers: int = 32) -> None:
        asked.append(timeout)
        build(self, mapping, secrets, timeout=timeout, workers=workers)

    context = world.context("eu")
    assert context.objects.timeout == 60.0
    monkeypatch.setattr(Objects, "__init__", built)
    assert len(read_unwritten(context, NOW, ["us"])) == 1
    assert asked == [10.0]


def test_a_run_reads_its_own_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = ran(world, Spark())
    asked: list[str] = []
    read = run.context.objects.read

    def counted(uri: str, *, limit: int | None = None) -> bytes:
        asked.append(uri)
        return read(uri, limit=limit)

    monkeypatch.setattr(run.context.objects, "read", counted)
    for _ in range(3):
        run.inspect("ns.a")
    assert sum(uri.endswith("unwritten.json") for uri in asked) == 1
