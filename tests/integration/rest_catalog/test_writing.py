"""Engines that know nothing of sterna write at home, by eu's address, to tables that were born in us.

After each statement `main`, the address and, a moment later, the replica branch have the same rows; and `main` names
files of writers alone, by its own names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.integration.rest_catalog.comparison import compare, main_metadata, make, rows
from tests.integration.rest_catalog.conftest import Address
from tests.support.world import World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("rest_write") as name:
        yield name


@pytest.mark.parametrize("version", [2, 3])
def test_spark_writes_each_statement(address: Address, ns: str, version: int) -> None:
    world = address.world
    table = make(world, f"v{version}", version)
    home = f"rest_eu.{table}"
    world.sql(f"INSERT INTO {home} VALUES (100, 'eu'), (101, 'eu')")
    assert len(compare(world, table)) == 32
    world.sql(f"DELETE FROM {home} WHERE id % 3 = 0")
    assert len(compare(world, table)) == 22
    world.sql(f"UPDATE {home} SET name = 'changed' WHERE id IN (1, 100)")
    assert [row[0] for row in compare(world, table) if row[1] == "changed"] == [1, 100]
    world.sql(
        f"MERGE INTO {home} t USING (SELECT * FROM VALUES (2, 'merged'), (200, 'new') AS s(id, name)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    assert {row for row in compare(world, table) if row[1] in ("merged", "new")} == {(2, "merged"), (200, "new")}
    world.sql(f"ALTER TABLE {home} ADD COLUMN more INT")
    world.sql(f"INSERT INTO {home} VALUES (300, 'x', 7)")
    assert (300, "x", 7) in compare(world, table)
    world.sql(f"ALTER TABLE {home} SET TBLPROPERTIES ('comment' = 'from eu')")
    world.sql(f"ALTER TABLE {home} CREATE TAG kept")
    world.sql(f"ALTER TABLE {home} CREATE BRANCH work")
    world.sql(f"INSERT INTO {home}.branch_work VALUES (400, 'b', 1)")
    compare(world, table)
    assert rows(world, f"main_us.{table}.branch_work") == rows(world, f"{home}.branch_work")
    assert main_metadata(world, table)["properties"]["comment"] == "from eu"
    assert set(main_metadata(world, table)["refs"]) == {"main", "kept", "work"}
    world.sql(f"INSERT INTO main_us.{table} VALUES (500, 'us', 1)")
    world.sync()
    world.sql(f"INSERT INTO {home} VALUES (501, 'eu', 1)")
    compare(world, table)
    world.sql(f"INSERT OVERWRITE {home} VALUES (1, 'only', 1)")
    assert compare(world, table) == [(1, "only", 1)]


def test_a_stale_client_loses_nothing(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "stale", 2)
    first, second = (address.pyiceberg().load_table(table) for _ in range(2))
    first.append(new_rows(1000))
    second.append(new_rows(2000))  # it is refused, loads the table again, and tries again by itself
    assert {row[0] for row in compare(world, table)} >= {1000, 2000}


def new_rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array([first], pa.int64()), "name": ["py"]})


def test_pyiceberg_appends_and_sees_its_own_write_at_once(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "py", 2)
    loaded = address.pyiceberg().load_table(table)
    loaded.append(new_rows(1000))
    assert 1000 in loaded.scan().to_arrow()["id"].to_pylist()
    assert 1000 in address.pyiceberg().load_table(table).scan().to_arrow()["id"].to_pylist()
    assert len(compare(world, table)) == 31


def test_a_table_is_made_replaced_renamed_and_dropped_here(address: Address, ns: str) -> None:
    world = address.world
    source = make(world, "source", 2)
    made = f"rest_eu.{ns}.made"
    world.sql(f"CREATE TABLE {made} USING iceberg AS SELECT * FROM rest_eu.{source} WHERE id < 10")
    assert rows(world, made) == rows(world, f"main_us.{ns}.made")
    document = main_metadata(world, f"{ns}.made")
    assert document["location"].startswith("s3://") and "eu" in document["location"]
    world.sql(f"INSERT INTO {made} VALUES (1000, 'x')")
    world.sql(f"CREATE OR REPLACE TABLE {made} USING iceberg AS SELECT id FROM rest_eu.{source} WHERE id < 3")
    assert rows(world, made) == rows(world, f"main_us.{ns}.made") == [(0,), (1,), (2,)]
    world.sql(f"ALTER TABLE {made} RENAME TO {ns}.renamed")
    assert rows(world, f"rest_eu.{ns}.renamed") == [(0,), (1,), (2,)]
    world.sync()
    assert rows(world, f"replica_eu.{ns}.renamed") == [(0,), (1,), (2,)]
    world.sql(f"CREATE TABLE rest_eu.{ns}.plain (id BIGINT) USING iceberg")
    world.sql(f"INSERT INTO rest_eu.{ns}.plain VALUES (1)")
    assert rows(world, f"main_us.{ns}.plain") == [(1,)]
    for name in ("renamed", "plain"):
        world.sql(f"DROP TABLE rest_eu.{ns}.{name}")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN rest_eu.{ns}")}.isdisjoint({"made", "renamed", "plain"})
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_us.{ns}")}.isdisjoint({"made", "renamed", "plain"})
    world.sync()
    assert f"{ns}.renamed" not in world.replica()
