"""Several writers of one table at once, by the recipe of `docs/writers.md`: each acknowledged commit is there.

And what is lost without the recipe, so that we hear of it when the catalog or PyIceberg has been mended.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError, ValidationException

from sterna.demo import nyc
from tests.support.world import World

WRITERS = 3
SCHEMA = pa.schema([("id", pa.int64())])
_WRITERS_PAGE = Path(__file__).parents[3] / "docs" / "writers.md"


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("at_once") as name:
        yield name


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("writer_rounds"))


@pytest.fixture(scope="module")
def catalogs(world: World) -> list[Catalog]:
    """PyIceberg's view of main, one for each writer."""
    settings = {"uri": f"{world.stage.nessie.iceberg_uri}/main", **world.stage.endpoints["us"].pyiceberg_properties()}
    return [load_catalog("main", type="rest", warehouse="us", **settings) for _ in range(WRITERS)]


@pytest.fixture(scope="module")
def recipe() -> SimpleNamespace:
    """What `docs/writers.md` has people write."""
    (code,) = re.findall(r"^(import random$.*?)^files = ", _WRITERS_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    module_globals: dict[str, object] = {}
    exec(code, module_globals)
    return SimpleNamespace(**module_globals)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def run_concurrently(work: Callable[[int], object]) -> list[int]:
    """Let all writers begin together, and return the numbers of those that were told they had written."""
    begin = threading.Barrier(WRITERS)

    def one(number: int) -> bool:
        begin.wait()
        try:
            work(number)
        except (CommitFailedException, ValidationException):
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        return [number for number, succeeded in enumerate(pool.map(one, range(WRITERS))) if succeeded]


def ids(catalog: Catalog, table: str) -> list[int]:
    return sorted(catalog.load_table(table).scan().to_arrow()["id"].to_pylist())


ALL = list(range(WRITERS))


def test_pyiceberg_writers_of_a_new_table(
    ns: str, catalogs: list[Catalog], recipe: SimpleNamespace, rounds: int
) -> None:
    def write(table: str, number: int) -> None:
        with suppress(TableAlreadyExistsError):  # another writer was first
            recipe.create(catalogs[number], table, SCHEMA)
        recipe.commit(catalogs[number], table, lambda opened_table: opened_table.append(rows(number)))

    for round_ in range(rounds):
        table = f"{ns}.new_{round_}"
        assert run_concurrently(lambda number, table=table: write(table, number)) == ALL
        assert ids(catalogs[0], table) == ALL


def test_pyiceberg_writers_of_an_existing_table(
    world: World, ns: str, catalogs: list[Catalog], recipe: SimpleNamespace, rounds: int
) -> None:
    """With files that were written at home before, as that page has it."""
    table = f"{ns}.existing"
    world.sql(f"CREATE TABLE main_us.{table} USING iceberg AS SELECT -1L AS id")
    for round_ in range(rounds):
        files = [f"{world.stage.warehouse('us')}/incoming/{round_}-{number}.parquet" for number in ALL]
        for number, file in enumerate(files):
            nyc.write_region_file(world.stage.endpoints["us"], file, rows(round_ * WRITERS + number))

        def write(number: int, files: list[str] = files) -> None:
            recipe.commit(catalogs[number], table, lambda opened_table: opened_table.add_files([files[number]]))

        assert run_concurrently(write) == ALL
    assert ids(catalogs[0], table) == list(range(-1, rounds * WRITERS))


def test_pyiceberg_tells_the_losers_of_a_table_with_rows(ns: str, catalogs: list[Catalog], rounds: int) -> None:
    table = f"{ns}.told"
    catalogs[0].create_table(table, SCHEMA).append(rows())
    for round_ in range(rounds):
        before = ids(catalogs[0], table)
        opened = [catalog.load_table(table) for catalog in catalogs]
        numbers = [round_ * WRITERS + number for number in ALL]
        winners = run_concurrently(
            lambda number, opened=opened, numbers=numbers: opened[number].append(rows(numbers[number]))
        )
        assert winners
        assert ids(catalogs[0], table) == sorted([*before, *(numbers[number] for number in winners)])


@pytest.mark.xfail(raises=AssertionError, strict=True, reason="projectnessie/nessie#10062: mended when this passes")
def test_without_the_recipe_the_first_rows_of_a_new_table_replace_one_another(ns: str, catalogs: list[Catalog]) -> None:
    table = f"{ns}.replaced"
    catalogs[0].create_table(table, SCHEMA)
    opened = [catalog.load_table(table) for catalog in catalogs]
    for number, opened_table in enumerate(opened):
        opened_table.append(rows(number))  # and nobody is told that another one was first
    assert ids(catalogs[0], table) == ALL


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_sparks_writers_by_the_native_catalog(world: World, ns: str, rounds: int, exists: bool) -> None:
    for round_ in range(rounds):
        table = f"main_us.{ns}.spark_{exists}_{round_}"
        world.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
        if exists:
            world.sql(f"INSERT INTO {table} VALUES (-1)")
        assert run_concurrently(lambda number, table=table: world.sql(f"INSERT INTO {table} VALUES ({number})")) == ALL
        row_ids = [row[0] for row in world.sql(f"SELECT id FROM {table} ORDER BY id")]
        assert row_ids == [*([-1] if exists else []), *ALL]
