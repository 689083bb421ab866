"""The seeded simulation: sterna's own stages, with the catalog, the stores and the clock in memory, and all that
goes wrong.

    python3 run.py test tests/faults --simulation-seeds 20000     more seeds than the 1,000 of each run
    python3 run.py test tests/faults --simulation-seed 4711       one seed again; a seed that fails shows its whole
    trace

The seeds are in two files, for each file is run by one process.
"""

from __future__ import annotations

import pytest

from tests.simulation.seeds import CHUNKS, play_chunk


@pytest.mark.parametrize("chunk", CHUNKS)
def test_whatever_happens_in_whatever_order(chunk: int, pytestconfig: pytest.Config) -> None:
    play_chunk(pytestconfig, 2 * chunk, 2 * len(CHUNKS))
