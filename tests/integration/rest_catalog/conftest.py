"""The address of eu over real servers, and Spark and PyIceberg that know nothing but it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from sterna.config.sections.model import Services
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.server import GatewayServer, build_server
from tests.support.world import World, pyiceberg_properties

SPARK_CATALOG = "rest_eu"
_START_SECONDS = 60


@dataclass(frozen=True)
class Address:
    """The address of eu.

    Args:
        url: where it is.
        world: the regions.
    """

    url: str
    world: World

    def pyiceberg(self, warehouse: str = "") -> RestCatalog:
        """Return the address as PyIceberg's catalog."""
        settings = pyiceberg_properties(self.world.stage.endpoints["eu"])
        return RestCatalog("eu", uri=self.url, **settings, **({"warehouse": warehouse} if warehouse else {}))

    def add_to_spark(self, name: str, warehouse: str = "") -> None:
        """Have the session's Spark see the address as a catalog, whose name it hasn't used before."""
        endpoint, catalog = self.world.stage.endpoints["eu"], f"spark.sql.catalog.{name}"
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": self.url,
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": endpoint.url,
            ".s3.path-style-access": "true",
            ".s3.access-key-id": endpoint.access_key,
            ".s3.secret-access-key": endpoint.secret_key,
            ".client.region": endpoint.region,
            ".cache-enabled": "false",
            **({".warehouse": warehouse} if warehouse else {}),
        }
        for key, value in settings.items():
            self.world.spark.conf.set(f"{catalog}{key}", value)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask the address itself."""
        return httpx.get(f"{self.url}/v1/{path}", headers=headers, timeout=30)


@pytest.fixture(scope="session")
def address(world: World) -> Iterator[Address]:
    """The address of eu, as a catalog of the session's Spark too: `rest_eu`."""
    with world.context() as context:
        prefix = next(location.prefix for location in context.registry.locations if location.region == "eu")
        services = Services.model_validate({"catalog": {"regions": {"eu": {"location": prefix}}}})
        options = ServeOptions(port=0)
        server = build_server(context, services, options, timedelta(days=7), only=["catalog"], environment={})
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            opened = Address(_url(server), world)
            opened.add_to_spark(SPARK_CATALOG)
            yield opened
        finally:
            server.should_exit = True
            thread.join(20)


def _url(server: GatewayServer) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
