"""Finds the seeds at which the tests of the simulations begin (`python -m tests.simulation.first_seeds [SEEDS]`).

They move with the code. A test that begins at an old seed finds as much, but may take minutes. The command prints
what should stand in `test_simulation.py` and `test_rest_catalog.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tests.simulation import test_rest_catalog, test_simulation
from tests.simulation.rest_world import RestWorld
from tests.simulation.seeds import Bug, find_bug
from tests.simulation.world import World

_SEEDS = 130
_MAX_TRIES = 300  # seeds a bug


def main() -> None:
    """Print the rich seeds of both simulations, and each planted bug that is found at another seed than before."""
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else _SEEDS)
    traces: Mapping[int, Sequence[str]] = {seed: test_simulation.trace_of(seed) for seed in seeds}
    _print_rich("test_simulation.py", test_simulation.HAPPENS, traces)
    traces = {seed: test_rest_catalog.play(seed).trace for seed in seeds}
    _print_rich("test_rest_catalog.py", test_rest_catalog.HAPPENS, traces)
    for bug, broken in _cases(test_simulation.test_a_bug_put_in_on_purpose_is_found):
        _print_first(World, bug, broken, test_simulation.FIRST.get(bug, 0))
    for bug, broken, first in _cases(test_rest_catalog.test_a_bug_put_in_on_purpose_is_found):
        _print_first(RestWorld, bug, broken, first)


def rich_seeds(texts: Collection[str], traces: Mapping[int, Sequence[str]]) -> tuple[list[int], set[str]]:
    """Return few seeds whose traces have all of some texts together, and the texts that no trace has."""
    shown = {seed: {text for text in texts if any(text in line for line in lines)} for seed, lines in traces.items()}
    missing, chosen = set(texts), list[int]()
    while missing and (best := max(shown, key=lambda seed: len(missing & shown[seed]))) not in chosen:
        chosen.append(best)
        missing -= shown[best]
    return chosen, missing


def _print_rich(file: str, texts: Collection[str], traces: Mapping[int, Sequence[str]]) -> None:
    chosen, missing = rich_seeds(texts, traces)
    absent = f"; none has {sorted(missing)}" if missing else ""
    print(f"{file}: rich seeds {tuple(chosen)}{absent}", flush=True)


def _cases(test: Any) -> Iterator[tuple[Any, ...]]:
    (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")
    return iter(mark.args[1])


def _print_first(world: type[World] | type[RestWorld], bug: Bug, broken: str, first: int) -> None:
    found = find_bug(bug, broken, range(first, first + _MAX_TRIES), lambda seed: world(seed).play())
    seed = found and found[0]
    if seed != first:
        print(f"{bug.__module__}.{bug.__name__}: {seed}, not {first}", flush=True)


if __name__ == "__main__":
    main()
