"""Promotion with tables: they go on from another region's replica when their storage is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.maintenance.gc.model import GcOptions as Cleaning
from sterna.maintenance.gc.run import run_gc
from sterna.replication.failover.tables import MovePlan, apply_moves, plan_moves
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import Depth, verify
from sterna.servers.spark import add_catalog
from sterna.servers.stack import Deployment, deployment
from tests.support.answers import METADATA_TABLES, ask
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.world import merge_on_read

REGIONS = ("us", "eu", "ap")
TABLES = ("moved.v2", "moved.v3")


@dataclass
class FailoverScenario:
    """Three regions, and Spark with catalogs for each.

    `main` and the replica, both read through that region's endpoint alone.
    """

    stage: Deployment
    spark: SparkSession
    catalog: NessieCatalog
    lines: list[str] = field(default_factory=list)
    shown: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = field(default_factory=dict)

    def context(self, region: str) -> RegionContext:
        return open_region(self.stage.registry, region, environment_secrets())

    def sync(self, region: str) -> Report:
        with self.context(region) as context:
            report = sync(context, SyncOptions(), self.lines.append)
        assert report.held == ()
        return report

    def plan(self, region: str, lost: str) -> MovePlan:
        with self.context(region) as context:
            return plan_moves(context, [lost])

    def move(self, region: str, agreed: MovePlan) -> MovePlan:
        with self.context(region) as context:
            return apply_moves(context, agreed, self.lines.append)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def moved_table(self, namespace: str) -> None:
        """Make the table `t` of one file in us, and let it, and no other, go on from eu's replica."""
        self.sql(f"CREATE NAMESPACE story_main_us.{namespace}")
        self.sql(f"CREATE TABLE story_main_us.{namespace}.t (id BIGINT) USING iceberg")
        self.sql(f"INSERT INTO story_main_us.{namespace}.t VALUES (1)")
        self.sync("eu")
        agreed = tuple(table_move for table_move in self.plan("eu", "us").moves if table_move.key == f"{namespace}.t")
        assert agreed
        assert self.move("eu", MovePlan("eu", ("us",), agreed)).moves == agreed

    def write(self, region: str, table: str, first: int) -> None:
        """Add rows and delete some of those before, as a writer does who has that region's store alone."""
        self.sql(
            f"INSERT INTO story_main_{region}.{table} SELECT id, concat('row ', id), id % 3 FROM range({first}, "
            f"{first + 60})"
        )
        self.sql(f"DELETE FROM story_main_{region}.{table} WHERE id % 7 = {first % 7} AND part = 1")

    def rows(self, region: str, branch: str, table: str) -> dict[str, list[str]]:
        return ask(self.spark, f"story_{branch}_{region}.{table}", METADATA_TABLES).rows

    def wanted(self, region: str) -> dict[str, dict[str, list[str]]]:
        """What `main` shows in a region, asked once a commit: that takes ten times as long as the commit."""
        at = region, self.catalog.reference("main").hash
        if at not in self.shown:
            self.shown[at] = {table: self.rows(region, "main", table) for table in TABLES}
        return self.shown[at]

    def objects(self, region: str) -> set[str]:
        folder = self.stage.endpoints[region].folder
        assert folder is not None
        return {
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file() and "_sterna" not in path.parts
        }

    def data(self, region: str) -> set[str]:
        """The names of the data files that are in a region's store."""
        return {
            key
            for key in self.objects(region)
            if key.endswith(".parquet") and "-deletes" not in key and LOCALIZED_FOLDER not in key
        }

    def assert_equals_main(self, region: str, main: str, *dark: str) -> None:
        """A region's replica shows what `main` shows in another region, and stands what `verify` asks, by itself
        while others are dark.
        """
        wanted = self.wanted(main)
        with self.context(region) as context:
            assert verify(context, Depth(deep=True)).findings == ()
        for dark_region in dark:
            self.stage.endpoints[dark_region].suspend()
        assert {table: self.rows(region, "replica", table) for table in TABLES} == wanted
        for dark_region in dark:
            self.stage.endpoints[dark_region].start()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[FailoverScenario]:
    with (
        deployment(tmp_path_factory.mktemp("story"), REGIONS, postgres=False) as stage,
        temporary_environment(stage.environment),
    ):
        for region in REGIONS:
            for name, ref in (("main", "main"), ("replica", f"main_replica_{region}")):
                endpoint = stage.endpoints[region]
                add_catalog(spark, f"story_{name}_{region}", stage.nessie.uri, ref, stage.warehouse(region), endpoint)
        with NessieCatalog(stage.nessie.uri) as catalog:
            yield FailoverScenario(stage, spark, catalog)


