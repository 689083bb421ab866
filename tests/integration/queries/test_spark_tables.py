"""Single tables read by a Spark of this process, and by a Spark Connect server; ended in time, without a trace."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

from sterna.config.registry.credential import fileio_properties
from sterna.errors import EngineError, OutOfTime
from sterna.servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars
from sterna.servers.process import free_port
from sterna.spark.read import SparkTables, TableScan
from sterna.spark.start import start_connect
from tests.support.servers.spark_connect import start_spark_connect
from tests.support.world import World

SLOW = "reflect('java.lang.Thread', 'sleep', 1000L) IS NULL"  # a second a row


@pytest.fixture(scope="module")
def table(world: World) -> Iterator[str]:
    """The metadata of a table of 60 rows in eu."""
    with world.namespace("spark_tables") as name:
        world.sql(f"CREATE TABLE main_us.{name}.t (id BIGINT, `odd``na me` STRING) USING iceberg")
        world.sql(f"INSERT INTO main_us.{name}.t SELECT id, repeat('x', int(id)) FROM range(60)")
        world.sync()
        yield world.replica()[f"{name}.t"].metadata_location or ""


@pytest.fixture(scope="module")
def properties(world: World, table: str) -> dict[str, str]:
    with world.context() as context:
        location = context.mapping.locate(table).location
        return fileio_properties(location, context.secrets(location.credential_id or ""))


def read(tables: SparkTables, wanted: TableScan, properties: dict[str, str], seconds: float = 60.0) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    tables.read(wanted, properties, batches.append, seconds)
    return pa.Table.from_batches(batches)


def test_a_job_is_cancelled_when_its_time_is_over(world: World, table: str, properties: dict[str, str]) -> None:
    tables = SparkTables("local[2]")
    wanted = TableScan(table, None, ("id", "odd`na me"))
    assert read(tables, wanted, properties)["id"].to_pylist() == list(range(60))
    tracker = world.spark.sparkContext.statusTracker()
    started = time.monotonic()
    with pytest.raises(OutOfTime, match="the region's Spark"):
        read(tables, TableScan(table, None, ("id",), SLOW), properties, 2.0)
    while tracker.getActiveJobsIds():
        assert time.monotonic() - started < 30
        time.sleep(0.05)
    assert read(tables, wanted, properties).num_rows == 60


def test_whoever_wants_no_more_ends_the_job(world: World, table: str, properties: dict[str, str]) -> None:
    tables = SparkTables("local[2]")

    class Enough(Exception):
        pass

    def take(batch: pa.RecordBatch) -> None:
        raise Enough

    with pytest.raises(Enough):
        tables.read(TableScan(table, None, ("id",)), properties, take, 60.0)
    assert read(tables, TableScan(table, None, ("id",), "`id` < 5L"), properties).num_rows == 5


def test_a_server_is_asked_as_well_and_keeps_nothing(
    world: World, table: str, properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a server's Derby writes its log where the server was started
    jars = fetch_jars([ICEBERG_SPARK, ICEBERG_AWS])
    conf = tmp_path / "spark-eu" / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text(f"spark.driver.extraClassPath {os.pathsep.join(map(str, jars))}\n")
    server = start_spark_connect(tmp_path, "eu", free_port())
    try:
        pool = ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool()
        start_connect(server.url).stop()
        gc.collect()  # which may come at any time, and ends sessions
        assert ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool() is pool
        tables = SparkTables(server.url)
        for _ in range(2):  # a session each: the end of one holds up no other
            rows = read(tables, TableScan(table, None, ("id",), "`id` >= 50L"), properties)
            assert sorted(rows["id"].to_pylist()) == list(range(50, 60))
        with pytest.raises(OutOfTime):
            read(tables, TableScan(table, None, ("id",), SLOW), properties, 3.0)
        with pytest.raises(EngineError, match="nosuch") as raised:
            read(tables, TableScan(f"{table}.nosuch.metadata.json", None, ("id",)), properties)
        assert properties["s3.secret-access-key"] not in str(raised.value)
        assert read(tables, TableScan(table, None, ("id",)), properties).num_rows == 60
        assert properties["s3.secret-access-key"] not in (server.process.log.read_text())
    finally:
        server.stop()


def test_a_spark_without_iceberg_and_none_at_all(properties: dict[str, str], table: str, tmp_path: Path) -> None:
    server = start_spark_connect(tmp_path, "eu", free_port())
    try:
        with pytest.raises(EngineError, match=r"SparkCatalog|CATALOG"):
            read(SparkTables(server.url), TableScan(table, None, ("id",)), properties)
    finally:
        server.stop()
    with pytest.raises(EngineError, match="can't be reached"):
        read(SparkTables(server.url), TableScan(table, None, ("id",)), properties)
