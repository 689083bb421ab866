"""What engines are configured with: the text that `sterna catalog config` prints, and keys of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sterna.serving.rest_catalog.engines import EngineSettings, engine_text
from tests.integration.rest_catalog.conftest import Address
from tests.support.strangers import replicated_strangers
from tests.support.world import World


@pytest.fixture(scope="module")
def settings(address: Address) -> Callable[[str], str]:
    """Returns the text for an engine, without keys."""
    endpoint = address.world.stage.endpoints["eu"]
    store = {
        "s3.endpoint": endpoint.url,
        "s3.region": endpoint.region,
        "client.region": endpoint.region,
        "s3.path-style-access": "true",
    }
    return lambda engine: engine_text(engine, EngineSettings(address.url, store, token=False))


@pytest.fixture(scope="module")
def replicated(world: World) -> Iterator[World]:
    """Tables of many writers, which eu has replicas of."""
    with replicated_strangers(world):
        yield world
