"""Engines in eu write to tables that were born in us while us's store is off; once it is back, us's readers see it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.exceptions import TooManyRequestsError

from sterna.config.registry.folders import VERBATIM, state_folder
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext, read_registry
from sterna.replication.sync.run import sync
from tests.integration.rest_catalog.conftest import Address, serving
from tests.support.world import World, merge_on_read

DARK = "dark_eu"


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("rest_dark") as name:
        yield name


def keeping(world: World) -> RegionContext:
    """Region eu, which keeps verbatim copies."""
    document = read_registry(world.stage.registry).model_dump(mode="json", by_alias=True)
    for region in document["regions"]:
        region |= {"verbatim_copies": True, "localize": "here"}
    registry = Registry.model_validate(document)
    return RegionContext.of(registry, registry.region("eu"), environment_secrets())


@pytest.fixture(scope="module")
def home(world: World) -> Iterator[Address]:
    with keeping(world) as context, serving(world, context, DARK) as opened:
        yield opened


def make(world: World, name: str, version: int) -> str:
    """A table of us with position deletes, or deletion vectors."""
    table = f"rest_dark.{name}"
    world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, name STRING) USING iceberg {merge_on_read(version)}")
    world.sql(f"INSERT INTO main_us.{table} SELECT id, concat('n', id) FROM range(0, 30, 1, 1)")
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 3")
    return table


def new_rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array([first], pa.int64()), "name": ["eu"]})


def test_eu_writes_while_us_is_off(home: Address, ns: str) -> None:
    world = home.world
    tables = [make(world, f"v{version}", version) for version in (2, 3)]
    with keeping(world) as context:
        assert sync(context, SyncOptions(), world.lines.append).held == ()
        folder = state_folder(context.region.replica_root, VERBATIM)
        copied = {uri.rpartition(".")[2] for uri, _, _ in context.objects.list(folder) if "rest_dark" in uri}
        assert copied == {"json", "avro", "parquet", "puffin"}, "position deletes and deletion vectors, too"
    served = {}
    with world.dark("us"):
        for table in tables:
            world.sql(f"UPDATE {DARK}.{table} SET name = 'changed' WHERE id % 5 = 0")
        home.pyiceberg().load_table(tables[0]).append(new_rows(200))
        for table in tables:
            served[table] = sorted(world.sql(f"SELECT * FROM {DARK}.{table}"))
            assert len([row for row in served[table] if row[1] == "changed"]) == 6
    assert [len(served[table]) for table in tables] == [30, 29]
    world.sync("us")
    world.sync()
    for table in tables:
        for catalog in ("main_us", "replica_us", "replica_eu"):
            assert sorted(world.sql(f"SELECT * FROM {catalog}.{table}")) == served[table], (catalog, table)


def test_without_copies_the_table_is_named_at_once(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "plain", 2)
    world.sync()
    loaded = address.pyiceberg().load_table(table)
    with world.dark("us"), pytest.raises(TooManyRequestsError, match=rf"store of us can't be used.*{table}"):
        loaded.append(new_rows(200))
    assert 200 not in [row[0] for row in world.sql(f"SELECT id FROM main_us.{table}")]
    # A store that failed is tried again after some seconds; the tests behind this one share the address.
    end = time.monotonic() + 90
    while not appended(address, table, new_rows(201)):
        assert time.monotonic() < end, "the store is back, and no commit is taken"
        time.sleep(1)
    assert 201 in [row[0] for row in world.sql(f"SELECT id FROM main_us.{table}")]


def appended(address: Address, table: str, rows: pa.Table) -> bool:
    try:
        address.pyiceberg().load_table(table).append(rows)
    except TooManyRequestsError:
        return False
    return True
