"""Commits by a region's address: what reaches `main`, what is answered, and what is refused before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, make_world, run

KEY = ("ns", "orders")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"))
    run(made)
    return made


@pytest.fixture
def client(world: World) -> AddressClient:
    return AddressClient(address_of(world))


def rows(first: int, count: int = 2) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def main_metadata(world: World) -> dict[str, Any]:
    head = world.catalog.reference("main").hash
    return read_json(world.catalog.contents("main", head, [KEY])[KEY].metadata_location or "")


def test_an_append_from_away_reaches_main_with_mains_own_names(world: World, client: AddressClient) -> None:
    table = client.load_table(KEY)
    table.append(rows(10))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 10, 11]
    document = main_metadata(world)
    assert len(document["snapshots"]) == 2
    assert "/replica/" not in str(document)
    client.address.sync.wait(client.address.sync.request(), 60)
    shown = client.address.shown([KEY])[KEY]
    assert world.replica()["ns.orders"].with_id(None) == shown.with_id(None)
    assert shown.metadata_location == table.metadata_location
