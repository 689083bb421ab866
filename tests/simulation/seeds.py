"""Playing many seeds, and telling which one failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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


def missing_texts(texts: Collection[str], traces: Iterable[Sequence[str]]) -> set[str]:
    """Return those of some texts that are in none of the traces; no more traces are played than it takes."""
    missing = set(texts)
    for trace in traces:
        missing = {text for text in missing if not any(text in line for line in trace)}
        if not missing:
            break
    return missing
