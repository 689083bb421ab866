"""Where a table's files may lie.

Other paths than its location's, other spellings, this region's own files, and who may delete what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from sterna.demo import nyc
from sterna.replication.replica.model import Report
from tests.support.own_region import own_region, read_metadata
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.world import MERGE_ON_READ, World

WRITE_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


@pytest.fixture
def ns(world: World) -> Iterator[str]:
    with world.namespace("loc") as name:
        yield name


def make(world: World, name: str, *, catalog: str = "main_us", partition: str = "", **properties: str) -> str:
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    extra = f"{MERGE_ON_READ[:-1]}, {listed})" if listed else MERGE_ON_READ
    world.sql(f"CREATE TABLE {catalog}.loc.{name} (id BIGINT, word STRING) USING iceberg {partition} {extra}")
    return f"loc.{name}"


def insert(world: World, table: str, first: int = 0, rows: int = 10, catalog: str = "main_us") -> None:
    world.sql(f"INSERT INTO {catalog}.{table} SELECT id, concat('n', id % 3) FROM range({first}, {first + rows}, 1, 1)")


def files(world: World, table: str) -> set[str]:
    return {row[0] for row in world.sql(f"SELECT file_path FROM {table}.all_files")}


def replica_metadata(world: World, table: str) -> dict[str, Any]:
    return read_metadata(world, world.replica()[table])


def data_files(world: World, table: str) -> set[str]:
    return {row[0] for row in world.sql(f"SELECT file_path FROM {table}.data_files")}


def assert_writes_below_the_root(world: World, table: str) -> None:
    """Whatever tells a writer or a cleaner where the table's files are points below the replica root."""
    root = world.context().region.replica_root
    metadata = replica_metadata(world, table)
    assert metadata["location"].startswith(f"{root}/")
    assert metadata["properties"]["gc.enabled"] == "false"
    for name in WRITE_PATHS:
        if name in metadata["properties"]:
            assert metadata["properties"][name].startswith(f"{root}/"), name


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_a_path_that_the_table_says(world: World, ns: str, name: str):
    table = make(world, name.split(".")[1], **{name: f"s3://us-lake/elsewhere/{name}"})
    insert(world, table)
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 3")
    assert any(
        uri.startswith("s3://us-lake/elsewhere/") for uri in {*files(world, f"main_us.{table}"), located(world, table)}
    )
    assert world.sync().held == ()
    world.assert_equal(table)
    assert_writes_below_the_root(world, table)
    assert replica_metadata(world, table)["properties"][name] == f"{root(world)}/us-lake/elsewhere/{name}"


@pytest.mark.parametrize(
    "name", ["write.object-storage.path", pytest.param("write.folder-storage.path", marks=pytest.mark.rare)]
)
def test_a_deprecated_path(world: World, ns: str, name: str):
    # Iceberg 1.12 reads such tables and refuses to write them: older writers made their files.
    table = make(world, name.split(".")[1].replace("-", "_"), **{"write.data.path": "s3://us-lake/elsewhere/old"})
    insert(world, table)
    world.sql(f"ALTER TABLE main_us.{table} UNSET TBLPROPERTIES ('write.data.path')")
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('{name}'='s3://us-lake/elsewhere/old')")
    world.sync()
    world.assert_equal(table)
    assert_writes_below_the_root(world, table)
    assert replica_metadata(world, table)["properties"][name] == f"{root(world)}/us-lake/elsewhere/old"


def test_object_storage_layout_and_odd_partition_values(world: World, ns: str):
    table = make(world, "layout", partition="PARTITIONED BY (word)", **{"write.object-storage.enabled": "true"})
    words = ["a b/c=d%20é#+", "..", ".", "%2F", "e\u0301", "\U0001f426", ""]
    rows = [f"({number + more}, '{word}')" for number, word in enumerate(words) for more in (0, 100)]
    world.sql(f"INSERT INTO main_us.{table} VALUES {', '.join(rows)}")
    world.sql(f"DELETE FROM main_us.{table} WHERE id < 100")
    world.sync()
    world.assert_equal(table)
    with world.dark("us"):
        assert sorted(world.sql(f"SELECT word FROM replica_eu.{table}")) == sorted((word,) for word in words)
        for number, word in enumerate(words):
            assert world.sql(f"SELECT id FROM replica_eu.{table} WHERE word = '{word}'") == [(number + 100,)]


