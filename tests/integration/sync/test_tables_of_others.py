"""Tables that other writers wrote, replicated, and read by engines that nobody here wrote.

Each engine reads each table on `main`, and its replica while us is gone. Both are what the table's writer was told to
write. What an engine refuses it refuses on `main` in the same way, and stands in `REFUSED`, so that nothing is left out
in silence. Spark compares all snapshots, refs and metadata tables besides.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sterna.replication.verify.run import Depth, verify
from tests.support import wheel_engines
from tests.support.foreign_readers import READERS, Rows, engines_python, rows_of
from tests.support.replica_paths import localized_path
from tests.support.strangers import (
    BUCKET,
    NAMESPACE,
    PREFIX,
    ReadersStore,
    Stranger,
    readers_store,
    replicated_strangers,
    strangers,
    without,
)
from tests.support.world import World

TABLES = strangers()
_NO_EQUALITY = "PyIceberg does not yet support equality deletes"  # Polars asks PyIceberg for the plan
_ONE_FILE_PER_DELETE = "position delete file not limited to one data file"
# Engine and table → what it says instead of an answer.
REFUSED = {
    ("pyiceberg", "flink_upsert"): _NO_EQUALITY,
    ("pyiceberg", "go_equality"): _NO_EQUALITY,
    ("polars", "flink_upsert"): _NO_EQUALITY,
    ("polars", "go_equality"): _NO_EQUALITY,
    ("polars", "clickhouse_position"): _ONE_FILE_PER_DELETE,
    ("polars", "duckdb_position"): _ONE_FILE_PER_DELETE,
    ("polars", "go_position"): _ONE_FILE_PER_DELETE,
    ("clickhouse", "spark_vectors"): "Position deletes are supported only for parquet format",
    ("duckdb", "flink_upsert"): "INTERNAL Error: Expected vector of type INT32, but found vector of type INT64",
}
# Engine → why it reads no replica at all: ClickHouse follows no file beside the table's location (its PR 90740, open).
NO_REPLICAS = {"clickhouse": "IcebergPathResolver::resolve failed"}
# Engine and table → the column that it misreads as null: iceberg-rust, ClickHouse's timestamps.
MISREAD = {("datafusion", "clickhouse_position"): 4}


Answers = dict[tuple[str, str], Rows | str]
"""By engine and table: its rows, or what the engine says instead."""


@dataclass(frozen=True)
class Read:
    """What an engine said of each table on `main`, and of its replica with us gone."""

    main: Answers
    replica: Answers


@pytest.fixture(scope="module")
def registered(world: World) -> Iterator[World]:
    """The tables on `main`, replicated to eu."""
    with replicated_strangers(world):
        yield world


@pytest.fixture(scope="module")
def read(registered: World, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return read_both(registered, tmp_path_factory.mktemp("readers"), read_by_engines)


def read_both(world: World, folder: Path, read_tables: Callable[[dict[str, str], ReadersStore], Answers]) -> Read:
    """Ask engines about the tables on `main`, then about their replicas in a store that has nothing of us."""
    us, eu = world.stage.endpoints["us"].folder, world.stage.endpoints["eu"].folder
    assert us is not None and eu is not None
    replica = world.replica()
    replicas = {table.name: replica[f"{NAMESPACE}.{table.name}"].metadata_location or "" for table in TABLES}
    with readers_store(folder) as store:
        store.fill(BUCKET, us / BUCKET, PREFIX)
        main = read_tables({table.name: table.location for table in TABLES}, store)
        store.remove(BUCKET)
        # Not the whole replica: other tests have thousands of files in it.
        store.fill(
            "eu-lake", eu / "eu-lake", *(f"replica/{part}{BUCKET}/{PREFIX}" for part in ("", localized_path("")))
        )
        with world.dark("us"):
            return Read(main, read_tables(replicas, store))


def read_by_engines(locations: dict[str, str], store: ReadersStore) -> Answers:
    """Return each engine's rows of each table, or what it says instead."""
    answers: Answers = {}
    for engine, reader in READERS.items():
        for table, location in locations.items():
            try:
                answers[engine, table] = rows_of(reader(location, store.properties))
            except Exception as error:  # noqa: BLE001
                answers[engine, table] = f"{type(error).__name__}: {error}"
    return answers


def read_by_other_environment(locations: dict[str, str], store: ReadersStore) -> Answers:
    """As `asked`, of the engines in an environment of their own."""
    question = json.dumps({"store": store.properties, "locations": locations})
    command = [engines_python(), Path(wheel_engines.__file__)]
    answer = subprocess.run(command, input=question, capture_output=True, text=True, check=True, timeout=300).stdout
    return {
        (engine, table): table_rows
        for engine, tables in json.loads(answer).items()
        for table, table_rows in tables.items()
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("engine", READERS)
def test_an_engine_reads_on_the_replica_what_it_reads_on_main(read: Read, engine: str, table: Stranger):
    assert_agreement(read, engine, table)


@pytest.mark.rare
def test_engines_of_another_environment(registered: World, tmp_path: Path):
    read = read_both(registered, tmp_path, read_by_other_environment)
    for engine in ("clickhouse", "duckdb"):
        for table in TABLES:
            assert_agreement(read, engine, table)


def assert_agreement(read: Read, engine: str, table: Stranger) -> None:
    """An engine reads what was written, on `main` and on the replica; or it says on both what stands in `REFUSED`."""
    main, replica = read.main[engine, table.name], read.replica[engine, table.name]
    refusal, expected = REFUSED.get((engine, table.name)), without(table.rows, MISREAD.get((engine, table.name)))
    if refusal is None:
        assert main == expected
    else:
        assert refusal in main
    if refusal is None and engine not in NO_REPLICAS:
        assert replica == expected
    else:
        assert NO_REPLICAS.get(engine, refusal) in replica


def test_spark_and_verify_agree(registered: World):
    names = [f"{NAMESPACE}.{table.name}" for table in TABLES]
    registered.assert_equal(*names)
    with registered.context() as context:
        result = verify(context, Depth(deep=True), names)
    assert not result.findings, result.findings