@pytest.mark.parametrize("losses", [1, pytest.param(2, marks=pytest.mark.rare)])
def test_tables_go_on_from_a_replica(story: FailoverScenario, losses: int) -> None:
    """One story, for each step stands on the one before."""
    story.sql("CREATE NAMESPACE story_main_us.moved")
    for version, table in zip((2, 3), TABLES, strict=True):
        columns = "(id BIGINT, name STRING, part BIGINT)"
        story.sql(
            f"CREATE TABLE story_main_us.{table} {columns} USING iceberg PARTITIONED BY (part) {merge_on_read(version)}"
        )
        story.write("us", table, 0)
    for region in REGIONS:
        story.sync(region)
    kept = {table: story.rows("us", "main", table) for table in TABLES}
    story.write("us", TABLES[0], 100)
    story.stage.combined_endpoint.suspend()
    story.stage.endpoints["us"].suspend()

    # us is gone for good.
    plan = story.plan("eu", "us")
    assert [table_move.key for table_move in plan.moves] == list(TABLES)
    assert [len(table_move.lost) for table_move in plan.moves] == [2, 0]
    assert not plan.left
    before = story.catalog.reference("main").hash
    assert story.move("eu", MovePlan("eu", ("us",))).left.keys() == set(TABLES), "what nobody agreed to is not done"
    assert story.catalog.reference("main").hash == before
    assert story.move("eu", plan).moves == plan.moves
    assert story.move("eu", plan) == MovePlan("eu", ("us",)), "it is done already"
    assert {table: story.rows("eu", "main", table) for table in TABLES} == kept

    # Writers go on in eu, and each region follows.
    eu_before, ap_before = story.data("eu"), story.data("ap")
    for table in TABLES:
        story.write("eu", table, 200)
    written = story.data("eu") - eu_before
    assert story.sync("eu").copied.files == 0, "what writers put below the replica root is here"
    assert story.data("eu") - eu_before == written
    story.assert_equals_main("eu", "eu")
    assert story.sync("ap").copied.files == len(written), "only what is new is copied"
    assert names(story.data("ap") - ap_before) == names(written)
    story.assert_equals_main("ap", "eu")
    assert cleaned_up(story, "eu") > 0, "the older versions' metadata.json at least"

    # us is back, with its old files.
    story.stage.endpoints["us"].start()
    story.stage.combined_endpoint.start()
    us_before = story.data("us")
    assert story.sync("us").copied.files == len(written), "the originals are taken"
    assert names(story.data("us") - us_before) == names(written)
    story.assert_equals_main("us", "eu", "eu", "ap")
    assert story.sync("us").outcome == "idle"

    # Now eu is lost, and with `--long` us again: deletes hit what was written here and there in between.
    for first, (lost, region) in ((300, ("eu", "us")), (400, ("us", "eu")))[:losses]:
        story.stage.endpoints[lost].suspend()
        plan = story.plan(region, lost)
        assert [table_move.key for table_move in plan.moves] == list(TABLES)
        assert story.move(region, plan).moves == plan.moves
        for table in TABLES:
            story.write(region, table, first)
        story.sync(region)
        story.stage.endpoints[lost].start()
        for other in REGIONS:
            story.sync(other)
            story.assert_equals_main(other, region)
    cleaned_up(story, region)
    story.assert_equals_main(lost, region, region, "ap")


def test_metadata_that_left_the_replica_root_without_its_files_is_held(story: FailoverScenario) -> None:
    """Else nobody could tell that main needs what lies below the root, and the clean-up would delete it."""
    story.moved_table("left")
    story.sync("eu")
    story.sql(f"ALTER TABLE story_main_eu.left.t SET LOCATION '{story.stage.warehouse('eu')}/left/t'")
    with story.context("eu") as context:
        held = sync(context, SyncOptions(), story.lines.append).held
    assert [(item.key, item.kind) for item in held] == [("left.t", "Unsupported")]
    story.sql("DROP TABLE story_main_eu.left.t")
    story.sync("eu")


