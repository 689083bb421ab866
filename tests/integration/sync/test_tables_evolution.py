"""Tables whose schema, partitioning and order change while they are replicated."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.demo import nyc
from tests.support.iceberg_java import iceberg, load_table, write_file
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("evolution") as name:
        yield name


def alter(world: World, table: str, *changes: str) -> None:
    for change in changes:
        world.sql(f"ALTER TABLE main_us.{table} {change}")


def test_schema_changes_nested_ones_too(world: World, ns: str):
    table = "evolution.schema"
    world.sql(
        f"CREATE TABLE main_us.{table} (id INT NOT NULL, place STRUCT<city: STRING, at: STRUCT<x: FLOAT, y: FLOAT>>, "
        "tags ARRAY<STRUCT<name: STRING, weight: INT>>, prices MAP<STRING, DECIMAL(8, 2)>, old STRING) USING "
        f"iceberg {MERGE_ON_READ}"
    )
    world.sql(
        f"INSERT INTO main_us.{table} SELECT cast(id AS INT), struct(concat('c', id), struct(cast(id AS FLOAT), "
        "cast(0.5 AS FLOAT))), "
        f"array(struct('t', cast(id AS INT))), map('p', cast(id AS DECIMAL(8, 2))), 'gone' FROM range(10)"
    )
    alter(
        world,
        table,
        "ADD COLUMN place.zip STRING COMMENT 'a code' FIRST",
        "ADD COLUMN tags.element.kind STRING",
        "RENAME COLUMN place.city TO town",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN tags.element.weight TYPE BIGINT",
        "ALTER COLUMN prices.value TYPE DECIMAL(12, 2)",
        "ALTER COLUMN place AFTER prices",
    )
    world.sql(
        f"INSERT INTO main_us.{table} SELECT 5000000000, array(struct('u', 5000000000, 'k')), map('q', 1234567890.12), "
        f"struct('1010', 'town', struct(1.5, 2.5)), 'still here'"
    )
    world.sync_and_compare(table)
    alter(
        world,
        table,
        "DROP COLUMN old",
        "DROP COLUMN place.at.y",
        "ALTER COLUMN id DROP NOT NULL",
        # A new column under a dropped one's name: its values are null in all files of before.
        "ADD COLUMN old STRING",
        "RENAME COLUMN tags TO labels",
    )
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (3, 5000000000)")
    world.sql(f"INSERT INTO main_us.{table} (id, old) VALUES (NULL, 'new')")
    world.sync_and_compare(table)


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param("TBLPROPERTIES ('format-version'='1')", id="v1", marks=pytest.mark.rare),
        pytest.param(MERGE_ON_READ, id="v2"),
    ],
)
def test_partition_spec_and_sort_order_changes(world: World, ns: str, properties: str):
    table = f"evolution.spec_{'v2' if properties is MERGE_ON_READ else 'v1'}"
    world.sql(
        f"CREATE TABLE main_us.{table} (id BIGINT, name STRING, at TIMESTAMP) USING iceberg PARTITIONED BY "
        f"(days(at)) {properties}"
    )
    row = "id, concat('name ', id), timestamp_seconds(1700000000 + id * 40000)"
    world.sql(f"INSERT INTO main_us.{table} SELECT {row} FROM range(8)")
    alter(world, table, "ADD PARTITION FIELD bucket(2, id)", "WRITE ORDERED BY name DESC NULLS LAST, truncate(3, name)")
    world.sql(f"INSERT INTO main_us.{table} SELECT {row} FROM range(8, 12)")
    world.sync_and_compare(table)
    alter(
        world, table, "REPLACE PARTITION FIELD days(at) WITH months(at) AS month", "DROP PARTITION FIELD bucket(2, id)"
    )
    alter(world, table, "ADD PARTITION FIELD truncate(6, name) AS prefix", "WRITE UNORDERED")
    world.sql(f"INSERT INTO main_us.{table} SELECT {row} FROM range(12, 16)")
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (1, 9, 13)")
    world.sync_and_compare(table)
    alter(world, table, "DROP PARTITION FIELD prefix", "DROP PARTITION FIELD month")
    world.sql(f"INSERT INTO main_us.{table} SELECT {row} FROM range(16, 20)")
    world.sql(f"CALL main_us.system.rewrite_manifests('{table}')")
    world.sync_and_compare(table)


def test_default_values(world: World, ns: str):
    """Rows from before a column was added read its initial default; Spark can't add one, Iceberg's Java API can."""
    table = "evolution.defaults"
    world.sql(
        f"CREATE TABLE main_us.{table} (id BIGINT, place STRUCT<city: STRING>) USING iceberg TBLPROPERTIES "
        "('format-version'='3')"
    )
    world.sql(f"INSERT INTO main_us.{table} SELECT id, struct('c') FROM range(5)")
    api = iceberg(world.spark)
    types = api.types.Types
    string, number = types.StringType.get(), types.IntegerType.get()
    literal = api.expressions.Expressions.lit
    update = load_table(world.spark, f"main_us.{table}").updateSchema()
    update.addColumn("level", number, "with a default", literal(7)).addColumn(
        "place", "country", string, None, literal("nowhere")
    )
    update.addRequiredColumn("name", string, None, literal("unnamed")).commit()
    world.sql(f"INSERT INTO main_us.{table} VALUES (5, struct('d', 'here'), 8, 'named')")
    assert world.sql(f"SELECT level, place.country, name FROM main_us.{table} WHERE id = 0") == [
        (7, "nowhere", "unnamed")
    ]
    world.sync_and_compare(table)
    load_table(world.spark, f"main_us.{table}").updateSchema().updateColumnDefault("level", literal(9)).commit()
    world.sql(f"UPDATE main_us.{table} SET name = 'updated' WHERE id = 2")
    world.sync_and_compare(table)


def test_name_mapping_of_files_without_field_ids(world: World, ns: str):
    table = "evolution.named"
    world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, name STRING) USING iceberg {MERGE_ON_READ}")
    world.sql(f"INSERT INTO main_us.{table} VALUES (0, 'with ids')")
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name", "title"]}]'
    alter(world, table, f"SET TBLPROPERTIES ('schema.name-mapping.default'='{mapping}')")
    for number, (region, column) in enumerate((("us", "name"), ("eu", "title"))):
        rows = pa.table({"id": pa.array([number * 10 + 1, number * 10 + 2], pa.int64()), column: ["a", "b"]})
        add_file(world, table, f"{world.stage.warehouse(region)}/named-{region}/part.parquet", rows)
    assert len(world.sql(f"SELECT * FROM main_us.{table} WHERE name IS NOT NULL")) == 5
    world.sync_and_compare(table, pyiceberg=True)
    alter(world, table, "RENAME COLUMN name TO label")
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (1, 12)")
    world.sync_and_compare(table)


def add_file(world: World, table: str, uri: str, rows: pa.Table) -> None:
    """Write a Parquet file as it is, without field ids, and register it."""
    writing = pa.BufferOutputStream()
    pq.write_table(rows, writing)
    write_file(load_table(world.spark, f"main_us.{table}"), uri, writing.getvalue().to_pybytes())
    nyc.register_file(world.spark, f"main_us.{table}", uri, "")
