"""iceberg-rust, unmodified, writes by eu's address: to tables born in us, and to its own. It reads replicas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.rest_catalog.comparison import main_metadata, make
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, compare
from tests.support.engine_programs import EngineProgram, StatementError, iceberg_rust, json_rows
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World, pyiceberg_properties

NAMESPACE = "rest_rust"


@pytest.fixture(scope="module")
def rust(address: Address) -> EngineProgram:
    store = pyiceberg_properties(address.world.stage.endpoints["eu"])
    return EngineProgram(iceberg_rust(), address.url, {**store, "s3.path-style-access": "true"})


@pytest.mark.parametrize("version", [2, 3])
def test_rust_appends_to_a_table_of_another_region(
    address: Address, ns: str, rust: EngineProgram, version: int
) -> None:
    world = address.world
    table = make(world, f"v{version}", version, namespace=ns)
    assert len(rust.rows(table)) == 30
    for count in (32, 34):
        rust.run(table, "append", json_rows("rust", count, count + 1))
        assert len(compare(world, table)) == count
    assert {row[0] for row in compare(world, table) if row[1] == "rust"} == {32, 33, 34, 35}
    assert sorted(rust.rows(table)) == sorted(map(list, compare(world, table)))


def test_rust_changes_the_table_itself(address: Address, ns: str, rust: EngineProgram) -> None:
    world = address.world
    table = make(world, "columns", 2, namespace=ns)
    rust.run(table, "set", "comment=from eu")
    rust.run(table, "column", "more")
    rust.run(table, "append", json.dumps([{"id": 100, "name": "rust", "more": 7}]))
    assert (100, "rust", 7) in compare(world, table)
    assert main_metadata(world, table)["properties"]["comment"] == "from eu"


def test_rust_makes_and_drops_a_table(address: Address, ns: str, rust: EngineProgram) -> None:
    world = address.world
    rust.run(f"{ns}.made", "create")
    rust.run(f"{ns}.made", "append", json_rows("rust", 1, 2))
    assert compare(world, f"{ns}.made", "eu") == [(1, "rust"), (2, "rust")]
    rust.run(f"{ns}.made", "rename", "renamed")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")} & {"made", "renamed"} == {"renamed"}
    rust.run(f"{ns}.renamed", "drop")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")}.isdisjoint({"made", "renamed"})


@pytest.mark.parametrize("region", ["us", "eu"])
def test_what_rust_expires_is_needed_by_nobody(address: Address, ns: str, rust: EngineProgram, region: str) -> None:
    world = address.world
    table = make(world, f"kept_in_{region}", 2, region, ns)
    rust.run(table, "append", json_rows("rust", 100))
    before = compare(world, table, region)
    history = world.history(f"main_us.{table}")
    with pytest.raises(StatementError, match=r"gc\.enabled is false"):
        rust.run(table, "expire")
    world.sql(f"REFRESH TABLE main_us.{table}")
    assert world.history(f"main_us.{table}") == history
    assert compare(world, table, region) == before


_REFUSED = {"spark_vectors": "Corrupt footer"}
# ClickHouse's timestamps come as null.
_MISREAD = {"clickhouse_position": 4}


def test_rust_reads_replicas(replicated: World, rust: EngineProgram) -> None:
    entries = replicated.replica()

    def read_file(table: str) -> list[list[Any]]:
        return rust.rows(f"{OTHERS}.{table}", entries[f"{OTHERS}.{table}"].metadata_location or "")

    assert_replicas_are_read(replicated, read_file, _REFUSED, _MISREAD)


def test_rust_reads_replicas_by_the_address(replicated: World, rust: EngineProgram) -> None:
    assert_replicas_are_read(replicated, lambda table: rust.rows(f"{OTHERS}.{table}"), _REFUSED, _MISREAD)
