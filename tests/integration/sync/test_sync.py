"""The whole sync over real servers.

What happens on main happens on the replica, at every snapshot, with the other region dark.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from sterna.catalog.model import Put
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from tests.support.command import STERNA
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    """The tables here are small: Spark localizes them because it has to, as it would large ones."""
    with world.namespace("s") as name, world.localizing("spark"):
        yield name


def make(
    world: World,
    name: str,
    *,
    catalog: str = "main_us",
    rows: int = 100,
    extra: str = MERGE_ON_READ,
    partition: str = "",
) -> str:
    world.sql(f"CREATE TABLE {catalog}.s.{name} (id BIGINT, name STRING, part INT) USING iceberg {partition} {extra}")
    world.sql(f"INSERT INTO {catalog}.s.{name} SELECT id, concat('n', id), cast(id % 3 AS INT) FROM range({rows})")
    return f"s.{name}"


def test_an_appended_table_arrives_with_its_history(world: World, ns: str):
    table = make(world, "append", partition="PARTITIONED BY (part)")
    world.sql(f"INSERT INTO main_us.{table} VALUES (1000, 'x', 7)")
    report = world.sync()
    assert report.outcome == "published"
    assert table in report.published
    assert report.held == ()
    world.assert_equal(table)


def test_small_changes_are_localized_without_spark(world: World, ns: str):
    table = make(world, "small")
    world.sync()
    assert any("on Spark" in line for line in world.lines)
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 5")
    with world.localizing("auto"):
        world.sync()
    assert not any("Spark:" in line for line in world.lines), "a session was opened"
    passes = [line.split() for line in world.lines if line.startswith("localizing") and "here: up to 64 files" in line]
    assert [words[2] for words in passes] == ["position-delete", "delete-manifest", "manifest-list", "metadata"]
    world.assert_equal(table)


def test_a_sync_with_nothing_to_do_commits_nothing(world: World, ns: str):
    world.sync()
    head = world.catalog.reference("main_replica_eu").hash
    assert world.sync().outcome == "idle"
    assert world.catalog.reference("main_replica_eu").hash == head


@pytest.mark.rare
def test_row_level_deletes_updates_and_merges(world: World, ns: str):
    table = make(world, "mor", partition="PARTITIONED BY (part)")
    world.sync()
    world.sql(f"DELETE FROM main_us.{table} WHERE id % 10 = 0")
    world.sql(f"UPDATE main_us.{table} SET name = 'changed' WHERE id % 7 = 1")
    assert world.sql(f"SELECT count(*) FROM main_us.{table}.delete_files")[0][0] > 0, "the test needs position deletes"
    world.sync()
    world.assert_equal(table)
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 5")
    world.sync()
    world.assert_equal(table)


@pytest.mark.rare
def test_copy_on_write_and_overwrite(world: World, ns: str):
    table = make(world, "cow", extra="TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='copy-on-write')")
    world.sql(f"DELETE FROM main_us.{table} WHERE id < 10")
    world.sync()
    world.sql(f"INSERT OVERWRITE main_us.{table} SELECT id, 'o', 1 FROM range(5)")
    world.sync()
    world.assert_equal(table)


@pytest.mark.rare
def test_format_version_1(world: World, ns: str):
    table = make(world, "v1", extra="TBLPROPERTIES ('format-version'='1')", partition="PARTITIONED BY (bucket(4, id))")
    world.sync()
    world.assert_equal(table)
    world.sql(f"INSERT INTO main_us.{table} VALUES (1, 'again', 2)")
    world.sync()
    world.assert_equal(table)


def test_compaction_and_manifest_rewriting_between_syncs(world: World, ns: str):
    table = make(world, "compact")
    for _ in range(3):
        world.sql(f"INSERT INTO main_us.{table} SELECT id, 'more', 1 FROM range(10)")
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 3")
    world.sync()
    world.sql(f"CALL main_us.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    world.sql(f"CALL main_us.system.rewrite_manifests('{table}')")
    world.sync()
    world.assert_equal(table)


def test_manifest_rewriting_followed_by_expiry_loses_no_file(world: World, ns: str):
    table = make(world, "expired")
    world.sync()
    world.sql(f"INSERT INTO main_us.{table} SELECT id, 'later', 1 FROM range(10)")
    world.sql(f"CALL main_us.system.rewrite_manifests('{table}')")
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('gc.enabled'='true')")
    world.sql(f"CALL main_us.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)")
    world.sync()
    world.assert_equal(table)


@pytest.mark.rare
def test_schema_and_partition_changes(world: World, ns: str):
    table = make(world, "schema")
    world.sync()
    world.sql(f"ALTER TABLE main_us.{table} ADD COLUMN extra DOUBLE")
    world.sql(f"ALTER TABLE main_us.{table} RENAME COLUMN name TO title")
    world.sql(f"ALTER TABLE main_us.{table} ADD PARTITION FIELD part")
    world.sql(f"INSERT INTO main_us.{table} VALUES (1, 't', 2, 0.5)")
    world.sql(f"ALTER TABLE main_us.{table} DROP COLUMN extra")
    world.sync()
    world.assert_equal(table)


def test_drop_rename_and_recreate(world: World, ns: str):
    make(world, "old")
    make(world, "gone")
    make(world, "twice", rows=3)
    world.sync()
    before = world.replica()
    world.sql("ALTER TABLE main_us.s.old RENAME TO main_us.s.new")
    world.sql("DROP TABLE main_us.s.gone")
    world.sql("DROP TABLE main_us.s.twice")
    make(world, "twice", rows=7)
    world.sync()
    after = world.replica()
    assert "s.gone" not in after
    assert "s.old" not in after
    assert after["s.new"].id == before["s.old"].id
    assert after["s.twice"].id != before["s.twice"].id
    world.assert_equal("s.new", "s.twice")


def test_both_directions_at_once_and_files_of_two_regions_in_one_table(world: World, ns: str):
    table = make(world, "shared")
    born_in_eu = make(world, "eu_born", catalog="main_eu")
    # A file of eu's in a table of us's: what a writer at home there registers.
    world.sql(
        f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('write.data.path'='{world.stage.warehouse('eu')}/shared-data')"
    )
    world.sql(f"INSERT INTO main_us.{table} SELECT id, 'from eu', 1 FROM range(500, 600)")
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (1, 501)")
    for region in ("eu", "us"):
        report = world.sync(region)
        assert report.held == ()
        world.assert_equal(table, born_in_eu, region=region)
    paths = {row[0] for row in world.sql(f"SELECT file_path FROM replica_eu.{table}.all_data_files")}
    assert {path.split("/")[3] for path in paths} == {"warehouse", "replica"}, (
        "local data stays in place, foreign data is copied"
    )


def test_both_regions_may_sync_at_the_same_moment(world: World, ns: str):
    from_us, from_eu = make(world, "concurrent_us"), make(world, "concurrent_eu", catalog="main_eu")
    command = [
        *STERNA,
        "sync",
        "--region",
        "us",
        "--registry",
        str(world.stage.registry),
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
        report = world.sync("eu")
        stdout, _ = other.communicate(timeout=300)
    assert json.loads(stdout.splitlines()[-1])["held"] == []
    assert report.held == ()
    world.assert_equal(from_us, from_eu, region="eu")
    world.assert_equal(from_us, from_eu, region="us")


def test_a_replica_table_can_not_clean_up_mains_files(world: World, ns: str):
    table = make(world, "safe")
    world.sync()
    (location,) = {row[1] for row in world.sql(f"DESCRIBE EXTENDED replica_eu.{table}") if row[0] == "Location"}
    assert location.startswith(world.context().region.replica_root + "/")
    properties = dict(row[:2] for row in world.sql(f"SHOW TBLPROPERTIES replica_eu.{table}"))
    assert properties["gc.enabled"] == "false"


def test_a_second_sync_reads_only_what_is_new(world: World, ns: str):
    table = make(world, "incremental")
    for number in range(5):
        world.sql(f"INSERT INTO main_us.{table} VALUES ({number}, 'i', 1)")
    world.sync()
    world.sql(f"INSERT INTO main_us.{table} VALUES (77, 'one more', 1)")
    us = world.stage.endpoints["us"]
    mark = len(us.requests())
    report = world.sync()
    read = [request.key for request in us.requests(mark) if request.method == "GET"]
    data = {key for key in read if key.endswith(".parquet")}
    lists = {key for key in read if "/snap-" in key}
    manifests = {key for key in read if key.endswith(".avro") and "/snap-" not in key}
    assert report.copied.files == 1
    assert (len(data), len(lists), len(manifests)) == (1, 1, 1), read
    assert len(read) == len(set(read)), "each file crosses the wide network once"
    assert not [request for request in us.requests(mark) if request.method in ("PUT", "DELETE", "COPY")], (
        "the source is read-only"
    )
    world.assert_equal(table)


def test_two_tables_of_one_commit_become_visible_in_one(world: World, ns: str):
    one, two = make(world, "pair_one"), make(world, "pair_two")
    world.sync()
    # What two writers did on a branch of theirs goes to main in one commit.
    base = world.catalog.reference("main").hash
    puts = []
    world.catalog.create_branch("work", base)
    work = "main_us.s.`{}@work`"
    for name in ("pair_one", "pair_two"):
        world.sql(f"INSERT INTO {work.format(name)} VALUES (500, 'both', 1)")
    head = world.catalog.reference("work").hash
    for name in ("pair_one", "pair_two"):
        puts.append(Put(("s", name), world.catalog.contents("work", head, [("s", name)])[("s", name)]))
    world.catalog.commit("main", base, puts, "both at once")
    with world.context() as context:
        plan, _ = make_plan(context, SyncOptions())
    assert (one, two) in plan.atomic_groups
    world.sync()
    world.assert_equal(one, two)
    newest = next(iter(world.catalog.history("main_replica_eu", operations=True)))
    assert {operation.key for operation in newest.operations or ()} == {("s", "pair_one"), ("s", "pair_two")}


def test_a_view_over_replicated_tables_answers_on_the_replica(world: World, ns: str):
    table = make(world, "viewed")
    world.sql("USE main_us.s")
    try:
        world.sql("CREATE VIEW v AS SELECT count(*) AS n FROM viewed")
        world.sql("CREATE OR REPLACE VIEW v AS SELECT count(*) AS n, max(id) AS last FROM viewed")
    finally:
        world.sql("USE spark_catalog.default")
    report = world.sync()
    assert {"s.v", table} <= set(report.published)
    with world.dark("us"):
        assert world.sql("SELECT n, last FROM replica_eu.s.v") == [(100, 99)]
    world.sql("DROP VIEW main_us.s.v")
