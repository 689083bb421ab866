"""Row-level deletes of every kind: position deletes, equality deletes, deletion vectors.

Not one deleted row comes back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.replication.plan import sharded_listing
from tests.support.iceberg_java import (
    commit_rows,
    data_file,
    describe_anew,
    equality_deletes,
    load_table,
    position_deletes,
)
from tests.support.world import World, merge_on_read


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("deletes") as name:
        yield name


def make(world: World, name: str, version: int = 2, partition: str = "") -> str:
    """A table with rows 0 to 59.

    Two files in us's warehouse and two in eu's, whose order in a replica is another one than on main.
    """
    table = f"deletes.{name}"
    world.sql(
        f"CREATE TABLE main_us.{table} (id BIGINT, name STRING, part BIGINT) USING iceberg {partition} "
        f"{merge_on_read(version)}"
    )
    for start, region in ((0, "us"), (30, "eu")):
        alter(world, table, "write.data.path", f"{world.stage.warehouse(region)}/{name}-data")
        world.sql(f"INSERT INTO main_us.{table} SELECT id, concat('n', id), id % 2 FROM range({start}, {start + 30})")
    return table


def alter(world: World, table: str, key: str, value: str) -> None:
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('{key}'='{value}')")


def delete_formats(world: World, table: str) -> set[str]:
    """The formats of main's live delete files."""
    return {row[0] for row in world.sql(f"SELECT file_format FROM main_us.{table}.delete_files")}


def count(world: World, table: str) -> int:
    rows: int = world.sql(f"SELECT count(*) FROM main_us.{table}")[0][0]
    return rows


def expire(world: World, table: str) -> None:
    """Remove all snapshots but the current one, and the files that only they needed."""
    alter(world, table, "gc.enabled", "true")
    world.sql(f"CALL main_us.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)")


def test_spark_position_deletes_of_every_format_and_granularity(world: World, ns: str):
    table = make(world, "positions")
    for number, file_format in enumerate(("parquet", "orc", "avro")):
        alter(world, table, "write.delete.format.default", file_format)
        for granularity in ("file", "partition"):
            alter(world, table, "write.delete.granularity", granularity)
            first = number * 4 + (2 if granularity == "file" else 4)
            world.sql(f"DELETE FROM main_us.{table} WHERE id IN ({first}, {first + 1}, {first + 30}, {first + 31})")
        if file_format == "parquet":
            world.sync_and_compare(table, pyiceberg=True)
    assert delete_formats(world, table) == {"PARQUET", "ORC", "AVRO"}
    scopes = world.sql(
        f"SELECT delete_file_path, count(DISTINCT file_path) FROM main_us.{table}.position_deletes GROUP BY 1"
    )
    assert {row[1] for row in scopes} == {1, 2}, "deletes of one data file, and of many"
    world.sync_and_compare(table)


@pytest.mark.parametrize("region", ["eu", pytest.param("us", marks=pytest.mark.rare)])
def test_position_deletes_as_other_writers_describe_them(world: World, ns: str, region: str):
    """With and without `referenced_data_file` (143); bounds of the path exact, truncated and absent.

    Of one data file and of many.
    """
    table = make(world, f"described_{region}")
    loaded = load_table(world.spark, f"main_us.{table}")
    paths = sorted(row[0] for row in world.sql(f"SELECT file_path FROM main_us.{table}.data_files"))
    truncated = (paths[0][:16], paths[-1][:15] + "~")
    for start, file_format in enumerate(("PARQUET", "ORC", "AVRO")):
        deletes = []
        for number, (referenced, bounds) in enumerate(
            ((True, None), (False, "exact"), (True, "exact"), (False, "truncated"), (False, None))
        ):
            path = paths[number % len(paths)]
            rows = (
                [(path, start * 5 + number)]
                if referenced or bounds == "exact"
                else [(path, start * 5 + number) for path in paths]
            )
            file = position_deletes(world.spark, loaded, rows, file_format=file_format)
            described = {"exact": (path, path), "truncated": truncated, None: None}[bounds]
            deletes.append(
                describe_anew(world.spark, loaded, file, referenced=path if referenced else None, path_bounds=described)
            )
        commit_rows(loaded, deletes=deletes)
    assert count(world, table) == 60 - 3 * (3 + 2 * 4), "the test needs deletes that main itself applies"
    world.sync_and_compare(table, region=region)


def test_flinks_upserts(world: World, ns: str):
    """Data, equality deletes and position deletes of rows of the same commit, all in one commit."""
    tables = [make(world, "upserted"), make(world, "upserted_partitioned", partition="PARTITIONED BY (part)")]
    for number, file_format in enumerate(("PARQUET", "ORC", "AVRO")):
        for table, partition in zip(tables, ("", "part=0"), strict=True):
            upsert(world, table, [number * 2, 30 + number * 2, 1000 + number], file_format, partition)
        if number == 0:
            world.sync_and_compare(*tables)
    for table in tables:
        assert count(world, table) == 60 + 3
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (0, 31, 1001)")
    world.sync_and_compare(*tables)


