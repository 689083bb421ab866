"""Flink, unmodified, writes by eu's address: to a table that was born in us, and to its own. It reads replicas, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.rest_catalog import comparison
from tests.integration.rest_catalog.comparison import main_metadata, make
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, assert_replicas_are_whole, compare
from tests.support.servers.flink import Flink, start_flink
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World

NAMESPACE = "rest_flink"
_REPLICA = """
CREATE CATALOG replica WITH (
  'type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.nessie.NessieCatalog', 'uri' = '{uri}',
  'ref' = 'main_replica_eu', 'warehouse' = '{warehouse}', 'io-impl' = 'org.apache.iceberg.aws.s3.S3FileIO',
  {own}'s3.endpoint' = '{endpoint}', 's3.path-style-access' = 'true', 'client.region' = '{region}')
"""


@pytest.fixture(scope="module")
def flink(
    address: Address, settings: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flink]:
    stage = address.world.stage
    endpoint = stage.endpoints["eu"]
    own = f"'s3.access-key-id' = '{endpoint.access_key}',\n  's3.secret-access-key' = '{endpoint.secret_key}',\n"
    replica = _REPLICA.format(
        uri=stage.nessie.uri,
        warehouse=stage.warehouse("eu"),
        own=own,
        endpoint=endpoint.url,
        region=endpoint.region,
    )
    running = start_flink(tmp_path_factory.mktemp("flink"))
    try:
        running.sql(settings("flink").replace("WITH (\n", f"WITH (\n  {own}", 1).rstrip(";"))
        running.sql(replica)
        running.sql("USE CATALOG lake")
        yield running
    finally:
        running.stop()


def values_of(row: str) -> list[Any]:
    """Return a row that Flink shows as `+I[1, one, null]`, numbers as such."""
    texts = row.removeprefix("+I[").removesuffix("]").split(", ")
    return [None if text == "null" else int(text) if re.fullmatch(r"-?\d+", text) else text for text in texts]


def test_flink_appends_and_overwrites(address: Address, ns: str, flink: Flink) -> None:
    world = address.world
    table = make(world, "appended", 2, namespace=ns)
    assert len(flink.sql(f"SELECT * FROM {table}")) == 30
    flink.sql(f"INSERT INTO {table} VALUES (100, 'eu'), (101, 'eu')")
    assert len(compare(world, table)) == 32
    flink.sql(f"INSERT OVERWRITE {table} SELECT id, name FROM {table} WHERE id < 3")
    assert compare(world, table) == [(0, "n0"), (1, "n1"), (2, "n2")]
    flink.sql(f"ALTER TABLE {table} SET ('comment' = 'from eu')")
    flink.sql(f"ALTER TABLE {table} ADD (more INT)")
    assert compare(world, table) == [(0, "n0", None), (1, "n1", None), (2, "n2", None)]
    assert main_metadata(world, table)["properties"]["comment"] == "from eu"


def test_flink_makes_upserts_and_drops_its_own_table(address: Address, ns: str, flink: Flink) -> None:
    world = address.world
    table = f"{ns}.made"
    flink.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')"
    )
    flink.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    flink.sql(f"INSERT INTO {table} VALUES (2, 'changed'), (3, 'c')")
    # Not by PyIceberg, which reads no equality deletes.
    assert comparison.compare(world, table, "eu") == [(1, "a"), (2, "changed"), (3, "c")]
    assert_replicas_are_whole(world, table)
    flink.sql(f"CREATE TABLE {ns}.copied WITH ('format-version' = '2') AS SELECT id, name FROM {table}")
    assert len(compare(world, f"{ns}.copied", "eu")) == 3
    flink.sql(f"ALTER TABLE {table} RENAME TO renamed")
    flink.sql(f"DROP TABLE {ns}.renamed")
    flink.sql(f"DROP TABLE {ns}.copied")
    left = {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")}
    assert left.isdisjoint({"made", "renamed", "copied"})


@pytest.mark.parametrize("catalog", ["replica", "lake"])
def test_flink_reads_replicas(replicated: World, flink: Flink, catalog: str) -> None:
    def read(table: str) -> Iterator[list[Any]]:
        return map(values_of, flink.sql(f"SELECT * FROM {catalog}.{OTHERS}.{table}"))

    assert_replicas_are_read(replicated, read)
