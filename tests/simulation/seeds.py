"""Playing many seeds, and telling which one failed, or is the first to find a planted bug."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager

import pytest

from tests.simulation.store import Violation
from tests.simulation.world import World

Bug = Callable[[], AbstractContextManager[object]]
"""A bug that is there for as long as its context."""


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


def find_bug(
    bug: Bug, broken: str, seeds: Iterable[int], play_seed: Callable[[int], object]
) -> tuple[int, Violation] | None:
    """Return the first of some seeds at which a planted bug breaks what it should, and how; None without one.

    Args:
        bug: puts it in.
        broken: part of the violation.
        seeds: where to look, in their order.
        play_seed: plays one, and raises what is violated.
    """
    for seed in seeds:
        try:
            with bug():
                play_seed(seed)
        except Violation as error:
            if broken in str(error):
                return seed, error
    return None


def assert_found(
    bug: Bug, broken: str, seeds: Sequence[int], play_seed: Callable[[int], object], play_right: Callable[[int], object]
) -> None:
    """Fail where some seeds don't find a planted bug, or where the one that does isn't right without it.

    Args:
        bug, broken, seeds, play_seed: as of `find_bug`.
        play_right: plays a seed, and fails where anything is violated.
    """
    found = find_bug(bug, broken, seeds, play_seed)
    if found is None:
        pytest.fail(f"{len(seeds)} seeds did not find that {bug.__name__} breaks {broken!r}")
    seed, error = found
    print(f"{bug.__name__}: seed {seed}: {error}")
    play_right(seed)


def missing_texts(texts: Collection[str], traces: Iterable[Sequence[str]]) -> set[str]:
    """Return those of some texts that are in none of the traces; no more traces are played than it takes."""
    missing = set(texts)
    for trace in traces:
        missing = {text for text in missing if not any(text in line for line in trace)}
        if not missing:
            break
    return missing
