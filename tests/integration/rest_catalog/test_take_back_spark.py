"""What a real Spark writes against the region's view of a table, and that `main` gets it by its own names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.rest_catalog.near_spark import NearSpark, near_spark
from tests.support.world import World, merge_on_read

STATEMENTS = (
    "INSERT INTO {table} VALUES (1000, 'k1'), (1001, 'k9')",
    "DELETE FROM {table} WHERE id % 10 = 3",
    "UPDATE {table} SET k = 'u' WHERE id IN (1, 2)",
    "MERGE INTO {table} t USING (SELECT 1000L AS id UNION SELECT 4L AS id) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET k = 'm' WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.id, 'n')",
    "DELETE FROM {table} WHERE id % 10 = 4",
    "CALL {catalog}.system.rewrite_manifests(table => '{name}', use_caching => false)",
    "CALL {catalog}.system.rewrite_position_delete_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "INSERT OVERWRITE {table} SELECT id, k FROM {table} WHERE id % 2 = 0",
)


@pytest.fixture(scope="module")
def near(world: World) -> Iterator[NearSpark]:
    with world.namespace("takeback"), near_spark(world) as client:
        yield client


def named_below(world: World, table: str, root: str) -> list[str]:
    """The files below a folder that a table's snapshots on `main` name."""
    queries = (
        "SELECT path FROM {}.all_manifests",
        "SELECT file_path FROM {}.all_files",
        "SELECT data_file.file_path FROM {}.all_entries",
        "SELECT data_file.referenced_data_file FROM {}.all_entries",
        "SELECT manifest_list FROM {}.snapshots",
        "SELECT file_path FROM {}.position_deletes",
    )
    uris = {row[0] for query in queries for row in world.sql(query.format(f"main_us.{table}")) if row[0]}
    return sorted(uri for uri in uris if uri.startswith(root))


@pytest.mark.rare
@pytest.mark.parametrize(("version", "partition"), [(2, "PARTITIONED BY (truncate(k, 1))"), (3, "")])
def test_statements_of_spark_reach_main(world: World, near: NearSpark, version: int, partition: str) -> None:
    name = f"takeback.v{version}"
    world.sql(f"CREATE TABLE main_us.{name} (id BIGINT, k STRING) USING iceberg {partition} {merge_on_read(version)}")
    for start in (0, 50):
        world.sql(f"INSERT INTO main_us.{name} SELECT id, concat('k', id % 3) FROM range({start}, {start + 50})")
    world.sql(f"DELETE FROM main_us.{name} WHERE id = 5")
    assert world.sync().held == ()
    expected = {row[0]: row[1] for row in world.sql(f"SELECT id, k FROM main_us.{name}")}
    assert len(expected) == 99
    for statement in STATEMENTS:
        near.run(name, statement)
        report = world.sync()
        assert report.held == (), (statement, report.held)
        answers = [sorted(world.sql(f"SELECT id, k FROM {catalog}.{name}")) for catalog in ("main_us", "replica_eu")]
        assert answers[0] == answers[1], statement
        assert not named_below(world, name, world.context().region.replica_root), statement
    rows = dict(world.sql(f"SELECT id, k FROM main_us.{name}"))
    assert rows == {
        id: "m" if id == 1000 else "u" if id == 2 else f"k{id % 3}"
        for id in (*range(0, 100, 2), 1000)
        if id % 10 != 4 and id != 5
    }
    world.assert_equal(name)
