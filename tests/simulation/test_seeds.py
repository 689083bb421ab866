"""The seeded simulation: sterna's own stages, with the catalog, the stores and the clock in memory, and all that
goes wrong.

    python3 run.py test tests/simulation --simulation-seeds 20000     more seeds than the 100 of each run
    python3 run.py test tests/simulation --simulation-seed 4711       one seed again; one that fails shows its trace
"""

from __future__ import annotations

import pytest

from tests.simulation.seeds import play

_IN_PARTS = 11  # one of so many seeds is played with lists in parts, too
_BLOCKS = 10  # for the processes to share; few seeds each, so that none of them is the last for long


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_whatever_happens_in_whatever_order(block: int, pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    for seed in range(count) if only is None else [only]:
        if seed % _BLOCKS == block:
            play(seed)


@pytest.mark.parametrize("block", range(2))
def test_whatever_happens_where_files_are_listed_in_parts(block: int, pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    for seed in range(0, count, _IN_PARTS) if only is None else [only]:
        if seed % 2 == block:
            play(seed, parts=True)
