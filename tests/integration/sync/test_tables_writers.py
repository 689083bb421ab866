"""Tables that PyIceberg, and engines that write through Nessie's Iceberg REST, change.

And what Spark's merges write.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.support.world import World, merge_on_read, pyiceberg_properties


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("writers") as name:
        yield name


@pytest.fixture(scope="module")
def rest(world: World) -> Catalog:
    """PyIceberg's view of main, at us's own endpoint, which the server names for us's tables."""
    settings = pyiceberg_properties(world.stage.endpoints["us"])
    return load_catalog("main", type="rest", uri=f"{world.stage.nessie.iceberg_uri}/main", warehouse="us", **settings)


@pytest.fixture(scope="module")
def spark_rest(world: World) -> str:
    """The name of a Spark catalog that reads and writes main through Nessie's Iceberg REST, at us's own endpoint."""
    endpoint = world.stage.endpoints["us"]
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": f"{world.stage.nessie.iceberg_uri}/main",
        ".warehouse": "us",
        ".s3.endpoint": endpoint.url,
        ".s3.access-key-id": endpoint.access_key,
        ".s3.secret-access-key": endpoint.secret_key,
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        world.spark.conf.set(f"spark.sql.catalog.rest_us{key}", value)
    return "rest_us"


def rows(*ids: int, name: str = "written") -> pa.Table:
    part = [key % 2 for key in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "part": pa.array(part, pa.int64())})


def test_pyiceberg_appends_overwrites_and_deletes(world: World, ns: str, rest: Catalog):
    born, spark_born = "writers.pyiceberg", "writers.spark_born"
    rest.create_table(born, rows(1).schema).append(rows(*range(10)))
    world.sql(
        f"CREATE TABLE main_us.{spark_born} (id BIGINT, name STRING, part BIGINT) USING iceberg PARTITIONED BY "
        f"(part) {merge_on_read(2)}"
    )
    world.sql(f"INSERT INTO main_us.{spark_born} SELECT id, 'spark', id % 2 FROM range(10)")
    world.sql(f"DELETE FROM main_us.{spark_born} WHERE id = 4")
    for name in (born, spark_born):
        rest.load_table(name).append(rows(100, 101))
    world.sync_and_compare(born, spark_born, pyiceberg=True)
    for name in (born, spark_born):
        table = rest.load_table(name)
        table.delete("id = 3")
        table.overwrite(rows(5, 7, name="overwritten"), "id in (5, 7)")
        table.upsert(rows(100, 200, name="upserted"), ["id"])
    world.sync_and_compare(born, spark_born, pyiceberg=True)


def test_a_commit_through_nessies_rest_costs_what_it_changed_though_it_has_no_history(
    world: World, ns: str, rest: Catalog
):
    table = "writers.no_history"
    rest.create_table(table, rows(1).schema)
    for number in range(5):
        rest.load_table(table).append(rows(number))
    world.sync()
    rest.load_table(table).append(rows(100))
    us = world.stage.endpoints["us"]
    mark = len(us.requests())
    assert world.sync().copied.files == 1
    read = [request.key for request in us.requests(mark) if request.method == "GET"]
    assert len([key for key in read if key.endswith(".avro") and "/snap-" not in key]) == 1, read
    world.assert_equal(table)


def test_spark_through_iceberg_rest(world: World, ns: str, spark_rest: str):
    table = "writers.rest"
    world.sql(
        f"CREATE TABLE {spark_rest}.{table} (id BIGINT, name STRING, part BIGINT) USING iceberg PARTITIONED BY "
        f"(part) {merge_on_read(2)}"
    )
    world.sql(f"INSERT INTO {spark_rest}.{table} SELECT id, 'rest', id % 2 FROM range(20)")
    world.sync_and_compare(table)
    world.sql(f"INSERT INTO main_us.{table} VALUES (100, 'native', 1)")
    world.sql(f"DELETE FROM {spark_rest}.{table} WHERE id IN (3, 4, 100)")
    world.sync_and_compare(table)


def test_spark_merges_in_both_modes(world: World, ns: str):
    tables = ["writers.copied", "writers.merged"]
    for table, properties in zip(tables, ("TBLPROPERTIES ('format-version'='2')", merge_on_read(2)), strict=True):
        world.sql(
            f"CREATE TABLE main_us.{table} (id BIGINT, name STRING, part BIGINT) USING iceberg PARTITIONED BY (part) "
            f"{properties}"
        )
        world.sql(f"INSERT INTO main_us.{table} SELECT id, 'first', id % 2 FROM range(20)")
        merge(world, table, 15)
    world.sync_and_compare(*tables)
    for table in tables:
        merge(world, table, 18)
        world.sql(f"UPDATE main_us.{table} SET name = 'updated' WHERE id < 4")
    world.sync_and_compare(*tables)


def merge(world: World, table: str, start: int) -> None:
    world.sql(
        f"MERGE INTO main_us.{table} t USING (SELECT id, id % 2 AS part FROM range({start}, {start + 10})) s ON t.id "
        "= s.id "
        f"WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged' "
        f"WHEN NOT MATCHED THEN INSERT (id, name, part) VALUES (s.id, 'new', s.part)"
    )
