import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import StoreUnreachable
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync import verbatim
from sterna.replication.sync.run import sync
from tests.support.small_world import World, here, make_world
from tests.unit.sync.poison import Sick

MOST_MIB = 700


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Sick]:
    """Three tables that were synced once; a module's poisons take little memory, all together."""
    every = 6 if request.config.getoption("quick") else 1
    world = make_world(tmp_path_factory.mktemp("poison"))
    locations = {name: world.write(name) for name in ("one", "two", "bad")}
    world.commit(**locations)
    assert sync(world.context(), SyncOptions(), lambda line: None, engine=here).held == ()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield Sick(world, {name: locations[name] for name in ("one", "two")}, locations["bad"], every)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < MOST_MIB, f"{grown} MiB"


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Files that can't be read while copies are made: their names' endings."""
    endings: list[str] = []
    plain = verbatim.read_cached

    def read(objects: Any, run: str, uri: str) -> bytes:
        if uri.endswith(tuple(endings)):
            raise StoreUnreachable("no answer", file=uri)
        return plain(objects, run, uri)

    monkeypatch.setattr(verbatim, "read_cached", read)
    yield endings
