"""The recipes of `docs/engines.md` and `docs/writers.md`.

Engines that read a replica with the region's own key alone, and writers that keep new files at home.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from sterna.demo import nyc
from sterna.servers.s3 import Endpoint
from tests.support.world import World, pyiceberg_properties


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("nyc") as name:
        yield name


def rest(world: World, branch: str, warehouse: str, endpoint: Endpoint) -> Catalog:
    uri = f"{world.stage.nessie.iceberg_uri}/{branch}"
    return load_catalog("rest", type="rest", uri=uri, warehouse=warehouse, **pyiceberg_properties(endpoint))


def write_at_home(world: World, region: str, name: str, data: pa.Table) -> str:
    uri = f"{world.stage.warehouse(region)}/incoming/{name}.parquet"
    nyc.write_region_file(world.stage.endpoints[region], uri, data)
    return uri


def test_spark_maps_its_classes(spark: SparkSession):
    """A warning of Java's that it can't would be seen by nobody: Spark would only start as late as without."""
    jvm = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert "/classes/spark-" in Path(f"/proc/{jvm}/maps").read_text()


def test_pyiceberg_reads_a_replica_with_the_regions_own_key(world: World, ns: str):
    world.sql("CREATE TABLE main_us.nyc.read (id BIGINT) USING iceberg")
    world.sql("INSERT INTO main_us.nyc.read SELECT id FROM range(10)")
    first = world.snapshots("main_us.nyc.read")[0]
    world.sql("INSERT INTO main_us.nyc.read SELECT id FROM range(5)")
    world.sync()
    location = world.replica()["nyc.read"].metadata_location
    assert location
    with world.dark("us"):
        eu = world.stage.endpoints["eu"]
        static = StaticTable.from_metadata(location, pyiceberg_properties(eu))
        assert static.scan().to_arrow().num_rows == 15
        assert static.scan(snapshot_id=first).to_arrow().num_rows == 10
        assert rest(world, "main_replica_eu", "eu", eu).load_table("nyc.read").scan().to_arrow().num_rows == 15


def test_a_spark_writer_keeps_its_new_files_at_home(world: World, ns: str):
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "month": pa.array([1, 1], pa.int64())})
    nyc.create_table(world.spark, "main_us", "spark_writer", rows, partition="month")
    more = pa.table({"id": pa.array([3, 4, 5], pa.int64()), "month": pa.array([7, 7, 7], pa.int64())})
    uri = write_at_home(world, "eu", "spark/month=7/part", nyc.with_field_ids(more))
    nyc.register_file(world.spark, "main_eu.nyc.spark_writer", uri, "month=7")
    check_home(world, "nyc.spark_writer", uri, 5)


def test_a_pyiceberg_writer_keeps_its_new_files_at_home(world: World, ns: str):
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    nyc.create_table(world.spark, "main_us", "pyiceberg_writer", rows)
    uri = write_at_home(world, "eu", "pyiceberg/part", pa.table({"id": pa.array([3, 4, 5], pa.int64())}))
    table = rest(world, "main", "us", world.stage.combined_endpoint).load_table("nyc.pyiceberg_writer")
    # The server names each table's own region's store; this writer's files are in two.
    table.io.properties.update(pyiceberg_properties(world.stage.combined_endpoint))
    table.add_files([uri])
    check_home(world, "nyc.pyiceberg_writer", uri, 5)


def check_home(world: World, table: str, uri: str, rows: int) -> None:
    """The file stays where its writer put it, for that writer's region; the other one gets a copy."""
    for region in ("eu", "us"):
        world.sync(region)
        world.assert_equal(table, region=region)
        assert world.sql(f"SELECT count(*) FROM replica_{region}.{table}") == [(rows,)]
    assert uri in {row[0] for row in world.sql(f"SELECT file_path FROM replica_eu.{table}.files")}
    assert uri not in {row[0] for row in world.sql(f"SELECT file_path FROM replica_us.{table}.files")}