@pytest.mark.parametrize("part", ["data files", "metadata.json elsewhere"])
def test_a_table_goes_on_elsewhere_if_anything_of_it_is_lost(story: FailoverScenario, part: str) -> None:
    """Where its metadata.json lies decides nothing: not for a table of eu with rows that were written in us, nor for
    one of us whose last commit was made in eu.

    Also of this kind: the lost region's rows came before eu's own, and a table of eu alone stays.
    """
    stage, home = story.stage, "eu" if part == "data files" else "us"
    name = f"mixed_{home}"
    add_catalog(story.spark, f"story_{name}", stage.nessie.uri, "main", stage.warehouse(home), stage.combined_endpoint)
    table = f"story_{name}.{name}.t"
    story.sql(f"CREATE NAMESPACE story_{name}.{name}")
    story.sql(
        f"CREATE TABLE story_{name}.{name}.own (id BIGINT) USING iceberg LOCATION '{stage.warehouse('eu')}/{name}'"
    )
    story.sql(f"INSERT INTO story_{name}.{name}.own VALUES (1)")
    story.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    places = (
        {"write.data.path": f"{stage.warehouse('us')}/elsewhere/{name}"}
        if home == "eu"
        else {"write.metadata.path": f"{stage.warehouse('eu')}/elsewhere/{name}"}
    )
    story.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ({', '.join(f'{key!r} = {uri!r}' for key, uri in places.items())})"
    )
    story.sql(f"INSERT INTO {table} VALUES (1), (2)")
    if home == "eu":
        story.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('write.data.path')")
        story.sql(f"INSERT INTO {table} VALUES (3)")
    wanted = sorted(story.sql(f"SELECT id FROM {table}"))
    story.sync("eu")
    story.sql(f"INSERT INTO story_{name}.{name}.own VALUES (2)")  # which eu's replica doesn't have
    stage.endpoints["us"].suspend()
    stage.combined_endpoint.suspend()
    try:
        plan = story.plan("eu", "us")
        moves = tuple(table_move for table_move in plan.moves if table_move.key.startswith(f"{name}."))
        assert [table_move.key for table_move in moves] == [f"{name}.t"]
        assert story.move("eu", MovePlan("eu", ("us",), moves)).moves == moves
        assert sorted(story.sql(f"SELECT id FROM story_main_eu.{name}.t")) == wanted
        assert name not in {key.partition(".")[0] for key in story.plan("eu", "us").left}
    finally:
        stage.endpoints["us"].start()
        stage.combined_endpoint.start()


def names(keys: set[str]) -> set[str]:
    return {key.rpartition("/")[2] for key in keys}


def cleaned_up(story: FailoverScenario, region: str) -> int:
    """Clean a region up as hard as it can be, and see that `main` and the replica show what `main` did before.

    The replica was equal to `main` there. Return how many files went.
    """
    wanted = story.wanted(region)
    endpoint, ago = story.stage.endpoints[region], time.time() - 30 * 86400
    with story.context(region) as context:
        cleaning = Cleaning(keep=timedelta(0), grace=timedelta(hours=1), delete=True, max_wait_seconds=0.0)
        assert run_gc(context, cleaning).failed == 0
        folder = endpoint.folder
        assert folder is not None
        for path in (path for path in folder.rglob("*") if path.is_file()):
            os.utime(path, (ago, ago))
        endpoint.start()
        done = run_gc(context, cleaning, now=datetime.now(UTC) + timedelta(days=1))
    for branch in ("main", "replica"):
        assert {table: story.rows(region, branch, table) for table in TABLES} == wanted, branch
    return done.deleted.files


def test_an_original_of_another_size_is_never_written_over(story: FailoverScenario) -> None:
    before = story.data("us")
    story.moved_table("odd")
    (key,) = story.data("us") - before
    folder = story.stage.endpoints["us"].folder
    assert folder is not None
    (folder / key).write_bytes(b"something else")
    story.stage.endpoints["us"].start()
    with story.context("us") as context:
        held = sync(context, SyncOptions(), story.lines.append).held
    assert [(item.key, item.kind) for item in held] == [("odd.t", "SizeDiffers")]
    assert (folder / key).read_bytes() == b"something else"
