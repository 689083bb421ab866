"""History: refs, rollbacks and expiry arrive as they are; policies keep less of it.

What is staged on main is not published early.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.errors.exceptions.captured import IllegalArgumentException

from sterna.catalog.model import Content, Key, Put
from tests.support.own_region import OwnRegion, own_region, read_metadata
from tests.support.world import MERGE_ON_READ, World, pyiceberg_properties

# All of metadata.json that localizing changes, whatever the policy.
CHANGED = {"location", "properties", "metadata-log", "statistics", "partition-statistics"}


@pytest.fixture
def ns(world: World) -> Iterator[str]:
    with world.namespace("hist") as name:
        yield name


def make(world: World, name: str, commits: int = 1) -> str:
    """Make a table with that many snapshots of one row each: 0, 1, …"""
    world.sql(f"CREATE TABLE main_us.hist.{name} (id BIGINT) USING iceberg {MERGE_ON_READ}")
    for number in range(commits):
        insert(world, f"hist.{name}", number)
    return f"hist.{name}"


def insert(world: World, table: str, *ids: int) -> None:
    world.sql(f"INSERT INTO main_us.{table} VALUES {', '.join(f'({id})' for id in ids)}")


def call(world: World, procedure: str) -> None:
    world.sql(f"CALL main_us.system.{procedure}")


def ids(world: World, relation: str) -> list[int]:
    return [row[0] for row in world.sql(f"SELECT id FROM {relation} ORDER BY id")]


def assert_same_history(world: World, table: str) -> None:
    """metadata.json says the same of every snapshot and ref: ids, parents, sequence numbers, times, summaries, logs."""
    namespace, name = table.split(".")
    main, replica = read_metadata(world, world.content((namespace, name))), read_metadata(world, world.replica()[table])
    assert list(replica) == list(main)
    for key in main.keys() - CHANGED - {"snapshots"}:
        assert replica[key] == main[key], key
    wanted, copied = ([item | {"manifest-list": ""} for item in one["snapshots"]] for one in (main, replica))
    assert copied == wanted
    assert replica["metadata-log"] == []


def test_branches_tags_and_writes_to_a_branch(world: World, ns: str):
    table = make(world, "refs", commits=2)
    first, _ = world.snapshots(f"main_us.{table}")
    world.sql(f"ALTER TABLE main_us.{table} CREATE TAG early AS OF VERSION {first} RETAIN 365 DAYS")
    world.sql(
        f"ALTER TABLE main_us.{table} CREATE BRANCH work RETAIN 30 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS 2 DAYS"
    )
    world.sql(f"INSERT INTO main_us.{table}.branch_work VALUES (70), (71)")
    world.sql(f"DELETE FROM main_us.{table}.branch_work WHERE id = 0")
    world.sync()
    world.assert_equal(table)
    assert_same_history(world, table)
    with world.dark("us"):
        assert ids(world, f"replica_eu.{table} VERSION AS OF 'early'") == [0]
        assert ids(world, f"replica_eu.{table} VERSION AS OF 'work'") == [1, 70, 71]
        assert ids(world, f"replica_eu.{table}") == [0, 1]
    call(world, f"fast_forward('{table}', 'main', 'work')")
    world.sql(f"ALTER TABLE main_us.{table} DROP TAG early")
    world.sql(f"ALTER TABLE main_us.{table} REPLACE BRANCH work AS OF VERSION {first} RETAIN 10 DAYS")
    report = world.sync()
    assert report.copied.files == 0
    world.assert_equal(table)
    assert_same_history(world, table)


def test_rollback_cherry_pick_and_expiry(world: World, ns: str):
    table = make(world, "back", commits=3)
    one, two, three = world.snapshots(f"main_us.{table}")
    world.sync()
    call(world, f"rollback_to_snapshot('{table}', {one})")
    assert world.sync().copied.files == 0
    world.assert_equal(table)
    assert_same_history(world, table)
    with world.dark("us"):
        assert ids(world, f"replica_eu.{table}") == [0]
        assert ids(world, f"replica_eu.{table} VERSION AS OF {three}") == [0, 1, 2]
    insert(world, table, 50)
    call(world, f"cherrypick_snapshot('{table}', {three})")
    assert ids(world, f"main_us.{table}") == [0, 2, 50]
    call(world, f"set_current_snapshot('{table}', {two})")
    world.sync()
    world.assert_equal(table)
    assert_same_history(world, table)
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('gc.enabled'='true')")
    call(world, f"expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)")
    assert world.snapshots(f"main_us.{table}") == [two]
    world.sync()
    world.assert_equal(table)
    with world.dark("us"):
        assert_unknown(world, f"replica_eu.{table}", three)


def test_latest_keeps_the_newest_and_what_refs_name(world: World, ns: str, tmp_path: Path):
    region = with_history(world, tmp_path, "keepslatest", {"latest": 2})
    table = make(world, "pruned")
    stats(world, table)
    for number in (1, 2, 3):
        insert(world, table, number)
    world.sql(f"INSERT OVERWRITE main_us.{table} VALUES (4)")
    stats(world, table)
    one, two, three, four, five = world.snapshots(f"main_us.{table}")
    world.sql(f"ALTER TABLE main_us.{table} CREATE TAG second AS OF VERSION {two}")
    report = region.sync()
    assert report.copied.files == 5 + 1, "five data files of the kept snapshots, and the newest snapshot's statistics"
    assert_keeps(region, table, [two, four, five], gone=[one, three])
    assert statistics_of(region, table) == {five}
    assert region.rows(f"SELECT id FROM {{}}.{table} VERSION AS OF 'second' ORDER BY id") == [(0,), (1,)]
    assert region.sync().outcome == "idle"


@pytest.mark.rare
def test_latest_brings_no_file_of_a_dropped_snapshot(world: World, ns: str, tmp_path: Path):
    region = with_history(world, tmp_path, "bringsnone", {"latest": 1})
    table = make(world, "pruned", commits=3)
    world.sql(f"INSERT OVERWRITE main_us.{table} VALUES (10), (11)")
    *old, new = world.snapshots(f"main_us.{table}")
    us = world.stage.endpoints["us"]
    mark = len(us.requests())
    live = len(world.sql(f"SELECT file_path FROM main_us.{table}.files"))
    assert region.sync().copied.files == live
    read = {request.key for request in us.requests(mark) if request.method == "GET"}
    assert len([key for key in read if "/snap-" in key]) == 1, "the lists of dropped snapshots are not even read"
    assert_keeps(region, table, [new], gone=old)
    insert(world, table, 12)
    assert region.sync().copied.files == 1
    (newest,) = set(world.snapshots(f"main_us.{table}")) - {*old, new}
    assert_keeps(region, table, [newest], gone=[*old, new])


def test_since_counts_back_from_the_current_snapshot(world: World, ns: str, tmp_path: Path):
    region = with_history(world, tmp_path, "keepssince", {"since": "2s"})
    table = make(world, "pruned", commits=2)
    time.sleep(2.5)
    insert(world, table, 2)
    insert(world, table, 3)
    times = dict(world.sql(f"SELECT snapshot_id, unix_millis(committed_at) FROM main_us.{table}.snapshots"))
    newest = max(times.values())
    kept = [snapshot for snapshot in world.snapshots(f"main_us.{table}") if times[snapshot] >= newest - 2000]
    gone = [snapshot for snapshot in times if snapshot not in kept]
    assert kept
    assert gone
    region.sync()
    assert_keeps(region, table, kept, gone=gone)
    time.sleep(2.5)
    assert region.sync(full=True).outcome == "idle", "a table that nobody writes keeps what it has"


def test_a_changed_policy_takes_effect_without_a_commit_on_main(world: World, ns: str, tmp_path: Path):
    region = with_history(world, tmp_path, "changes", {"latest": 2})
    table, other = make(world, "pruned", commits=4), make(world, "other", commits=2)
    one, two, three, four = world.snapshots(f"main_us.{table}")
    region.sync()
    assert_keeps(region, table, [three, four], gone=[one, two])
    region.assert_equal(other)
    head = world.catalog.reference("main").hash
    for history, kept in (
        ({"latest": 1}, [four]),
        ({"latest": 3}, [two, three, four]),
        ("full", [one, two, three, four]),
    ):
        region.registry["policies"][0]["history"] = history
        report = region.sync()
        assert report.published == (table,)
        assert report.watermark == head
        assert report.copied.files == 0, "every file lives in the newest snapshot"
        assert_keeps(region, table, kept, gone=[snapshot for snapshot in (one, two, three) if snapshot not in kept])
        assert region.sync().outcome == "idle"
    region.assert_equal(table, other)


@pytest.mark.rare
def test_a_wider_policy_brings_the_files_that_a_narrow_one_left(world: World, ns: str, tmp_path: Path):
    region = with_history(world, tmp_path, "wider", {"latest": 1})
    table, moved = make(world, "pruned", commits=2), make(world, "prunable", commits=2)
    for name in (table, moved):
        world.sql(f"INSERT OVERWRITE main_us.{name} VALUES (10)")
    assert region.sync().copied.files == 1 + 1
    world.sql(f"ALTER TABLE main_us.{moved} RENAME TO main_us.hist.whole")
    assert region.sync().copied.files == 2, "another policy decides for the new name"
    region.assert_equal("hist.whole")
    region.registry["policies"] = []
    assert region.sync().copied.files == 2
    region.assert_equal(table, "hist.whole")


def test_a_staged_snapshot_is_not_on_the_replica_before_it_is_published(world: World, ns: str):
    for name, before, overtaken in (("forwarded", [0], []), ("picked", [0], [7]), ("first", [], [])):
        table = make(world, name, commits=len(before))
        world.sync()
        world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('write.wap.enabled'='true')")
        mark = len(world.stage.endpoints["eu"].requests())
        with setting(world, "spark.wap.id", "audit"):
            insert(world, table, 100, 101)
        (staged,) = world.sql(f"SELECT snapshot_id FROM main_us.{table}.snapshots WHERE summary['wap.id'] = 'audit'")[0]
        if overtaken:
            insert(world, table, *overtaken)
        world.sync()
        world.assert_equal(table)
        with world.dark("us"):
            assert ids(world, f"replica_eu.{table}") == [*before, *overtaken]
            assert_unknown(world, f"replica_eu.{table}", staged)
        call(world, f"publish_changes('{table}', 'audit')")
        world.sync()
        world.assert_equal(table)
        with world.dark("us"):
            assert ids(world, f"replica_eu.{table}") == [*before, *overtaken, 100, 101]
        sent = copied_since(world, mark, table)
        assert len(sent) == len(set(sent)) == len(world.sql(f"SELECT * FROM main_us.{table}.files")) - len(before)


@pytest.mark.parametrize("commits", [pytest.param(1, marks=pytest.mark.rare), 0])
def test_a_wap_branch_does_not_show_before_it_is_fast_forwarded(world: World, ns: str, commits: int):
    table = make(world, f"audited{commits}", commits)
    world.sync()
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    mark = len(world.stage.endpoints["eu"].requests())
    with setting(world, "spark.wap.branch", "audit"):
        insert(world, table, 100)
        insert(world, table, 101)
    world.sync()
    world.assert_equal(table)
    assert_same_history(world, table)
    before = list(range(commits))
    with world.dark("us"):
        assert ids(world, f"replica_eu.{table}") == before
    call(world, f"fast_forward('{table}', 'main', 'audit')")
    report = world.sync()
    assert report.copied.files == 0
    world.assert_equal(table)
    with world.dark("us"):
        assert ids(world, f"replica_eu.{table}") == [*before, 100, 101]
    sent = copied_since(world, mark, table)
    assert len(sent) == len(set(sent)) == 2


def test_the_snapshot_of_the_catalogs_entry_is_read_where_a_policy_keeps_the_current_one_alone(
    world: World, ns: str, tmp_path: Path
):
    region = with_history(world, tmp_path, "keepsshown", {"latest": 1})
    table = make(world, "pruned_entry", commits=3)
    one, two, three = world.snapshots(f"main_us.{table}")
    for shown, rows in ((three, [0, 1, 2]), (one, [0]), (two, [0, 1]), (three, [0, 1, 2])):
        show(world, ("hist", "pruned_entry"), shown)
        assert ids(world, f"main_us.{table}") == rows, "Nessie's catalog opens what its entry names"
        report = region.sync()
        assert (report.outcome, report.held) == ("published", ())
        assert region.rows(f"SELECT id FROM {{}}.{table} ORDER BY id") == [(number,) for number in rows]
        location = region.replica()[table].metadata_location or ""
        with world.dark("us"):
            static = StaticTable.from_metadata(location, pyiceberg_properties(world.stage.endpoints["eu"]))
            assert sorted(static.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
            assert sorted(static.scan(snapshot_id=shown).to_arrow()["id"].to_pylist()) == rows
        assert {snapshot.snapshot_id for snapshot in static.metadata.snapshots} == {shown, three}
        region.assert_closed(table)


def show(world: World, key: Key, snapshot: int) -> None:
    """Let the catalog's entry of a table name a snapshot, with the metadata.json that it has."""
    entry, head = world.content(key), world.catalog.reference("main").hash
    payload = {**entry.payload, "snapshotId": snapshot}
    if payload != entry.payload:
        world.catalog.commit("main", head, [Put(key, Content.of(payload))], "show")


