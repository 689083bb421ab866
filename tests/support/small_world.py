"""A whole region for unit tests: the in-memory catalog, real files on disk, tables written by PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from sterna.catalog.model import ICEBERG_TABLE, Content, Delete, Key, Put, key_name, namespace_content
from sterna.config.registry.model import Registry
from sterna.errors import CredentialError, SternaError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica import metadata_version
from sterna.replication.replica.model import Plan, Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync
from sterna.storage import client
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.writer_catalog import WriterCatalog


@dataclass(frozen=True)
class World:
    """Regions us and eu over folders, one shared catalog."""

    folder: Path
    catalog: InMemoryCatalog
    writer: WriterCatalog
    registry: Registry

    def context(self, region: str = "eu") -> RegionContext:
        """The region, with the double in the catalog's place."""
        return injected(self.registry, region, no_secrets, catalog=self.catalog, primary=self.catalog)

    def write(self, name: str, rows: int = 3) -> str:
        """Append rows to a table of region us, creating it when it is new; return its metadata location."""
        identifier = ("ns", name)
        data = pa.table({"id": pa.array(range(rows), pa.int64())})
        if self.writer.table_exists(identifier):
            table = self.writer.load_table(identifier)
        else:
            location = f"file://{self.folder}/us/lake/{name}"
            table = self.writer.create_table(identifier, data.schema, location=location)
        table.append(data)
        return table.metadata_location

    def commit(self, **locations: str | None) -> str:
        """Commit tables of namespace `ns` to main, all at once; None drops one."""
        head = self.catalog.reference("main").hash
        keys: list[Key] = [("ns",), *(("ns", name) for name in locations)]
        now = self.catalog.contents("main", head, keys) if head != self.catalog.no_ancestor() else {}
        operations: list[Put | Delete] = [] if ("ns",) in now else [Put(("ns",), namespace_content(("ns",)))]
        for name, location in locations.items():
            key = ("ns", name)
            if location is None:
                operations.append(Delete(key))
                continue
            existing = now.get(key)
            operations.append(Put(key, table(location, existing.id if existing else None)))
        return self.catalog.commit("main", head, operations, "write")

    def replica(self, region: str = "eu") -> dict[str, Content]:
        """What the region's replica branch holds, by key name."""
        branch = self.registry.region(region).replica_branch
        head = self.catalog.reference(branch)
        return {key_name(key): content for key, content in self.catalog.entries(branch, head.hash)}


def table(location: str, content_id: str | None = None) -> Content:
    payload = {
        "type": ICEBERG_TABLE,
        "metadataLocation": location,
        "snapshotId": 1,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    return Content.of(payload).with_id(content_id)


def no_secrets(name: str):
    raise CredentialError(f"no credential {name}")


def make_world(folder: Path) -> World:
    for region in ("us", "eu"):
        (folder / region / "lake").mkdir(parents=True)
    writer = WriterCatalog(f"file://{folder}/us/lake")
    registry = Registry.model_validate(
        {
            "regions": [
                {
                    "name": name,
                    "replica_root": f"file://{folder}/{name}/replica",
                    "catalog": {"read": "http://127.0.0.1:1/api/v2"},
                }
                for name in ("us", "eu")
            ],
            "locations": [
                {
                    "id": f"{name}-{part}",
                    "prefix": f"file://{folder}/{name}/{part}",
                    "region": name,
                    "remote": {"type": "local"},
                }
                for name in ("us", "eu")
                for part in ("lake", "replica")
            ],
        }
    )
    return World(folder, InMemoryCatalog(), writer, registry)


def here(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    """Localize in this process."""
    return [function(item) for item in items]


def quiet(line: str) -> None:
    """Tell nobody."""


def run(world: World, region: str = "eu", **options) -> Report:
    """Sync a region, all in this process."""
    return sync(world.context(region), SyncOptions(**options), quiet, engine=here)


def planned(world: World, **options) -> Plan:
    """What a sync of eu would do."""
    return make_plan(world.context(), SyncOptions(**options))[0]


def gone(world: World, name: str) -> str:
    """The location of a metadata.json that is not there."""
    return f"file://{world.folder}/us/lake/{name}/metadata/00009-gone.metadata.json"


def view(world: World, name: str) -> str:
    """Write a view of region us; return its metadata location."""
    location = world.folder / "us" / "lake" / name
    path = location / "metadata" / "00000-v.metadata.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"view-uuid": "u", "format-version": 1, "location": f"file://{location}", "current-version-id": 1}
    path.write_text(json.dumps({**document, "versions": [], "version-log": [], "schemas": []}))
    return f"file://{path}"


def with_third_region(world: World, name: str = "ap") -> World:
    """The same world with a third region, or one more, that has a lake of its own."""
    (world.folder / name / "lake").mkdir(parents=True)
    dumped = world.registry.model_dump(mode="json")
    region = {**dumped["regions"][0], "name": name, "replica_branch": f"main_replica_{name}"}
    region["replica_root"] = f"file://{world.folder}/{name}/replica"
    places = [
        {
            "id": f"{name}-{part}",
            "prefix": f"file://{world.folder}/{name}/{part}",
            "region": name,
            "remote": {"type": "local"},
        }
        for part in ("lake", "replica")
    ]
    return with_registry(world, regions=[*dumped["regions"], region], locations=[*dumped["locations"], *places])


def written_elsewhere(world: World, name: str, region: str = "ap") -> str:
    """Register a data file of another region's in a table; return the table's metadata location."""
    path = world.folder / region / "lake" / f"{name}-elsewhere.parquet"
    pq.write_table(pa.table({"id": pa.array(range(5), pa.int64())}), path)
    table = world.writer.load_table(("ns", name))
    table.add_files([f"file://{path}"])
    return world.writer.load_table(("ns", name)).metadata_location


@contextmanager
def refusing(prefix: str, error: type[SternaError], files: str = "*") -> Iterator[list[str]]:
    """Let every request below a prefix fail as a store does that is dark or refuses; yields what was asked for."""
    asked: list[str] = []
    real = client.call_once

    @wraps(real)  # by its name, another one may be put in its place
    def call(store: Any, uri: str, function: Callable[[], Any]) -> Any:
        if uri.startswith(prefix) and fnmatch(uri, files):
            asked.append(uri)
            raise error("says no", file=uri)
        return real(store, uri, function)

    with patch.object(client, client.call_once.__name__, call):
        yield asked


@contextmanager
def localizer_version(number: int) -> Iterator[None]:
    """Another version of sterna, as far as its localizer's number tells."""
    with patch.object(metadata_version, "LOCALIZER_VERSION", number):
        yield


def with_registry(world: World, **fields) -> World:
    """The same world, some fields of its registry changed."""
    return World(
        world.folder, world.catalog, world.writer, Registry.model_validate({**world.registry.model_dump(), **fields})
    )


def priced(world: World, prices: dict[str, float]) -> World:
    """The same world, with prices for reading from each region."""
    locations = world.registry.model_dump(mode="json")["locations"]
    return with_registry(
        world, locations=[{**place, "egress_per_gb": {"*": prices.get(place["region"], 0.0)}} for place in locations]
    )


def ruled(world: World, **rules: Any) -> World:
    """The same world under other policies or residency."""
    changed = Registry.model_validate({**world.registry.model_dump(mode="json"), **rules})
    return World(world.folder, world.catalog, world.writer, changed)
