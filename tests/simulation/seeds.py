"""Playing many seeds, and telling which one failed."""

from __future__ import annotations

import pytest

from tests.simulation.world import World

CHUNKS = range(5)


def play(seed: int) -> World:
    """Play a seed; what goes wrong says which it was, and all that happened before."""
    world = World(seed)
    try:
        world.play()
    except Exception as error:
        trace = "\n".join(world.trace)
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n{trace}\nagain: --simulation-seed {seed}"
        ) from error
    return world


def play_chunk(config: pytest.Config, remainder: int, of: int) -> None:
    """Play every seed asked for that leaves this remainder."""
    only, count = config.getoption("simulation_seed"), config.getoption("simulation_seeds")
    for seed in range(count) if only is None else [only]:
        if seed % of == remainder:
            play(seed)