def with_history(world: World, folder: Path, name: str, history: dict[str, Any]) -> OwnRegion:
    region = own_region(world, folder, name)
    region.registry["policies"] = [{"tables": ["hist.prun*"], "history": history}]
    return region


def assert_keeps(region: OwnRegion, table: str, kept: list[int], *, gone: list[int]) -> None:
    """The replica answers as main does at the kept snapshots, through Spark and PyIceberg, and knows no other."""
    world = region.world
    region.assert_equal(table, pruned=True)
    location = region.replica()[table].metadata_location or ""
    with world.dark("us"):
        assert world.snapshots(f"{region.spark_catalog}.{table}") == kept
        for snapshot in gone:
            assert_unknown(world, f"{region.spark_catalog}.{table}", snapshot)
        static = StaticTable.from_metadata(location, pyiceberg_properties(world.stage.endpoints["eu"]))
        ids_by_snapshot = {
            snapshot: sorted(static.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist()) for snapshot in kept
        }
    assert ids_by_snapshot == {snapshot: ids(world, f"main_us.{table} VERSION AS OF {snapshot}") for snapshot in kept}
    assert {entry.snapshot_id for entry in static.metadata.snapshot_log} <= set(kept)
    for item in (*static.metadata.statistics, *static.metadata.partition_statistics):
        assert item.snapshot_id in kept


def statistics_of(region: OwnRegion, table: str) -> set[int]:
    """The snapshots that the replica's metadata has statistics of."""
    metadata = read_metadata(region.world, region.replica()[table])
    return {item["snapshot-id"] for item in metadata["statistics"]}


def stats(world: World, table: str) -> None:
    call(world, f"compute_table_stats('{table}')")


def assert_unknown(world: World, table: str, snapshot: int) -> None:
    with pytest.raises(IllegalArgumentException, match=f"Cannot find snapshot with ID {snapshot}"):
        world.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}")


def copied_since(world: World, mark: int, table: str) -> list[str]:
    """The data files of a table that arrived at eu, each as often as it did."""
    folder = f"/{table.replace('.', '/')}_"
    requests = world.stage.endpoints["eu"].requests(mark)
    return [
        item.key
        for item in requests
        if item.method in ("PUT", "COMPLETE") and item.key.endswith(".parquet") and folder in item.key
    ]


@contextmanager
def setting(world: World, name: str, value: str) -> Iterator[None]:
    world.spark.conf.set(name, value)
    try:
        yield
    finally:
        world.spark.conf.unset(name)
