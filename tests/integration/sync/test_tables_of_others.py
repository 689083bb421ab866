"""Tables that other writers wrote, replicated, and read by engines that nobody here wrote.

Each engine reads each table on `main`, and its replica while us is gone. Both are what the table's writer was told to
write. What an engine refuses it refuses on `main` in the same way, and stands in `REFUSED`, so that nothing is left out
in silence. Spark compares all snapshots, refs and metadata tables besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sterna.catalog.model import Content, Delete, Key, Put, namespace_content
from sterna.verify.run import Depth, verify
from tests.support.foreign_readers import READERS, Rows, rows_of
from tests.support.strangers import BUCKET, PREFIX, ReadersStore, Stranger, readers_store, strangers
from tests.support.world import World

NAMESPACE = "of_others"
TABLES = strangers()
_NO_EQUALITY = "PyIceberg does not yet support equality deletes"  # Polars asks PyIceberg for the plan
_ONE_FILE_EACH = "position delete file not limited to one data file"
# Engine and table → what it says instead of an answer.
REFUSED = {
    ("pyiceberg", "flink_upsert"): _NO_EQUALITY,
    ("pyiceberg", "go_equality"): _NO_EQUALITY,
    ("polars", "flink_upsert"): _NO_EQUALITY,
    ("polars", "go_equality"): _NO_EQUALITY,
    ("polars", "clickhouse_position"): _ONE_FILE_EACH,
    ("polars", "duckdb_position"): _ONE_FILE_EACH,
    ("polars", "go_position"): _ONE_FILE_EACH,
}
# Engine and table → the column that it misreads as null: iceberg-rust, ClickHouse's timestamps.
MISREAD = {("datafusion", "clickhouse_position"): 4}


@dataclass(frozen=True)
class Read:
    """What an engine said of each table on `main`, and of its replica with us gone."""

    main: dict[tuple[str, str], Rows | str]
    replica: dict[tuple[str, str], Rows | str]


@pytest.fixture(scope="module")
def registered(world: World) -> Iterator[World]:
    """The tables on `main`, their files where their metadata says, replicated to eu."""
    us = world.stage.endpoints["us"]
    assert us.folder is not None
    keys: list[Key] = [(NAMESPACE, table.name) for table in TABLES]
    for table in TABLES:
        for key, path in table.files.items():
            target = us.folder / BUCKET / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    puts = [Put(key, Content.of(table.content())) for key, table in zip(keys, TABLES, strict=True)]
    head = world.catalog.reference("main").hash
    head = world.catalog.commit(
        "main", head, [Put((NAMESPACE,), namespace_content((NAMESPACE,))), *puts], "register tables of others"
    )
    report = world.sync()
    assert not report.held, report.held
    yield world
    head = world.catalog.reference("main").hash
    world.catalog.commit("main", head, [*(Delete(key) for key in keys), Delete((NAMESPACE,))], "drop them")


@pytest.fixture(scope="module")
def read(registered: World, tmp_path_factory: pytest.TempPathFactory) -> Read:
    endpoints = registered.stage.endpoints
    us, eu = endpoints["us"].folder, endpoints["eu"].folder
    assert us is not None and eu is not None
    replica = registered.replica()
    replicas = {table.name: replica[f"{NAMESPACE}.{table.name}"].metadata_location or "" for table in TABLES}
    with readers_store(tmp_path_factory.mktemp("readers")) as store:
        store.fill(BUCKET, us / BUCKET, PREFIX)
        main = asked({table.name: table.location for table in TABLES}, store)
        store.remove(BUCKET)
        store.fill("eu-lake", eu / "eu-lake", "replica")
        with registered.dark("us"):
            return Read(main, asked(replicas, store))


def asked(locations: dict[str, str], store: ReadersStore) -> dict[tuple[str, str], Rows | str]:
    """Return each engine's rows of each table, or what it says instead."""
    said: dict[tuple[str, str], Rows | str] = {}
    for engine, reader in READERS.items():
        for table, location in locations.items():
            try:
                said[engine, table] = rows_of(reader(location, store.properties))
            except Exception as error:  # noqa: BLE001
                said[engine, table] = f"{type(error).__name__}: {error}"
    return said


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("engine", READERS)
def test_an_engine_reads_on_the_replica_what_it_reads_on_main(read: Read, engine: str, table: Stranger):
    main, replica = read.main[engine, table.name], read.replica[engine, table.name]
    refusal = REFUSED.get((engine, table.name))
    if refusal is not None:
        assert refusal in main
        assert refusal in replica
        return
    assert replica == main == without(table.rows, MISREAD.get((engine, table.name)))


def without(rows: Rows, column: int | None) -> Rows:
    """Return rows with null in one column."""
    return [[None if place == column else value for place, value in enumerate(row)] for row in rows]


def test_spark_and_verify_agree(registered: World):
    names = [f"{NAMESPACE}.{table.name}" for table in TABLES]
    registered.assert_equal(*names)
    with registered.context() as context:
        result = verify(context, Depth(deep=True), names)
    assert not result.findings, result.findings