def test_files_from_outside_the_tables_location_and_from_another_location(world: World, ns: str, tmp_path: Path):
    table = make(world, "outside")
    insert(world, table)
    region = own_region(world, tmp_path, "outside")
    lake = next(location for location in region.registry["locations"] if location["id"] == "us-lake")
    region.registry["locations"].append({**lake, "id": "partner", "prefix": "s3://us-lake/partner"})
    for number, folder in enumerate(("us-lake/incoming", "us-lake/partner/out", "us-lake/partner-not")):
        rows = pa.table({"id": pa.array([1000 + number], pa.int64()), "word": pa.array(["x"])})
        register(world, table, f"s3://{folder}/one.parquet", rows)
    assert region.sync().held == ()
    region.assert_equal(table)
    here = files(world, f"{region.spark_catalog}.{table}")
    for place in ("us-lake/incoming", "partner/out", "us-lake/partner-not"):
        assert f"{region.root}/{place}/one.parquet" in here


def test_two_spellings_in_one_table_stay_two_files(world: World, ns: str):
    table = make(world, "spellings")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "word": pa.array(["a", "b", "c"])})
    register(world, table, "s3://us-lake/incoming/spelled.parquet", rows)
    register(world, table, "s3a://us-lake/incoming/spelled.parquet")
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 2 AND substr(_file, 1, 4) = 's3a:'")
    assert world.sql(f"SELECT count(*) FROM main_us.{table}.delete_files") == [(1,)]
    assert world.sql(f"SELECT id FROM main_us.{table} ORDER BY id") == [(1,), (1,), (2,), (3,), (3,)]
    world.sync()
    world.assert_equal(table)
    assert data_files(world, f"replica_eu.{table}") == {
        f"{root(world)}/{id}/incoming/spelled.parquet" for id in ("us-lake", "us-lake~s3a")
    }


@pytest.mark.parametrize("born", [pytest.param("us", marks=pytest.mark.rare), "eu"])
def test_a_table_that_is_spelled_otherwise_throughout(world: World, ns: str, born: str):
    catalog, table = f"main_{born}", f"loc.spelled_{born}"
    location = f"s3a://{born}-lake/warehouse/spelled"
    world.sql(
        f"CREATE TABLE {catalog}.{table} (id BIGINT, word STRING) USING iceberg LOCATION '{location}' {MERGE_ON_READ}"
    )
    insert(world, table, catalog=catalog)
    world.sql(f"DELETE FROM {catalog}.{table} WHERE id = 3")
    assert located(world, table).startswith(f"{location}/metadata/")
    world.sync()
    insert(world, table, 20, catalog=catalog)
    world.sync()
    world.assert_equal(table)
    assert_writes_below_the_root(world, table)
    home = f"{location}/data/" if born == "eu" else f"{root(world)}/us-lake~s3a/warehouse/spelled/data/"
    assert all(uri.startswith(home) for uri in data_files(world, f"replica_eu.{table}"))


def test_a_local_tables_data_stays_in_place_and_a_commit_costs_one_object(world: World, ns: str):
    table = make(world, "home", catalog="main_eu")
    for number in range(3):
        insert(world, table, number * 10, catalog="main_eu")
    world.sql(f"DELETE FROM main_eu.{table} WHERE id = 5")
    first, report = written(world, world.sync)
    assert table in report.published
    assert kinds(first) == {"metadata.json"}, first
    insert(world, table, 100, 1, catalog="main_eu")
    second, report = written(world, world.sync)
    assert report.copied.files == 0
    assert len(second) == 1, second
    assert kinds(second) == {"metadata.json"}
    assert files(world, f"replica_eu.{table}") == files(world, f"main_eu.{table}")
    lists = {snapshot["manifest-list"] for snapshot in replica_metadata(world, table)["snapshots"]}
    assert all(uri.startswith("s3://eu-lake/warehouse/") for uri in lists)
    world.assert_equal(table)
    assert_writes_below_the_root(world, table)


