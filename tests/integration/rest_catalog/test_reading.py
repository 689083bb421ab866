"""Engines that know nothing of sterna read all of a region's replica by its address, with the other region dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sterna.catalog.model import Delete, Key, Put, namespace_content
from tests.integration.rest_catalog.conftest import Address
from tests.support.answers import ask, ask_pyiceberg, data_rows
from tests.support.world import World, merge_on_read


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("rest_read") as name:
        yield name


def make(world: World, name: str, version: int, region: str = "us") -> str:
    """A table with four snapshots, a tag and a branch; from version 2 some of its rows are deleted by delete files."""
    table = f"rest_read.{name}"
    world.sql(f"CREATE TABLE main_{region}.{table} (id BIGINT, name STRING) USING iceberg {merge_on_read(version)}")
    for start in (0, 30):
        world.sql(f"INSERT INTO main_us.{table} SELECT id, concat('n', id) FROM range({start}, {start + 30}, 1, 1)")
    first = world.snapshots(f"main_us.{table}")[0]
    world.sql(f"ALTER TABLE main_us.{table} CREATE TAG early AS OF VERSION {first}")
    world.sql(f"ALTER TABLE main_us.{table} CREATE BRANCH work")
    world.sql(f"INSERT INTO main_us.{table}.branch_work VALUES (70, 'b')")
    if version > 1:
        world.sql(f"DELETE FROM main_us.{table} WHERE id % 3 = 0")
    return table


@pytest.mark.parametrize("version", [1, 2, 3])
def test_spark_and_pyiceberg_read_each_format_version(address: Address, ns: str, version: int) -> None:
    world = address.world
    table = make(world, f"v{version}", version)
    world.sync()
    with world.dark("us"):
        replica, served = ask(world.spark, f"replica_eu.{table}"), ask(world.spark, f"rest_eu.{table}")
        assert served.rows == replica.rows and len(served.rows) >= 5
        assert served.schema == replica.schema
        assert served.metadata["refs"] == replica.metadata["refs"]
        assert served.metadata["files"] == replica.metadata["files"]
        by_pyiceberg = ask_pyiceberg(address.pyiceberg().load_table(table))
    assert by_pyiceberg == data_rows(served)
    places = {name: value for name, value in served.properties.items() if name.startswith("write.") and "path" in name}
    uuid = address.pyiceberg().load_table(table).metadata.table_uuid
    assert {value.rpartition("/")[0].rpartition("/")[2] for value in places.values()} == {str(uuid)}
    assert served.properties["gc.enabled"] == "false"


def test_a_table_that_was_born_here_has_mains_own_places(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "own", 2, region="eu")
    world.sync()
    served = address.pyiceberg().load_table(table)
    assert served.location().startswith(world.stage.warehouse("eu"))
    assert "write.data.path" not in served.properties
    with world.dark("us"):
        assert ask(world.spark, f"rest_eu.{table}").rows == ask(world.spark, f"replica_eu.{table}").rows


def test_time_travel_by_snapshot_time_branch_and_tag(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "travel", 2)
    world.sync()
    first, second = world.snapshots(f"rest_eu.{table}")[:2]

    def count(relation: str) -> Any:
        return world.sql(f"SELECT count(*) FROM {relation}")[0][0]

    assert count(f"rest_eu.{table}") == 40
    assert count(f"rest_eu.{table} VERSION AS OF {first}") == 30
    assert count(f"rest_eu.{table} VERSION AS OF {second}") == 60
    assert count(f"rest_eu.{table} VERSION AS OF 'early'") == 30
    assert count(f"rest_eu.{table}.branch_work") == 61
    moment = world.sql(
        f"SELECT date_format(made_current_at, 'yyyy-MM-dd HH:mm:ss.SSS') FROM rest_eu.{table}.history "
        f"WHERE snapshot_id = {second}"
    )[0][0]
    assert count(f"rest_eu.{table} TIMESTAMP AS OF '{moment}'") == 60


def test_engines_read_all_tables_as_of_a_commit_or_time_of_main(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "then", 2)
    world.sync()
    main = world.catalog.reference("main").hash
    before = ask(world.spark, f"rest_eu.{table}").rows
    moment = next(iter(world.catalog.history(f"main@{main}", operations=False))).commit_time
    world.sql(f"INSERT INTO main_us.{table} VALUES (500, 'later')")
    world.sql(f"ALTER TABLE main_us.{table} DROP COLUMN name")
    world.sync()
    for name, version in (("by_hash", f"main@{main}"), ("by_time", f"main@{moment.isoformat()}")):
        address.add_to_spark(f"then_{name}", version)
        with world.dark("us"):
            served = ask(world.spark, f"then_{name}.{table}")
            assert served.rows == before
            assert ask_pyiceberg(address.pyiceberg(version).load_table(table)) == data_rows(served)
    with pytest.raises(Exception, match="not support endpoint"):
        address.pyiceberg(f"main@{main}").drop_table(table)
    assert len(ask(world.spark, f"rest_eu.{table}").rows) == len(before) + 1


def test_a_client_that_wants_refs_alone_gets_those_snapshots(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "refs", 2)
    world.sync()
    name = table.partition(".")[2]
    all_of_it = address.get(f"namespaces/{ns}/tables/{name}")
    refs = address.get(f"namespaces/{ns}/tables/{name}?snapshots=refs")
    assert len(all_of_it.json()["metadata"]["snapshots"]) == 4
    assert len(refs.json()["metadata"]["snapshots"]) == 3
    known = {"If-None-Match": all_of_it.headers["etag"]}
    assert address.get(f"namespaces/{ns}/tables/{name}", **known).status_code == 304
    world.sql(f"INSERT INTO main_us.{table} VALUES (99, 'new')")
    world.sync()
    newer = address.get(f"namespaces/{ns}/tables/{name}", **known)
    assert newer.status_code == 200 and len(newer.json()["metadata"]["snapshots"]) == 5


def test_views_are_read(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "of_view", 2)
    world.sql("USE main_us")
    world.sql(f"CREATE VIEW main_us.{ns}.v AS SELECT count(*) AS n FROM {ns}.of_view")
    try:
        world.sync()
        with world.dark("us"):
            world.sql("USE rest_eu")
            assert world.sql(f"SELECT n FROM rest_eu.{ns}.v") == [(40,)]
            assert [row[1] for row in world.sql(f"SHOW VIEWS IN rest_eu.{ns}")] == ["v"]
        assert address.pyiceberg().list_views(ns) == [(ns, "v")]
        assert table
    finally:
        world.sql("USE spark_catalog")
        world.sql(f"DROP VIEW main_us.{ns}.v")


def test_namespaces_with_odd_names(address: Address, ns: str) -> None:
    world = address.world
    make(world, "plain", 1)
    odd = "a.b/ä +%2F 木"
    head = world.catalog.reference("main").hash
    keys: list[Key] = [(ns, odd), (ns, odd, odd)]
    table = world.content((ns, "plain"))
    operations = [
        Put(keys[0], namespace_content(keys[0])),
        Put(keys[1], namespace_content(keys[1])),
        Put((*keys[1], odd), table.with_id(None)),
    ]
    world.catalog.commit("main", head, operations, "odd names")
    try:
        world.sync()
        catalog = address.pyiceberg()
        assert (ns,) in catalog.list_namespaces()
        assert catalog.list_namespaces((ns,)) == [keys[0]]
        assert catalog.list_namespaces(keys[0]) == [keys[1]]
        assert catalog.list_tables(keys[1]) == [(*keys[1], odd)]
        assert catalog.namespace_exists(keys[1]) and catalog.table_exists((*keys[1], odd))
        assert len(catalog.load_table((*keys[1], odd)).scan().to_arrow()) == 60
        path = ".".join(f"`{level}`" for level in (*keys[1], odd))
        assert world.sql(f"SELECT count(*) FROM rest_eu.{path}") == [(60,)]
        path = ".".join(f"`{level}`" for level in keys[1])
        assert [row[1] for row in world.sql(f"SHOW TABLES IN rest_eu.{path}")] == [odd]
    finally:
        head = world.catalog.reference("main").hash
        world.catalog.commit("main", head, [Delete((*keys[1], odd)), Delete(keys[1])], "odd names")
        head = world.catalog.reference("main").hash
        world.catalog.commit("main", head, [Delete(keys[0])], "odd names")


def test_a_table_that_is_held_is_served_at_its_last_good_version(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "held", 2)
    world.sync()
    before = address.get(f"namespaces/{ns}/tables/held").json()["metadata-location"]
    key = (ns, "held")
    broken = world.content(key).with_metadata_location(f"{world.stage.warehouse('us')}/gone.metadata.json")
    world.catalog.commit("main", world.catalog.reference("main").hash, [Put(key, broken)], "a fault")
    try:
        report = world.sync()
        assert [held.key for held in report.held] == [table]
        assert address.get(f"namespaces/{ns}/tables/held").json()["metadata-location"] == before
        assert len(address.pyiceberg().load_table(table).scan().to_arrow()) == 40
    finally:
        world.catalog.commit("main", world.catalog.reference("main").hash, [Delete(key)], "mended")
