"""A client's snapshot against the region's view becomes one with `main`'s own names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.storage.objects import Objects
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


def test_nothing_is_read_while_memory_to_parse_is_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan has them the other way round: it parses what it is reading, and each would wait for the other."""
    near = NearCatalog(world)
    reserve, read = Objects.reserve_memory, Objects.read_bounded
    held: list[str] = []

    @contextmanager
    def note_reserved(objects: Objects, uri: str, memory_bytes: int) -> Iterator[None]:
        with reserve(objects, uri, memory_bytes):
            held.append(uri)
            yield
            held.remove(uri)

    def require_none_held(objects: Objects, sizes: dict[str, int]) -> Iterator[tuple[str, Any]]:
        assert held == []
        return read(objects, sizes)

    table = near.load_table(T)
    monkeypatch.setattr(Objects, "reserve_memory", note_reserved)
    monkeypatch.setattr(Objects, "read_bounded", require_none_held)
    table.overwrite(ids(9), overwrite_filter="id = 1")
    assert near.commits
