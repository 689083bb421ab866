"""A gateway that serves the catalog of eu, over tables that were born in us and in eu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.config.sections.model import Services
from sterna.serving.http.context import ServeOptions
from tests.support.http_server import gateway
from tests.support.small_world import World, make_world


def services(world: World, **more: Any) -> Services:
    region = {"location": f"file://{world.folder}/eu/lake", "defaults": {"s3.endpoint": "http://s3.eu.example"}}
    return Services.model_validate({"catalog": {"regions": {"eu": region}}, **more})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def address(world: World) -> Iterator[httpx.Client]:
    """A client of the address; a gateway without keys."""
    with (
        gateway(world, services(world), options=ServeOptions(port=0), only=["catalog"]) as running,  # type: ignore[arg-type]
        httpx.Client(base_url=running.url, timeout=20) as client,
    ):
        yield client
