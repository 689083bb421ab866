"""What was dropped with PURGE comes back from copies, as it was: v1 to v3, deletes, branches, tags, a view."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.maintenance import Maintenance
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots
from sterna.maintenance.tables.orphan_files import sweep
from sterna.replication.replica.region import open_region
from tests.support.own_region import OwnRegion, own_region
from tests.support.world import World, merge_on_read

NAMESPACE = "restored"
TABLES = tuple(f"{NAMESPACE}.v{version}" for version in (1, 2, 3))
VIEW = f"{NAMESPACE}.seen"


def make_tables(world: World, namespace: str, folder: str = "") -> None:
    """A table of each format version with all that a history has, and a view.

    Args:
        world: where.
        namespace: of them.
        folder: URI of the folder that they lie in; "": where the catalog puts them.
    """
    for version in (1, 2, 3):
        table = f"main_us.{namespace}.v{version}"
        properties = merge_on_read(version) if version > 1 else "TBLPROPERTIES ('format-version'='1')"
        location = f"LOCATION '{folder}/v{version}'" if folder else ""
        world.sql(f"CREATE TABLE {table} (id BIGINT, part BIGINT) USING iceberg {location} {properties}")
        world.sql(f"INSERT INTO {table} SELECT id, id % 3 FROM range(30)")
        world.sql(f"ALTER TABLE {table} CREATE TAG first")
        world.sql(f"DELETE FROM {table} WHERE id % 7 = 1")
        world.sql(f"ALTER TABLE {table} CREATE BRANCH dev")
        world.sql(f"INSERT INTO {table}.branch_dev VALUES (100, 1)")
        world.sql(f"INSERT INTO {table} VALUES (200, 2)")
    world.sql(f"CREATE VIEW main_us.{namespace}.seen AS SELECT count(*) AS n FROM main_us.{namespace}.v1")


@pytest.fixture(scope="module")
def here(world: World) -> Iterator[World]:
    with world.namespace(NAMESPACE):
        make_tables(world, NAMESPACE)
        yield world
        world.sql(f"DROP VIEW main_us.{VIEW}")


def back(world: World, as_of: str, region: str = "eu") -> RestoreReport:
    request = RestoreRequest(as_of, (NAMESPACE,))
    with world.context(region) as context:
        shown = restore(context, request, world.lines.append, apply=False)
        done = restore(context, request, world.lines.append, apply=True)
    assert [(it.key, it.files_from) for it in shown.tables] == [(it.key, it.files_from) for it in done.tables]
    return done


def test_what_was_dropped_answers_as_before(here: World) -> None:
    world = here
    before = {table: world.history(f"main_us.{table}") for table in TABLES}
    world.sync("eu")
    had = world.catalog.reference("main").hash
    # First without PURGE: all files are at home.
    world.sql(f"DROP TABLE main_us.{TABLES[0]}")
    world.sync("eu")
    assert [(it.key, it.files_from) for it in back(world, had).tables] == [(TABLES[0], "home")]
    assert world.history(f"main_us.{TABLES[0]}") == before[TABLES[0]]
    world.sync("eu")
    # Then with PURGE, and the namespace with it.
    had = world.catalog.reference("main").hash
    for table in TABLES:
        world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('gc.enabled'='true')")
        world.sql(f"DROP TABLE main_us.{table} PURGE")
    world.sql(f"DROP VIEW main_us.{VIEW}")
    world.sql(f"DROP NAMESPACE main_us.{NAMESPACE}")
    world.sync("eu")
    report = back(world, had)
    assert {it.key: it.files_from for it in report.tables} == {**dict.fromkeys(TABLES, "eu"), VIEW: "home"}
    assert report.namespaces == (NAMESPACE,)
    assert {table: world.history(f"main_us.{table}") for table in TABLES} == before
    assert world.sql(f"SELECT n FROM main_us.{VIEW}") == [(len(before[TABLES[0]]["now"]),)]
    # Both regions follow, and writers go on.
    table = TABLES[1]
    world.sql(f"INSERT INTO main_us.{table} VALUES (300, 0)")
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 3")
    rows = world.history(f"main_us.{table}")["now"]
    for region in ("eu", "us"):
        assert not [held for held in world.sync(region).held if held.key in TABLES]
        assert world.history(f"replica_{region}.{table}")["now"] == rows


@pytest.fixture
def region(world: World, tmp_path: Path) -> Iterator[OwnRegion]:
    """A region of the test's own that keeps what is dropped; the tables' folder is swept."""
    with world.namespace("upkept"):
        own = own_region(world, tmp_path, "upkept")
        own.registry["policies"] = [
            {"tables": ["upkept.**"], "keep_dropped": "30d"},
            {"tables": ["**"], "replicate": False},
        ]
        folder = f"s3://us-lake/{own.name}"
        lake = next(location for location in own.registry["locations"] if location["region"] == "us")
        own.registry["locations"].append({**lake, "id": f"swept-{own.name}", "prefix": folder, "sweep": True})
        make_tables(world, "upkept", folder)
        yield own
        world.sql("DROP VIEW main_us.upkept.seen")


def upkeep_settings(own: OwnRegion) -> Maintenance:
    others = [registered["name"] for registered in own.registry["regions"] if registered["name"] != own.name]
    rule = {"match": ["upkept.**"], "keep": "1h"}
    return Maintenance.model_validate({"tables": [rule], "exclude_regions": others, "keep_heads": "1h"})


def expire(own: OwnRegion) -> None:
    now = datetime.now(UTC) + timedelta(hours=2)
    with own.context() as context:
        expire_snapshots(context, upkeep_settings(own), remove=SparkSnapshotRemover(context), now=now)


def collect(own: OwnRegion) -> int:
    """Clean-ups and sweeps of days; return how many files the sweeps deleted."""
    now, deleted = datetime.now(UTC), 0
    options = GcOptions(keep=timedelta(0), delete=True, max_wait_seconds=0.0)
    for days in (9, 11):
        with own.context() as context:
            run_gc(context, options, own.world.lines.append, now=now + timedelta(days=days))
        with open_region(own.path, "us", environment_secrets()) as context:
            report = sweep(context, upkeep_settings(own), delete=True, now=now + timedelta(days=days))
            deleted += report.deleted.files
    return deleted


def test_what_was_dropped_answers_as_before_after_all_upkeep(region: OwnRegion) -> None:
    """Dropped with PURGE, and without; then expiry, sweeps and clean-ups of days. One region has copies."""
    world, tables = region.world, [f"upkept.v{version}" for version in (1, 2, 3)]
    for table in tables:
        world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('gc.enabled'='true')")
    region.sync()
    expire(region)
    region.sync()
    before = {table: world.history(f"main_us.{table}") for table in tables}
    had = world.catalog.reference("main").hash
    world.sql(f"DROP TABLE main_us.{tables[0]}")
    for table in tables[1:]:
        world.sql(f"DROP TABLE main_us.{table} PURGE")
    region.sync()
    assert collect(region) > 0, "what was dropped without PURGE is swept"
    with region.context() as context:
        shown = restore(context, RestoreRequest(had, ("upkept",)), world.lines.append, apply=False)
        assert {it.key: it.files_from for it in shown.tables} == dict.fromkeys(tables, region.name)
        restore(context, RestoreRequest(had, ("upkept",)), world.lines.append, apply=True)
    assert {table: world.history(f"main_us.{table}") for table in tables} == before
    assert world.sql("SELECT n FROM main_us.upkept.seen") == [(len(before[tables[0]]["now"]),)]
    assert region.sync().held == ()
    region.assert_closed(*tables)
