"""Playing many seeds, and telling which one failed."""

from __future__ import annotations

from tests.simulation.world import World


def play(seed: int, *, parts: bool = False) -> World:
    """Play a seed; what goes wrong says which it was, and all that happened before."""
    world = World(seed, parts=parts)
    try:
        world.play()
    except Exception as error:
        trace = "\n".join(world.trace)
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n{trace}\nagain: --simulation-seed {seed}"
        ) from error
    return world
