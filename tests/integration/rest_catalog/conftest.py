"""The address of eu over real servers, and Spark and PyIceberg that know nothing but it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from sterna.demo.rest_address import serve_catalog
from sterna.replication.replica.region import RegionContext
from tests.support.world import World, pyiceberg_properties

SPARK_CATALOG = "rest_eu"


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
    with world.context() as context, serving(world, context, SPARK_CATALOG) as opened:
        yield opened


@contextmanager
def serving(world: World, context: RegionContext, spark_catalog: str) -> Iterator[Address]:
    """Serve the address of eu, as a catalog of the session's Spark too.

    Args:
        world: the regions.
        context: eu, by whatever registry.
        spark_catalog: the catalog's name.
    """
    with serve_catalog(context) as url:
        opened = Address(url, world)
        opened.add_to_spark(spark_catalog)
        yield opened
