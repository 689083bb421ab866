"""Random table histories from two regions, synced at random moments: the replicas always answer like main.

Hundreds of them:
    python3 run.py test tests/integration/sync/test_histories.py --dist load --histories 500 --history-minutes 60
"""

from __future__ import annotations

import secrets
import time

import pytest

from tests.support.histories import run_history
from tests.support.world import World


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seed = metafunc.config.getoption("--history-seed")
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.getoption("--histories") if seed is None else 1))


@pytest.fixture(scope="module")
def began() -> float:
    return time.monotonic()


def test_replicas_equal_main_through_a_random_history(
    world: World, number: int, began: float, request: pytest.FixtureRequest
):
    """New seeds each time; a failure tells its own."""
    minutes = request.config.getoption("--history-minutes")
    if minutes is not None and time.monotonic() - began > minutes * 60:
        pytest.skip(f"the {minutes:g} minutes of --history-minutes are over")
    seed = request.config.getoption("--history-seed")
    print(run_history(world, secrets.randbits(32) if seed is None else seed).summary)
