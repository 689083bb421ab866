"""A client's snapshot against the region's view becomes one with `main`'s own names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.small_world import World, make_world, run
from tests.unit.rest_catalog.near_client import NearCatalog

T = ("ns", "t")


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    world.write("t")
    world.commit(t=world.write("t"))
    run(world)
    return world


def test_an_append_keeps_the_manifests_of_main(world: World) -> None:
    near = NearCatalog(world)
    near.load_table(T).append(ids(7, 8))
    main = world.writer.load_table(T)
    assert sorted(main.scan().to_arrow().column("id").to_pylist()) == [0, 0, 1, 1, 2, 2, 7, 8]
    paths = [manifest.manifest_path for manifest in main.current_snapshot().manifests(main.io)]
    assert sum(path.startswith(f"file://{world.folder}/us/lake/") for path in paths) == 2
    assert sum(path.startswith(f"file://{world.folder}/eu/lake/_sterna/rest/t/") for path in paths) == 1


def test_an_overwrite_keeps_and_deletes_files_by_the_names_of_main(world: World) -> None:
    near = NearCatalog(world)
    near.load_table(T).append(ids(7, 8))
    near.load_table(T).overwrite(ids(9), overwrite_filter="id = 1")
    main = world.writer.load_table(T)
    assert sorted(main.scan().to_arrow().column("id").to_pylist()) == [0, 0, 2, 2, 7, 8, 9]
