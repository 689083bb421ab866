import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.sync.options import SyncOptions
from sterna.sync.run import sync
from tests.support.small_world import World, here, make_world
from tests.unit.sync.poison import Sick

MOST_MIB = 700


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sick]:
    """Three tables that were synced once; a module's poisons take little memory, all together."""
    world = make_world(tmp_path_factory.mktemp("poison"))
    found = {name: world.write(name) for name in ("one", "two", "bad")}
    world.commit(**found)
    assert sync(world.context(), SyncOptions(), lambda line: None, engine=here).held == ()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield Sick(world, {name: found[name] for name in ("one", "two")}, found["bad"])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < MOST_MIB, f"{grown} MiB"
