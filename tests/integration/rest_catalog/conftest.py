"""The address of eu over real servers, and Spark and PyIceberg that know nothing but it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from sterna.config.sections.model import Services
from sterna.demo.rest_address import catalog_section, serve_catalog
from sterna.replication.replica.region import RegionContext
from sterna.servers.access import TokenIssuer, create_token_issuer
from tests.support.faults.serving import serving as serving_process
from tests.support.world import World, pyiceberg_properties

SPARK_CATALOG = "rest_eu"
US_CATALOG = "address_us"
SIGNED_CATALOG = "signed_eu"
HIDDEN = "rest_sign.hidden*"
"""Tables that the role `finance` alone may see at the address that signs requests."""


@dataclass(frozen=True)
class Address:
    """The address of a region.

    Args:
        url: where it is.
        world: the regions.
        region: which one it is of.
    """

    url: str
    world: World
    region: str = field(default="eu", kw_only=True)

    def pyiceberg(self, warehouse: str = "") -> RestCatalog:
        """Return the address as PyIceberg's catalog."""
        settings = pyiceberg_properties(self.world.stage.endpoints[self.region])
        return RestCatalog(self.region, uri=self.url, **settings, **({"warehouse": warehouse} if warehouse else {}))

    def add_to_spark(self, name: str, warehouse: str = "") -> None:
        """Have the session's Spark see the address as a catalog, whose name it hasn't used before."""
        endpoint = self.world.stage.endpoints[self.region]
        settings = {
            "uri": self.url,
            "s3.endpoint": endpoint.url,
            "s3.path-style-access": "true",
            "s3.access-key-id": endpoint.access_key,
            "s3.secret-access-key": endpoint.secret_key,
            "client.region": endpoint.region,
            **({"warehouse": warehouse} if warehouse else {}),
        }
        _add_catalog(self.world, name, settings)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask the address itself."""
        return httpx.get(f"{self.url}/v1/{path}", headers=headers, timeout=30)


@dataclass(frozen=True)
class SigningAddress(Address):
    """The address of eu with tokens, which signs requests for clients without keys.

    Args:
        issuer: of its tokens.
    """

    issuer: TokenIssuer

    def headers(self, *roles: str) -> dict[str, str]:
        """Return the headers of a client with some roles that wants its requests signed."""
        token = self.issuer.token("somebody", *roles)
        return {"Authorization": f"Bearer {token}", "X-Iceberg-Access-Delegation": "remote-signing"}

    def sign(
        self,
        table: str,
        method: str,
        url: str,
        *roles: str,
        body: str | None = None,
        prefix: str = "eu",
        **more: str,
    ) -> httpx.Response:
        """Ask for the signature of a request; further headers of that are named with `_` for `-`."""
        namespace, name = table.split(".")
        headers = {header.replace("_", "-"): [value] for header, value in more.items()}
        document = {"method": method, "uri": url, "region": "us-east-1", "headers": headers}
        path = f"{self.url}/v1/{prefix}/namespaces/{namespace}/tables/{name}/sign"
        document |= {} if body is None else {"body": body}
        return httpx.post(path, json=document, headers=self.headers(*roles), timeout=30)


@pytest.fixture(scope="session")
def address(world: World) -> Iterator[Address]:
    """The address of eu, as a catalog of the session's Spark too: `rest_eu`."""
    with world.context() as context, serving(world, context, SPARK_CATALOG) as opened:
        yield opened


@pytest.fixture(scope="session")
def address_us(world: World) -> Iterator[Address]:
    """The address of us, in a process of its own, as a catalog of the session's Spark too: `address_us`."""
    with serving_process(world.stage, "us") as process:
        opened = Address(process.url, world, region="us")
        opened.add_to_spark(US_CATALOG)
        yield opened


@pytest.fixture(scope="session")
def signing_address(world: World) -> Iterator[SigningAddress]:
    """The address that signs requests, as a catalog of the session's Spark, which has no key: `signed_eu`."""
    issuer = create_token_issuer()
    with world.context() as context:
        catalog = catalog_section(context, remote_signing=True)
        readers = [{"tables": [HIDDEN], "roles": ["finance"]}]
        services = Services.model_validate({"catalog": catalog, "readers": readers})
        with serve_catalog(context, services, issuer.nessie_settings()) as url:
            opened = SigningAddress(url, world, issuer)
            headers = opened.headers("writer", "finance")
            _add_catalog(world, SIGNED_CATALOG, {"uri": url, **{f"header.{name}": headers[name] for name in headers}})
            yield opened


@pytest.fixture(scope="module")
def ns(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """The namespace that a module names `NAMESPACE`."""
    with world.namespace(request.module.NAMESPACE) as name:
        yield name


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


def _add_catalog(world: World, name: str, settings: dict[str, str]) -> None:
    catalog = f"spark.sql.catalog.{name}"
    world.spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    shared = {"type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "cache-enabled": "false"}
    for setting, value in {**shared, **settings}.items():
        world.spark.conf.set(f"{catalog}.{setting}", value)
