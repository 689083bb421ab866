"""What upkeep finds of tables on `main`, read without Spark; and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from sterna.catalog.model import Content, Delete, Put
from sterna.config.registry.model import Registry
from sterna.config.sections.load import parse_services
from sterna.config.sections.maintenance import Maintenance, MaintenanceRule
from sterna.errors import ServicesError, UsageError
from sterna.iceberg.manifests.amounts import read_file_stats
from sterna.iceberg.manifests.manifest_list import read_manifest_list
from sterna.iceberg.metadata.table import read_table_metadata
from sterna.maintenance.tables import table_stats
from sterna.maintenance.tables.bin_packing import fit_merges_in_budget, plan_groups
from sterna.maintenance.tables.model import (
    APP_ID,
    PRICE_PROPERTY,
    Amounts,
    LiveFile,
    MaintenanceReport,
    TablePlan,
    TableReport,
)
from sterna.maintenance.tables.plan import plan_maintenance
from sterna.maintenance.tables.run import MaintenanceRun
from sterna.text.maintenance import done_fields, done_text, plan_fields, plan_text
from tests.support.small_world import World, make_world, ruled
from tests.support.small_world import table as content

SETTINGS = Maintenance.model_validate({"tables": [{"match": ["ns.**"], "min_age": "10m", "egress_per_day": 1.0}]})


@pytest.fixture
def world(tmp_path: Path) -> World:
    """What leaves a region costs 100,000 a GB."""
    world = make_world(tmp_path)
    dumped = world.registry.model_dump(mode="json")
    for location in dumped["locations"]:
        location["egress_per_gb"] = {"*": 1e5}
    return World(world.folder, world.catalog, world.writer, Registry.model_validate(dumped))


def later(hours: float = 1.0) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def many(world: World, name: str, files: int = 6) -> None:
    for _ in range(files - 1):
        world.write(name)
    world.commit(**{name: world.write(name)})


def test_small_files_are_counted_with_what_a_rewrite_ships_and_costs(world: World) -> None:
    many(world, "a")
    plan = plan_maintenance(world.context(), SETTINGS, now=later())
    (table_plan,) = plan.tables
    assert (table_plan.table, table_plan.files, table_plan.small, table_plan.home) == ("ns.a", 6, 6, "us")
    (group,) = table_plan.groups
    assert (group.region, group.files, group.new_files, group.when, group.into) == ("us", 6, 1, "now", "")
    assert group.shipped == {"eu": group.new_bytes}
    assert group.price == pytest.approx(group.new_bytes / 1e4)
    assert group.new_bytes < group.bytes
    text = plan_text(plan)
    assert "6 files of" in text and "bytes to eu; price" in text and "0.0000 spent of 1.0000" in text
    assert "paths" not in json.dumps(plan_fields(plan))


def test_what_is_being_written_is_left_and_named(world: World) -> None:
    many(world, "a")
    (table_plan,) = plan_maintenance(world.context(), SETTINGS).tables
    assert [group.when for group in table_plan.groups] == ["quiet"]
    assert table_plan.left == ("the whole table: written too recently",)


def test_a_table_that_is_never_quiet_is_called_starved(world: World) -> None:
    """By how long its files wait; and by how many, for expiry leaves no older snapshot that would tell when."""
    many(world, "a")
    quiet = MaintenanceRule.model_validate({"match": ["ns.**"], "min_age": "2d"})
    settings = SETTINGS.model_copy(update={"tables": [quiet]})
    left_by_hours = {
        hours: plan_maintenance(world.context(), settings, now=later(hours)).tables[0].left for hours in (23, 25)
    }
    assert left_by_hours[23] == ("the whole table: written too recently",)
    for hours, starved in ((23, False), (25, True)):
        plan = plan_maintenance(world.context(), settings, now=later(hours))
        done = MaintenanceReport("us", "upkeep-1", False, plan)
        assert (plan.tables[0].starved, done.starved) == ((("us",), ("ns.a",)) if starved else ((), ()))
        assert ("ns.a: files of us are starved" in done_text(done)) is starved
        assert replace(done, region="eu").starved == replace(done, dry_run=True).starved == ()
    (line,) = left_by_hours[25]
    assert line.startswith(
        "the whole table: written too recently, and starved: 6 files wait, enough for a rewrite since 20"
    )
    with patch.object(table_stats, "STARVED_FILES", 6):
        assert (
            "and starved: 6 files wait" in plan_maintenance(world.context(), settings, now=later(1)).tables[0].left[0]
        )


DAY_MS = 86_400_000


def waiting(days: Sequence[float], deleted: float = 0.0) -> tuple[str, ...]:
    """What is said of small files of a partition that was just written, by how long ago each was written."""
    now, rule = 100 * DAY_MS, MaintenanceRule(match=["*"])
    last = now - int(min(days) * DAY_MS)
    file = LiveFile("", 1 << 20, 1, -1, 0, "", "eu", "l", deleted, last, 0)
    files = [replace(file, path=f"s3://b/{ago}", written_ms=now - int(ago * DAY_MS)) for ago in days]
    return table_stats.recent_write_lines(plan_groups(files, rule, now), files, rule.target, now)


def test_starved_is_what_was_enough_for_a_rewrite_a_day_ago() -> None:
    """A file alone that is old waits for others: so does a table that gets one a day."""
    assert waiting([0.001, 1, 2, 3]) == ()
    assert waiting([0.001, 1, 2, 3, 4]) == ("the whole table: written too recently",)
    assert waiting([0.001, 0.9, 2, 3, 4, 5]) == ("the whole table: written too recently",)
    (line,) = waiting([0.001, 1.1, 2, 3, 4, 5])
    assert line.endswith("and starved: 6 files wait, enough for a rewrite since 1970-04-09 21:36 UTC or longer")
    # Since when the deleted rows of old files are so many isn't known.
    assert waiting([0.001, 3], deleted=0.5) == ("the whole table: written too recently",)


def test_partitions_have_names_and_only_the_young_ones_wait(world: World) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
    place = f"file://{world.folder}/us/lake/p"
    table = world.writer.create_table(("ns", "p"), schema, partition_spec=spec, location=place)
    for day in ("mon", "tue"):
        for _ in range(5):
            table.append(pa.table({"id": [1], "day": [day]}, schema=schema.as_arrow()))
    world.commit(p=world.writer.load_table(("ns", "p")).metadata_location)
    (table_plan,) = plan_maintenance(world.context(), SETTINGS, now=later()).tables
    assert [(group.partition, group.files) for group in table_plan.groups] == [("day=mon", 5), ("day=tue", 5)]


def test_files_of_a_partition_whose_column_was_dropped_are_no_work_and_cost_nothing(world: World) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
    place = f"file://{world.folder}/us/lake/a"
    table = world.writer.create_table(("ns", "a"), schema, partition_spec=spec, location=place)
    for _ in range(5):
        table.append(pa.table({"id": [1], "day": ["mon"]}, schema=schema.as_arrow()))
    with table.update_spec() as update:
        update.remove_field("day")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("day")
    for _ in range(5):
        table.append(pa.table({"id": [1]}))
    world.commit(a=world.writer.load_table(("ns", "a")).metadata_location)
    price = plan_maintenance(world.context(), SETTINGS, now=later()).tables[0].groups[-1].price
    # A day's price that does for one group isn't spent on the one that Iceberg can't write.
    settings = Maintenance.model_validate(
        {"tables": [{"match": ["ns.**"], "min_age": "10m", "egress_per_day": price * 1.5}]}
    )
    (table_plan,) = plan_maintenance(world.context(), settings, now=later()).tables
    assert [(group.partition, group.files, group.when) for group in table_plan.groups] == [("", 5, "now")]
    (line,) = table_plan.left
    assert line.startswith("5 files of us stay as they are: the columns of their partition fields day were dropped")


def test_another_region_s_files_are_its_own_and_are_written_where_they_lie(world: World) -> None:
    many(world, "a")
    table = world.writer.load_table(("ns", "a"))
    for number in range(5):
        path = world.folder / "eu" / "lake" / "homes" / "a" / f"id={number}" / "x.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array(range(5), pa.int64())}), path)
        table.add_files([f"file://{path}"])
    world.commit(a=world.writer.load_table(("ns", "a")).metadata_location)
    (table_plan,) = plan_maintenance(world.context(), SETTINGS, now=later()).tables
    by_region = {group.region: group for group in table_plan.groups}
    assert by_region["us"].files == 6
    assert by_region["eu"].into == f"file://{world.folder}/eu/lake/homes/a"
    assert set(by_region["eu"].shipped) == {"us"}


@pytest.mark.parametrize(
    ("folders", "destination"),
    [
        (("near/{uuid}/data", "near/ns.a-0a1b2c3d"), "near/{uuid}/data"),
        (("near/{uuid}/data",) * 2, "near/{uuid}/data"),
        (("a", "b"), "near/{uuid}/data"),
        (("", ""), "near/{uuid}/data"),
        (("homes/a/data", "homes/b/data"), "near/{uuid}/data"),
        (("homes/a/data", "homes/near/{uuid}/data"), "homes/near/{uuid}/data"),
        (("address/near/ns.a-0a1b2c3d", "homes/a/data"), "address/near/{uuid}/data"),
        (("homes/a/data/0110/1001/0101", "homes/a/data/1110/0001/0111"), "homes/a/data"),
        (("homes/a/data/4f2a90b1/id=3", "homes/a/data/00ff12ab/id=4"), "homes/a/data"),
        (("homes/a/data/0110/1001/0101/10100011/id=3", "homes/a/data/0000/1001/0101/id=4"), "homes/a/data"),
        (("20241101/a/data", "20241101/a/data"), "20241101/a/data"),
        (("20241101/a/data", "20241101/near/{uuid}/data"), "20241101/near/{uuid}/data"),
        (("0110/a/data", "1001/a/data"), "near/{uuid}/data"),
    ],
)
def test_files_of_several_folders_become_some_in_the_tables_own(
    world: World, folders: tuple[str, ...], destination: str
) -> None:
    many(world, "a")
    table = world.writer.load_table(("ns", "a"))
    lake, table_uuid = world.folder / "eu" / "lake", table.metadata.table_uuid
    for number, folder in enumerate((*folders, *folders, *folders)):
        path = lake / folder.format(uuid=table_uuid) / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(range(5), pa.int64())}), path)
        table.add_files([f"file://{path}"])
    world.commit(a=world.writer.load_table(("ns", "a")).metadata_location)
    (table_plan,) = plan_maintenance(world.context(), SETTINGS, now=later()).tables
    (into,) = [group.into for group in table_plan.groups if group.region == "eu"]
    assert into == f"file://{lake}/{destination.format(uuid=table_uuid)}"


def test_residency_and_policies_spare_a_region_the_price(world: World) -> None:
    many(world, "a")
    alone = ruled(world, residency=[{"tables": ["ns.a"], "never": ["eu"]}])
    (table_plan,) = plan_maintenance(alone.context("us"), SETTINGS, now=later()).tables
    assert (table_plan.groups[0].shipped, table_plan.groups[0].price) == ({}, 0.0)


def test_a_day_s_price_counts_what_upkeep_has_spent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, "a")
    price = plan_maintenance(world.context(), SETTINGS, now=later()).tables[0].groups[0].price
    settings = Maintenance.model_validate(
        {"tables": [{"match": ["ns.**"], "min_age": "10m", "egress_per_day": price + 0.5}]}
    )
    assert plan_maintenance(world.context(), settings, now=later()).tables[0].groups[0].when == "now"
    spent = spend(world, "0.75")
    plan = plan_maintenance(world.context(), settings, now=later())
    assert plan.money[0].spent == 0.75
    assert plan.tables[0].groups[0].when == "price"
    assert "wait for another day" in plan.tables[0].left[-1]
    assert plan_maintenance(world.context(), settings, now=later(25)).tables[0].groups[0].when == "now"
    # A later version of the table tells, too: a sweep with a short grace may have taken the commit's own away.
    newest = spent.with_name("newest.metadata.json")
    newest.write_text(spent.read_text())
    head = world.catalog.reference("main").hash
    current = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    world.catalog.commit("main", head, [Put(("ns", "a"), content(f"file://{newest}", current.id))], "a writer's", {})
    spent.rename(spent.with_name("gone"))
    assert plan_maintenance(world.context(), settings, now=later()).money[0].spent == 0.75
    # What can't be read any more counts as all that the day may cost.
    world.catalog.commit("main", world.catalog.reference("main").hash, [Delete(("ns", "a"))], "drop", {})
    many(world, "b")
    assert plan_maintenance(world.context(), settings, now=later()).money[0].spent == float("inf")


def spend(world: World, price: str) -> Path:
    """Commit to table a as upkeep does, and say that this cost something; return the metadata.json."""
    head = world.catalog.reference("main").hash
    current = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    path = Path((current.metadata_location or "").removeprefix("file://"))
    document = json.loads(path.read_text())
    document["snapshots"][-1]["summary"][PRICE_PROPERTY] = price
    spent = path.with_name("spent.metadata.json")
    spent.write_text(json.dumps(document))
    payload = {**content(f"file://{spent}").payload, "snapshotId": document["current-snapshot-id"]}
    put = Put(("ns", "a"), Content.of(payload).with_id(current.id))
    world.catalog.commit("main", head, [put], "Iceberg replace", {"app-id": APP_ID})
    return spent


@pytest.mark.parametrize("price", ["nan", "-1000000", "-inf", "much", ""])
def test_a_price_that_is_none_counts_as_all_that_the_day_may_cost(world: World, price: str) -> None:
    many(world, "a")
    settings = Maintenance.model_validate({"tables": [{"match": ["ns.**"], "min_age": "10m", "egress_per_day": 5.0}]})
    spend(world, price)
    assert plan_maintenance(world.context(), settings, now=later()).money[0].spent == float("inf")


def test_what_another_region_spends_meanwhile_is_not_spent_twice(world: World) -> None:
    many(world, "a")
    price = plan_maintenance(world.context(), SETTINGS, now=later()).tables[0].groups[0].price
    settings = Maintenance.model_validate(
        {"tables": [{"match": ["ns.**"], "min_age": "10m", "egress_per_day": price + 0.5}]}
    )
    context = world.context("us")
    run = MaintenanceRun(context, settings, "upkeep-1", None, print, later)  # type: ignore[arg-type]
    table, ruled = run.inspect("ns.a")
    assert table and ruled
    assert run.affordable_groups(ruled, table.due_groups()) == table.due_groups() != ()
    spend(world, "0.75")
    assert run.affordable_groups(ruled, table.due_groups()) == ()


def test_manifests_have_a_price_and_wait_for_another_day_when_that_is_too_much(world: World) -> None:
    many(world, "a", 24)

    def planned(money: float) -> TablePlan:
        rule = {"match": ["ns.**"], "min_age": "10m", "egress_per_day": money}
        plan = plan_maintenance(world.context(), Maintenance.model_validate({"tables": [rule]}), now=later())
        assert ("manifests would be rewritten; price" in plan_text(plan)) == plan.tables[0].merge_manifests
        return plan.tables[0]

    table = planned(1_000.0)
    groups = sum(group.price for group in table.groups)
    assert table.merge_manifests and table.manifests_price > 0
    assert planned(groups + table.manifests_price).merge_manifests
    short = planned(groups + table.manifests_price / 2)
    assert (short.merge_manifests, len(short.due_groups())) == (False, len(table.groups))
    assert short.left[-1].startswith("manifests wait for another day")


@pytest.mark.parametrize(("left", "expected"), [(None, (True, True)), (3.0, (True, True)), (2.0, (True, False))])
def test_files_of_deletes_come_before_manifests(left: float | None, expected: tuple[bool, bool]) -> None:
    both = TablePlan("ns.a", merge_deletes=True, merge_manifests=True, deletes_price=1.5, manifests_price=1.0)
    affordable, rest = fit_merges_in_budget(both, left)
    assert (affordable.merge_deletes, affordable.merge_manifests) == expected
    assert rest == (None if left is None else 0.5)
    none, rest = fit_merges_in_budget(both, 0.0)
    assert (none.merge_deletes, none.merge_manifests, len(none.left), rest) == (False, False, 2, 0.0)


def test_a_table_that_can_t_be_read_is_left_and_the_others_are_planned(world: World) -> None:
    many(world, "a")
    world.commit(b=f"file://{world.folder}/us/lake/b/metadata/gone.metadata.json", c=world.write("c"))
    table_plans = {table.table: table for table in plan_maintenance(world.context(), SETTINGS, now=later()).tables}
    assert table_plans["ns.b"].left[0].startswith("SourceGone: ")
    assert (len(table_plans["ns.a"].groups), table_plans["ns.c"].groups, table_plans["ns.c"].left) == (1, (), ())


def test_a_table_without_a_rule_and_one_that_is_not_there_are_refused(world: World) -> None:
    many(world, "a")
    only = Maintenance.model_validate({"tables": [{"match": ["ns.b"]}]})
    assert plan_maintenance(world.context(), only).tables == ()
    with pytest.raises(UsageError, match="no rule of maintenance"):
        plan_maintenance(world.context(), only, ["ns.a"])
    with pytest.raises(UsageError, match="there is none on main"):
        plan_maintenance(world.context(), SETTINGS, ["ns.x"])
    assert [table.table for table in plan_maintenance(world.context(), SETTINGS, ["ns.a"]).tables] == ["ns.a"]


def test_amounts_are_those_that_the_manifests_say(world: World) -> None:
    location = world.write("a", 1000)
    metadata = read_table_metadata(Path(location.removeprefix("file://")).read_bytes(), location)
    lists = metadata.snapshots[-1].manifest_list or ""
    (manifest,) = read_manifest_list(Path(lists.removeprefix("file://")).read_bytes(), lists)
    (entry,) = read_file_stats(Path(manifest.path.removeprefix("file://")).read_bytes(), manifest.path)
    assert (entry.status, entry.content, entry.record_count, entry.partition) == (1, 0, 1000, "")
    assert entry.size == Path(entry.path.removeprefix("file://")).stat().st_size
    assert 0 < entry.column_bytes < entry.size


def test_what_happened_stands_beside_what_was_planned(world: World) -> None:
    many(world, "a")
    plan = plan_maintenance(world.context(), SETTINGS, now=later())
    table = TableReport("ns.a", 1, 2, Amounts(6, 600), Amounts(1, 500, 0.5), Amounts(1, 525, 0.525), (7, 1), (2, 0))
    done = MaintenanceReport(
        "us", "upkeep-1", False, plan, (table, replace(table, table="ns.b", failed="EngineError: x"))
    )
    text = done_text(done)
    assert "planned 1 files, 500 bytes, price 0.5000; happened 1, 525 (+5.0 %), 0.5250" in text
    assert "manifests: 7 became 1" in text and "failed: EngineError: x" in text and "2 in conflict" in text
    assert done.failed
    assert done_fields(done)["tables"][0]["written"]["bytes"] == 525
    assert done_text(replace(done, dry_run=True)).endswith("nothing was changed: --yes does it")
    assert done_text(replace(done, tables=())) == "us: nothing to rewrite"


@pytest.mark.parametrize("sort", ["", "a, b desc nulls last", "zorder(a, b)", "a.b ASC"])
def test_orders_that_are_taken(sort: str) -> None:
    assert _rule(sort=sort).tables[0].sort == sort


@pytest.mark.parametrize("sort", ["bucket(3, a)", "zorder(a)", "a b", "a,", "zorder(a, b), c"])
def test_orders_that_are_refused(sort: str) -> None:
    with pytest.raises(ServicesError, match="zorder"):
        _rule(sort=sort)


def _rule(**rule: Any) -> Maintenance:
    text = json.dumps({"maintenance": {"tables": [{"match": ["**"], **rule}]}})
    settings = parse_services(text, "services.yaml").maintenance
    assert settings is not None
    return settings
