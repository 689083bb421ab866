"""What was dropped with PURGE comes back from copies, as it was: v1 to v3, deletes, branches, tags, a view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.run import restore
from tests.support.world import World, merge_on_read

NAMESPACE = "restored"
TABLES = tuple(f"{NAMESPACE}.v{version}" for version in (1, 2, 3))
VIEW = f"{NAMESPACE}.seen"


@pytest.fixture(scope="module")
def here(world: World) -> Iterator[World]:
    """A table of each format version with all that a history has, and a view."""
    with world.namespace(NAMESPACE):
        for version, table in enumerate(TABLES, 1):
            properties = merge_on_read(version) if version > 1 else "TBLPROPERTIES ('format-version'='1')"
            world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, part BIGINT) USING iceberg {properties}")
            world.sql(f"INSERT INTO main_us.{table} SELECT id, id % 3 FROM range(30)")
            world.sql(f"ALTER TABLE main_us.{table} CREATE TAG first")
            world.sql(f"DELETE FROM main_us.{table} WHERE id % 7 = 1")
            world.sql(f"ALTER TABLE main_us.{table} CREATE BRANCH dev")
            world.sql(f"INSERT INTO main_us.{table}.branch_dev VALUES (100, 1)")
            world.sql(f"INSERT INTO main_us.{table} VALUES (200, 2)")
        world.sql(f"CREATE VIEW main_us.{VIEW} AS SELECT count(*) AS n FROM main_us.{TABLES[0]}")
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
