"""Small commits to `main`, by PyIceberg at us's own endpoint: they cost the machine little beside what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.regions import Pair
from sterna.servers.s3 import Endpoint

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAMESPACE = "bench"


def open_writer(world: Pair) -> Catalog:
    """Return PyIceberg's view of `main`, by way of Nessie's Iceberg REST."""
    from pyiceberg.catalog import load_catalog

    settings = properties(world.stage.endpoints["us"])
    return load_catalog("main", type="rest", uri=f"{world.stage.nessie.iceberg_uri}/main", warehouse="us", **settings)


def properties(endpoint: Endpoint, url: str = "") -> dict[str, str]:
    """Return the settings with which PyIceberg reads and writes at one endpoint, or at a proxy's address."""
    return {
        "s3.endpoint": url or endpoint.url,
        "s3.access-key-id": endpoint.access_key,
        "s3.secret-access-key": endpoint.secret_key,
        "s3.region": endpoint.region,
        "s3.force-virtual-addressing": "false",
    }


def some_rows(count: int, first: int = 0) -> pa.Table:
    """Return rows of an id and a text."""
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "name": [f"row {first + number}" for number in range(count)],
        }
    )


@dataclass
class SmallTable:
    """A table in us that grows by one file a commit.

    Args:
        writer: PyIceberg's catalog.
        name: its name in namespace `bench`.
    """

    world: Pair
    writer: Catalog
    name: str

    def create(self) -> SmallTable:
        """Make it, with one row."""
        self.writer.create_namespace_if_not_exists(NAMESPACE)
        self.writer.create_table(self._key, some_rows(1).schema).append(some_rows(1))
        return self

    def append(self, rows: int = 100) -> None:
        """Commit one data file."""
        self.writer.load_table(self._key).append(some_rows(rows))

    def files(self) -> Mapping[str, Path]:
        """Return its files by their path below its location."""
        folder = self.world.path(self.writer.load_table(self._key).location())
        return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}

    def location(self) -> str:
        """Return the URI of its folder."""
        return self.writer.load_table(self._key).location()

    @property
    def _key(self) -> str:
        return f"{NAMESPACE}.{self.name}"