def upsert(world: World, table: str, ids: list[int], file_format: str, partition: str) -> None:
    loaded = load_table(world.spark, f"main_us.{table}")
    options = {"file_format": file_format, "partition": partition}
    # The first key changes twice within the commit.
    rows = [{"id": key, "name": f"upserted {turn}", "part": 0} for turn, key in enumerate([ids[0], *ids])]
    data = data_file(world.spark, loaded, rows, **options)
    twice = position_deletes(world.spark, loaded, [(data.location(), 0)], **options)
    before = equality_deletes(world.spark, loaded, ["id"], [{"id": key} for key in ids], **options)
    commit_rows(loaded, data=[data], deletes=[twice, before])


@pytest.mark.parametrize("is_upgraded", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_deletion_vectors(world: World, ns: str, is_upgraded: bool):
    table = make(world, "upgraded") if is_upgraded else make(world, "born_v3", 3)
    if is_upgraded:
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (7, 37)")
        alter(world, table, "format-version", "3")
    world.sql(f"DELETE FROM main_us.{table} WHERE id % 15 = 3")
    world.sync_and_compare(table, pyiceberg=True)
    if is_upgraded:
        assert delete_formats(world, table) == {"PUFFIN"}, "old position deletes are merged into vectors"
        world.sql(f"UPDATE main_us.{table} SET name = 'updated' WHERE id IN (5, 35)")
    else:
        vectors, puffins = world.sql(f"SELECT count(*), count(DISTINCT file_path) FROM main_us.{table}.delete_files")[0]
        assert vectors == 4 > puffins, "several vectors in one file"
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (4, 34)")
    world.sync_and_compare(table)
    world.sql(f"CALL main_us.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    world.sync_and_compare(table)


def test_position_deletes_beside_vectors_in_one_table(world: World, ns: str):
    """Position deletes from before an upgrade stay where no vector replaces them."""
    table = make(world, "mixed")
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (7, 37)")
    alter(world, table, "format-version", "3")
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (8, 59)")
    assert delete_formats(world, table) == {"PARQUET", "PUFFIN"}
    world.sync_and_compare(table)


@pytest.mark.rare
def test_tables_with_deletes_that_are_listed_in_parts(world: World, ns: str, monkeypatch: pytest.MonkeyPatch):
    """Equality deletes, position deletes and vectors beside data files, in a new table and in one that is here."""
    monkeypatch.setattr(
        sharded_listing, "LIMITS", sharded_listing.ShardingLimits(min_manifests=1, max_group_manifests=1)
    )
    mixed, upserted = make(world, "parts_mixed"), make(world, "parts_upserted", partition="PARTITIONED BY (part)")
    world.sql(f"DELETE FROM main_us.{mixed} WHERE id IN (7, 37)")
    alter(world, mixed, "format-version", "3")
    world.sql(f"DELETE FROM main_us.{mixed} WHERE id IN (8, 59)")
    upsert(world, upserted, [2, 32, 1000], "PARQUET", "part=0")
    world.sync_and_compare(mixed, upserted)
    lines = [line for line in world.lines if "in parts" in line]
    assert len(lines) == 2, world.lines
    for table in (mixed, upserted):
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (9, 39)")
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (10, 40)")
    world.sync_and_compare(mixed, upserted)
    lines = [line for line in world.lines if "in parts" in line]
    assert len(lines) == 2, world.lines


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.rare), 3])
def test_entries_of_deletes_that_are_gone_already(world: World, ns: str, version: int):
    """Compaction leaves DELETED entries, and expiry takes away the files they name, before anything was copied."""
    tables = [make(world, f"{name}_v{version}", version) for name in ("rewritten", "compacted")]
    for table in tables:
        for key in (3, 4):
            world.sql(f"DELETE FROM main_us.{table} WHERE id IN ({key}, {key + 30})")
    world.sql(
        f"CALL main_us.system.rewrite_position_delete_files(table => '{tables[0]}', options => map('rewrite-all', "
        "'true'))"
    )
    options = "'rewrite-all', 'true', 'remove-dangling-deletes', 'true'"
    world.sql(f"CALL main_us.system.rewrite_data_files(table => '{tables[1]}', options => map({options}))")
    for table in tables:
        expire(world, table)
        statuses = world.sql(f"SELECT count(*) FROM main_us.{table}.entries WHERE status = 2 AND data_file.content = 1")
        assert statuses[0][0] > 0, "the test needs DELETED entries of delete files"
    world.sync_and_compare(*tables)
    for table in tables:
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (9, 39)")
    world.sync_and_compare(*tables)
