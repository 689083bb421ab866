"""DuckDB with its own extension, unmodified, writes by eu's address: to tables of us, and to those of eu.

It puts a delete file into the folder of the data file, which for a table of another region is in the replica. So it
deletes such rows in its own region alone. Of format version 3 it deletes none: its delete manifests have row ids, which
the specification has for data alone.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rest_catalog.comparison import make
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, compare
from tests.support import duckdb_statements
from tests.support.foreign_readers import engines_python
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World

NAMESPACE = "rest_duckdb"
_ROW_IDS = "a manifest of deletes with row ids"
Run = Callable[[str], list[list[Any]]]


@pytest.fixture(scope="module")
def duckdb(address: Address, settings: Callable[[str], str]) -> Run:
    """Runs a statement in a DuckDB of its own, and returns its rows."""
    endpoint = address.world.stage.endpoints["eu"]
    text = settings("duckdb").replace("<key>", endpoint.access_key).replace("<secret>", endpoint.secret_key)
    # Its extension is in a package, so that nothing has to be installed.
    attach = [part for part in text.split(";") if part.strip() and "INSTALL" not in part and "LOAD" not in part]

    def run(statement: str) -> list[list[Any]]:
        request = json.dumps({"statements": [*attach, statement]})
        command = [engines_python(), Path(duckdb_statements.__file__)]
        done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise RuntimeError(f"{statement}: {answer['error']}")
        rows: list[list[Any]] = answer["rows"]
        return rows

    return run


@pytest.mark.parametrize(("version", "refusal"), [(2, "below a replica root"), (3, _ROW_IDS)])
def test_duckdb_changes_rows_of_a_table_of_another_region(
    address: Address, ns: str, duckdb: Run, version: int, refusal: str
) -> None:
    world = address.world
    table = make(world, f"of_us_v{version}", version, namespace=ns)
    home = f"lake.{table}"
    assert duckdb(f"SELECT count(*) FROM {home}") == [[30]]
    duckdb(f"INSERT INTO {home} VALUES (100, 'eu'), (101, 'eu'), (102, 'eu')")
    before = compare(world, table)
    assert len(before) == 33
    for statement in (f"DELETE FROM {home} WHERE id % 3 = 0", f"UPDATE {home} SET name = 'changed' WHERE id = 1"):
        with pytest.raises(RuntimeError, match=refusal):
            duckdb(statement)
    assert compare(world, table) == before
    if version == 3:
        return
    duckdb(f"DELETE FROM {home} WHERE id = 100")
    duckdb(f"UPDATE {home} SET name = 'changed' WHERE id = 101")
    assert {row for row in compare(world, table) if row[0] > 99} == {(101, "changed"), (102, "eu")}


def test_duckdb_changes_rows_of_a_table_of_its_region(address: Address, ns: str, duckdb: Run) -> None:
    world = address.world
    table = make(world, "of_eu", 2, "eu", ns)
    home = f"lake.{table}"
    duckdb(f"INSERT INTO {home} VALUES (100, 'eu'), (101, 'eu')")
    assert len(compare(world, table, "eu")) == 32
    duckdb(f"DELETE FROM {home} WHERE id % 3 = 0")
    assert len(compare(world, table, "eu")) == 22
    duckdb(f"UPDATE {home} SET name = 'changed' WHERE id IN (1, 100)")
    assert [row[0] for row in compare(world, table, "eu") if row[1] == "changed"] == [1, 100]
    duckdb(
        f"MERGE INTO {home} AS t USING (VALUES (2, 'merged'), (200, 'new')) AS s(id, name) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    changed = {row for row in compare(world, table, "eu") if row[1] in ("merged", "new")}
    assert changed == {(2, "merged"), (200, "new")}


def test_duckdb_makes_and_drops_a_table(address: Address, ns: str, duckdb: Run) -> None:
    world = address.world
    duckdb(f"CREATE TABLE lake.{ns}.made AS SELECT range AS id, 'n' AS name FROM range(5)")
    assert len(compare(world, f"{ns}.made", "eu")) == 5
    duckdb(f"CREATE TABLE lake.{ns}.plain (id BIGINT, name VARCHAR)")
    duckdb(f"INSERT INTO lake.{ns}.plain VALUES (1, 'a')")
    assert compare(world, f"{ns}.plain", "eu") == [(1, "a")]
    for name in ("made", "plain"):
        duckdb(f"DROP TABLE lake.{ns}.{name}")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")}.isdisjoint({"made", "plain"})


def test_duckdb_reads_replicas_by_the_address(replicated: World, duckdb: Run) -> None:
    refused = {"flink_upsert": "INTERNAL Error"}
    assert_replicas_are_read(replicated, lambda table: duckdb(f"SELECT * FROM lake.{OTHERS}.{table}"), refused)
