"""Writers by a region's address and natively: in a random order, where Spark compares everything, and all at once.

More of the first:
    python3 run.py test tests/integration/rest_catalog/test_histories.py --histories 50 --history-minutes 60
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.integration.rest_catalog.conftest import SPARK_CATALOG, Address
from tests.support.faults.serving import serving
from tests.support.histories import run_history
from tests.support.world import World

_SHARE = 0.1  # of the histories that natives alone play


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        seed, histories = (metafunc.config.getoption(name) for name in ("--history-seed", "--histories"))
        metafunc.parametrize("number", range(max(1, int(histories * _SHARE)) if seed is None else 1))


@pytest.fixture(scope="module")
def rest_us(world: World) -> Iterator[str]:
    """The address of us, in a process of its own, as a catalog of Spark's."""
    endpoint = world.stage.endpoints["us"]
    with serving(world.stage, "us") as process:
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": process.url,
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": endpoint.url,
            ".s3.path-style-access": "true",
            ".s3.access-key-id": endpoint.access_key,
            ".s3.secret-access-key": endpoint.secret_key,
            ".client.region": endpoint.region,
            ".cache-enabled": "false",
        }
        for name, value in settings.items():
            world.spark.conf.set(f"spark.sql.catalog.rest_us{name}", value)
        yield "rest_us"


@pytest.mark.rare
def test_replicas_equal_main_where_addresses_are_among_the_writers(
    address: Address, rest_us: str, number: int, request: pytest.FixtureRequest
) -> None:
    """New seeds each time; a failure tells its own."""
    seed = request.config.getoption("--history-seed")
    chosen = secrets.randbits(32) if seed is None else seed
    print(run_history(address.world, chosen, addresses={SPARK_CATALOG: "eu", rest_us: "us"}).summary)
