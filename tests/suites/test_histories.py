"""Random table histories from two regions, synced at random moments: the replicas always answer like main.

Hundreds of them: python3 run.py test tests/suites/test_histories.py --histories 500 --history-minutes 60
"""

from __future__ import annotations

import secrets
import time

import pytest

from tests.suites.histories import run_history
from tests.suites.world import World


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the seeds: new ones each time."""
    given = metafunc.config.getoption("--history-seed")
    seeds = [secrets.randbits(32) for _ in range(metafunc.config.getoption("--histories"))] if given is None else [given]
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds)


@pytest.fixture(scope="module")
def began() -> float:
    return time.monotonic()


def test_replicas_equal_main_through_a_random_history(world: World, seed: int, began: float, request: pytest.FixtureRequest):
    minutes = request.config.getoption("--history-minutes")
    if minutes is not None and time.monotonic() - began > minutes * 60:
        pytest.skip(f"the {minutes:g} minutes of --history-minutes are over")
    print(run_history(world, seed).summary)
