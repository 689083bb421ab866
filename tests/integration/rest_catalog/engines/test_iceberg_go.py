"""iceberg-go, unmodified, writes by eu's address: to a table that was born in us, and to its own. It reads replicas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.rest_catalog.comparison import main_metadata, make
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, compare
from tests.support.engine_programs import EngineProgram, StatementError, iceberg_go, json_rows
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World, pyiceberg_properties

NAMESPACE = "rest_go"


@pytest.fixture(scope="module")
def go(address: Address) -> EngineProgram:
    return EngineProgram(iceberg_go(), address.url, pyiceberg_properties(address.world.stage.endpoints["eu"]))


@pytest.mark.parametrize("version", [2, 3])
def test_go_changes_rows_of_a_table_of_another_region(
    address: Address, ns: str, go: EngineProgram, version: int
) -> None:
    world = address.world
    table = make(world, f"v{version}", version, namespace=ns)
    first = world.snapshots(f"main_us.{table}")[-1]
    assert len(go.rows(table)) == 30
    go.run(table, "append", json_rows("go", 100, 101))
    assert len(compare(world, table)) == 32
    go.run(table, "delete", "1")
    assert len(compare(world, table)) == 31
    go.run(table, "delete", "100")
    assert len(compare(world, table)) == 30
    go.run(table, "overwrite", json_rows("go", 7))
    assert compare(world, table) == [(7, "go")]
    go.run(table, "rollback", str(first))
    assert len(compare(world, table)) == 30


def test_go_changes_the_table_itself(address: Address, ns: str, go: EngineProgram) -> None:
    world = address.world
    table = make(world, "columns", 2, namespace=ns)
    go.run(table, "set", "comment=from eu")
    go.run(table, "column", "more")
    go.run(table, "partition", "id")
    go.run(table, "append", json.dumps([{"id": 100, "name": "go", "more": 7}]))
    assert (100, "go", 7) in compare(world, table)
    document = main_metadata(world, table)
    assert document["properties"]["comment"] == "from eu"
    assert [field["transform"] for field in document["partition-specs"][-1]["fields"]] == ["bucket[4]"]


def test_go_makes_and_drops_a_table(address: Address, ns: str, go: EngineProgram) -> None:
    world = address.world
    go.run(f"{ns}.made", "create")
    go.run(f"{ns}.made", "append", json_rows("go", 1, 2))
    assert len(compare(world, f"{ns}.made", "eu")) == 2
    go.run(f"{ns}.seen", "create-view", f"SELECT id, name FROM rest_eu.{ns}.made WHERE id = 1")
    assert world.sql(f"SELECT * FROM rest_eu.{ns}.seen") == [(1, "go")]
    go.run(f"{ns}.seen", "drop-view")
    go.run(f"{ns}.made", "rename", "renamed")
    go.run(f"{ns}.renamed", "drop")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")}.isdisjoint({"made", "renamed"})


@pytest.mark.parametrize("region", ["us", "eu"])
def test_what_go_deletes_is_needed_by_nobody(address: Address, ns: str, go: EngineProgram, region: str) -> None:
    world = address.world
    table = make(world, f"kept_in_{region}", 2, region, ns)
    go.run(table, "append", json_rows("go", 100))
    go.run(table, "delete", "1")
    before = compare(world, table, region)
    history = world.history(f"main_us.{table}")
    with pytest.raises(StatementError, match="GC is disabled"):
        go.run(table, "expire")
    go.run(table, "orphans")
    world.sql(f"REFRESH TABLE main_us.{table}")
    assert world.history(f"main_us.{table}") == history
    assert compare(world, table, region) == before


_REFUSED = {
    "clickhouse_position": "manifest file's 'content' metadata is missing",
    # DuckDB writes the format's name in small letters.
    "duckdb_position": "only parquet format is implemented, got parquet",
}


def test_go_reads_replicas(replicated: World, go: EngineProgram) -> None:
    entries = replicated.replica()

    def read_file(table: str) -> list[list[Any]]:
        return go.rows(f"{OTHERS}.{table}", entries[f"{OTHERS}.{table}"].metadata_location or "")

    assert_replicas_are_read(replicated, read_file, _REFUSED)


def test_go_reads_replicas_by_the_address(replicated: World, go: EngineProgram) -> None:
    assert_replicas_are_read(replicated, lambda table: go.rows(f"{OTHERS}.{table}"), _REFUSED)
