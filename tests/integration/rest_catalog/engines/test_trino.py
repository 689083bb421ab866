"""Trino, unmodified, writes by eu's address: to a table that was born in us, and to its own. It reads replicas, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.rest_catalog.comparison import main_metadata, make, rows
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, compare
from tests.support.servers.trino import Trino, TrinoError, start_trino
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World

NAMESPACE = "rest_trino"


@pytest.fixture(scope="module")
def trino(
    address: Address, settings: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trino]:
    stage = address.world.stage
    endpoint = stage.endpoints["eu"]
    keys = f"s3.aws-access-key={endpoint.access_key}\ns3.aws-secret-key={endpoint.secret_key}\n"
    retention = "iceberg.remove-orphan-files.min-retention=0s\niceberg.expire-snapshots.min-retention=0s\n"
    replica = (
        f"connector.name=iceberg\niceberg.catalog.type=nessie\niceberg.nessie-catalog.uri={stage.nessie.uri}\n"
        "iceberg.nessie-catalog.ref=main_replica_eu\niceberg.security=read_only\n"
        f"iceberg.nessie-catalog.default-warehouse-dir={stage.warehouse('eu')}\nfs.native-s3.enabled=true\n"
        f"s3.endpoint={endpoint.url}\ns3.region={endpoint.region}\ns3.path-style-access=true\n{keys}"
    )
    catalogs = {"lake": f"{settings('trino')}\n{keys}{retention}", "replica": replica}
    server = start_trino(tmp_path_factory.mktemp("trino"), catalogs)
    yield server
    server.process.stop()


def test_trino_changes_rows_of_a_table_of_another_region(address: Address, ns: str, trino: Trino) -> None:
    world = address.world
    table = make(world, "rows", 2, namespace=ns)
    assert trino.sql(f"SELECT count(*) FROM {table}") == [(30,)]
    trino.sql(f"INSERT INTO {table} VALUES (100, 'eu'), (101, 'eu')")
    assert len(compare(world, table)) == 32
    trino.sql(f"DELETE FROM {table} WHERE id % 3 = 0")
    assert len(compare(world, table)) == 22
    trino.sql(f"UPDATE {table} SET name = 'changed' WHERE id IN (1, 100)")
    assert [row[0] for row in compare(world, table) if row[1] == "changed"] == [1, 100]
    trino.sql(
        f"MERGE INTO {table} t USING (VALUES (2, 'merged'), (200, 'new')) AS s(id, name) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    assert {row for row in compare(world, table) if row[1] in ("merged", "new")} == {(2, "merged"), (200, "new")}
    trino.sql(f"DELETE FROM {table}")
    assert compare(world, table) == []
    snapshots = trino.sql(f'SELECT snapshot_id FROM "{table.replace(".", chr(34) + "." + chr(34))}$snapshots"')
    assert len(snapshots) == len(world.snapshots(f"main_us.{table}"))


def test_trino_changes_the_table_itself(address: Address, ns: str, trino: Trino) -> None:
    world = address.world
    table = make(world, "columns", 2, namespace=ns)
    first = world.snapshots(f"main_us.{table}")[-1]
    for statement in (
        f"ALTER TABLE {table} ADD COLUMN more integer",
        f"ALTER TABLE {table} ALTER COLUMN more SET DATA TYPE bigint",
        f"ALTER TABLE {table} RENAME COLUMN name TO title",
        f"ALTER TABLE {table} SET PROPERTIES partitioning = ARRAY['bucket(id, 4)'], sorted_by = ARRAY['title']",
        f"COMMENT ON TABLE {table} IS 'from eu'",
        f"COMMENT ON COLUMN {table}.title IS 'of a row'",
        f"INSERT INTO {table} VALUES (100, 'eu', 7)",
        f"ANALYZE {table}",
        f"ALTER TABLE {table} DROP COLUMN more",
    ):
        trino.sql(statement)
    assert (100, "eu") in compare(world, table)
    document = main_metadata(world, table)
    assert document["properties"]["comment"] == "from eu"
    assert [field["transform"] for field in document["partition-specs"][-1]["fields"]] == ["bucket[4]"]
    assert document["statistics"] and document["sort-orders"][-1]["fields"]
    trino.sql(f"ALTER TABLE {table} EXECUTE rollback_to_snapshot({first})")
    assert len(compare(world, table)) == 30
    with pytest.raises(TrinoError, match="compacted in the region"):
        trino.sql(f"ALTER TABLE {table} EXECUTE optimize")
    assert len(compare(world, table)) == 30


def test_trino_makes_compacts_and_drops_its_own_table(address: Address, ns: str, trino: Trino) -> None:
    world = address.world
    table = f"{ns}.made"
    trino.sql(f"CREATE TABLE {ns}.plain (id bigint, name varchar)")
    trino.sql(f"INSERT INTO {ns}.plain SELECT id, 'n' FROM UNNEST(sequence(1, 5)) AS t(id)")
    assert len(compare(world, f"{ns}.plain", "eu")) == 5
    trino.sql(f"CREATE TABLE {table} AS SELECT * FROM {ns}.plain WHERE id < 4")
    trino.sql(f"INSERT INTO {table} VALUES (100, 'x')")
    trino.sql(f"ALTER TABLE {table} EXECUTE optimize")
    assert len(world.sql(f"SELECT * FROM main_eu.{table}.files")) == 1
    assert len(compare(world, table, "eu")) == 4
    trino.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT id FROM {ns}.plain WHERE id = 1")
    assert compare(world, table, "eu") == [(1,)]
    trino.sql(f"ALTER TABLE {table} RENAME TO {ns}.renamed")
    trino.sql(f"CREATE VIEW {ns}.seen AS SELECT id FROM {ns}.renamed")
    assert trino.sql(f"SELECT * FROM {ns}.seen") == [(1,)]
    trino.sql(f"DROP VIEW {ns}.seen")
    for name in ("renamed", "plain"):
        trino.sql(f"DROP TABLE {ns}.{name}")
    assert {row[1] for row in world.sql(f"SHOW TABLES IN main_eu.{ns}")}.isdisjoint({"made", "renamed", "plain"})


@pytest.mark.parametrize("region", ["us", "eu"])
def test_what_trino_deletes_is_needed_by_nobody(address: Address, ns: str, trino: Trino, region: str) -> None:
    world = address.world
    table = make(world, f"kept_in_{region}", 2, region, ns)
    trino.sql(f"INSERT INTO {table} VALUES (100, 'eu')")
    trino.sql(f"DELETE FROM {table} WHERE id = 1")
    before = compare(world, table, region)
    history = world.history(f"main_us.{table}")
    with pytest.raises(TrinoError, match="GC is disabled"):
        trino.sql(f"ALTER TABLE {table} EXECUTE expire_snapshots(retention_threshold => '0s')")
    trino.sql(f"ALTER TABLE {table} EXECUTE remove_orphan_files(retention_threshold => '0s')")
    world.sql(f"REFRESH TABLE main_us.{table}")
    assert world.history(f"main_us.{table}") == history
    assert rows(world, f"rest_eu.{table}") == compare(world, table, region) == before


_NO_VECTORS = {"spark_vectors": "Unexpected PUFFIN file format"}


@pytest.mark.parametrize("catalog", ["replica", "lake"])
def test_trino_reads_replicas(replicated: World, trino: Trino, catalog: str) -> None:
    sql = f"SELECT * FROM {catalog}.{OTHERS}"
    assert_replicas_are_read(replicated, lambda table: trino.sql(f"{sql}.{table}"), _NO_VECTORS)
