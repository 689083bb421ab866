"""The other half of the simulation's seeds: see test_even_seeds.py."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import CHUNKS, play_chunk


@pytest.mark.parametrize("chunk", CHUNKS)
def test_whatever_happens_in_whatever_order(chunk: int, pytestconfig: pytest.Config) -> None:
    play_chunk(pytestconfig, 2 * chunk + 1, 2 * len(CHUNKS))
