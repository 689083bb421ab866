"""Five regions, any of which are dark for a while: each comes up as long as one that has everything can be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from sterna.errors import SternaError, StoreUnreachable
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, priced, refusing, run, with_third_region
from tests.support.verbatim import keeping

OTHERS = ("eu", "ap", "sa", "za")
TABLES = "abc"
STEPS = 8
SEEDS = (*range(2), *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(2, 22)))


@contextmanager
def darkened(world: World, names: Iterable[str]) -> Iterator[None]:
    """Let the stores of some regions answer nothing."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(refusing(f"file://{world.folder}/{name}/", StoreUnreachable))
        yield


def five_regions(world: World, rng: Random) -> World:
    """The world with five regions, which keep verbatim copies, and random prices."""
    for name in OTHERS[1:]:
        world = with_third_region(world, name)
    prices = {name: rng.choice((0.0, 0.02, 0.09)) for name in ("us", *OTHERS)}
    return priced(keeping(world, *prices), prices)


def play(world: World, rng: Random) -> None:
    """Write, and sync regions, while others are dark."""
    names = ["us", *OTHERS]
    for name in TABLES:
        world.commit(**{name: world.write(name)})
    for _ in range(STEPS):
        if rng.random() < 0.6:
            name = rng.choice(TABLES)
            world.commit(**{name: world.write(name, rng.randint(1, 50))})
        region = rng.choice(OTHERS)
        dark = rng.sample([name for name in names if name != region], rng.randint(0, 3))
        with darkened(world, dark), suppress(SternaError):
            run(world, region)


def copies(world: World, region: str) -> dict[str, bytes]:
    """Return the content of the data files that a region has of us, by their paths."""
    folder = world.folder / region / "replica" / "us-lake"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_region_comes_up_while_one_that_has_everything_can_be_reached(world: World, seed: int) -> None:
    rng = Random(seed)
    world = five_regions(world, rng)
    play(world, rng)
    complete = rng.choice(OTHERS)
    run(world, complete, full=True)
    lake: Path = world.folder / "us" / "lake"
    written = {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*.parquet")}
    for region in OTHERS:
        with darkened(world, {"us", *OTHERS} - {complete, region}):
            assert run(world, region).held == ()
        assert world.replica(region).keys() == world.replica(complete).keys()
        assert copies(world, region) == written
        assert not verify_structure(world.context(region)).findings