def test_metadata_of_local_origin_that_names_foreign_files(world: World, ns: str):
    table = make(world, "abroad", catalog="main_eu")
    insert(world, table, catalog="main_eu")
    world.sync()
    world.sql(
        f"ALTER TABLE main_eu.{table} SET TBLPROPERTIES ('write.data.path'='{world.stage.warehouse('us')}/loc-abroad')"
    )
    insert(world, table, 10, catalog="main_eu")
    world.sql(f"DELETE FROM main_eu.{table} WHERE id IN (3, 13)")
    objects, report = written(world, world.sync)
    assert report.held == ()
    assert report.copied.files == 1
    assert {key.split("/")[1] for key in objects if key.endswith(".avro")} == {LOCALIZED_FOLDER}
    world.assert_equal(table)
    spelled = {uri.removeprefix("s3://").split("/")[1] for uri in files(world, f"replica_eu.{table}")}
    assert spelled == {"warehouse", "replica"}
    for region in ("us", "eu"):
        world.sync(region)
    world.assert_equal(table, region="us")


@pytest.mark.parametrize("born", ["us", "eu"])
def test_what_is_done_through_the_replica_deletes_nothing_of_mains(world: World, ns: str, born: str):
    table = make(world, f"safe_{born}", catalog=f"main_{born}")
    insert(world, table, catalog=f"main_{born}")
    world.sql(f"DELETE FROM main_{born}.{table} WHERE id = 1")
    world.sync()
    branch = f"cleaning_{born}"
    world.catalog.create_branch(branch, world.catalog.reference("main_replica_eu").hash)
    there = objects(world)
    work = f"replica_eu.loc.`safe_{born}@{branch}`"
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        remove_orphans(world, work)
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        world.sql(f"DROP TABLE {work} PURGE")
    assert objects(world) == there
    # Somebody takes the first line of defence away: what is left is that the table's own places lie below the replica
    # root.
    world.sql(f"ALTER TABLE {work} SET TBLPROPERTIES ('gc.enabled'='true')")
    world.sql(f"INSERT INTO {work} VALUES (77, 'written through the replica')")
    assert all(key.startswith("eu-lake/replica/") for key in objects(world) - there)
    remove_orphans(world, work)
    world.sql(f"DROP TABLE {work}")
    assert all(key.startswith("eu-lake/replica/") for key in there - objects(world))
    world.assert_equal(table)


def remove_orphans(world: World, table: str) -> None:
    """Remove orphan files as radically as Iceberg can: no age limit, and the store listed as it is."""
    jvm: Any = world.spark._jvm
    session: Any = world.spark
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession).deleteOrphanFiles(loaded)
    action.usePrefixListing(True).olderThan(2**62).execute()


def register(world: World, table: str, uri: str, rows: pa.Table | None = None) -> None:
    """Append a Parquet file of us that stands anywhere; written first where rows are given."""
    if rows is not None:
        nyc.write_region_file(world.stage.endpoints["us"], uri, nyc.with_field_ids(rows))
    nyc.register_file(world.spark, f"main_us.{table}", uri, "")


def located(world: World, table: str) -> str:
    namespace, name = table.split(".")
    return world.content((namespace, name)).metadata_location or ""


def root(world: World) -> str:
    return world.context().region.replica_root


def objects(world: World) -> set[str]:
    """Every object of both regions' stores, sterna's notes of its runs aside."""
    folders = [endpoint.folder for endpoint in world.stage.endpoints.values()]
    return {
        str(path.relative_to(folder))
        for folder in folders
        if folder is not None
        for path in folder.rglob("*")
        if path.is_file() and "_sterna" not in path.parts
    }


def written(world: World, call: Callable[[], Report]) -> tuple[list[str], Report]:
    """Run a sync; return the keys below the replica root that it wrote, and its report."""
    eu = world.stage.endpoints["eu"]
    mark = len(eu.requests())
    report = call()
    puts = [request.key for request in eu.requests(mark) if request.method in ("PUT", "COMPLETE")]
    return [key for key in puts if "/_sterna/" not in key], report


def kinds(keys: list[str]) -> set[str]:
    return {"metadata.json" if key.endswith(".metadata.json") else key.rpartition(".")[2] for key in keys}
