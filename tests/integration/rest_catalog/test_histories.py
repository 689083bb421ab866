"""Random histories of tables and views whose writers are two regions' addresses and natives: all answer like main.

More of them:
    python3 run.py test tests/integration/rest_catalog/test_histories.py --long --histories 500 --history-minutes 60
"""

from __future__ import annotations

import secrets
import time

import pytest

from tests.integration.rest_catalog.conftest import SPARK_CATALOG, US_CATALOG, Address
from tests.support.histories import run_history

_SHARE = 0.1  # of the histories that natives alone play
_ADDRESSES = {SPARK_CATALOG: "eu", US_CATALOG: "us"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        seed, histories = (metafunc.config.getoption(name) for name in ("--history-seed", "--histories"))
        metafunc.parametrize("number", range(max(1, int(histories * _SHARE)) if seed is None else 1))


@pytest.fixture(scope="module")
def began() -> float:
    return time.monotonic()


@pytest.mark.rare
def test_replicas_and_addresses_equal_main_through_a_random_history(
    address: Address, address_us: Address, number: int, began: float, request: pytest.FixtureRequest
) -> None:
    """New seeds each time; a failure tells its own."""
    assert address.region != address_us.region
    minutes = request.config.getoption("--history-minutes")
    if minutes is not None and time.monotonic() - began > minutes * 60:
        pytest.skip(f"the {minutes:g} minutes of --history-minutes are over")
    seed = request.config.getoption("--history-seed")
    chosen = secrets.randbits(32) if seed is None else seed
    print(run_history(address.world, chosen, addresses=_ADDRESSES).summary)
