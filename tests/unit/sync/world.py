"""A whole region for unit tests: the in-memory catalog, real files on disk, tables written by PyIceberg."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sterna.catalog.model import ICEBERG_TABLE, Content, Delete, Key, Put, key_name, namespace_content
from sterna.errors import CredentialError
from sterna.registry.model import Registry
from sterna.replica.region import RegionContext
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected


@dataclass(frozen=True)
class World:
    """Regions us and eu over folders, one shared catalog."""

    folder: Path
    catalog: InMemoryCatalog
    writer: SqlCatalog
    registry: Registry

    def context(self, region: str = "eu") -> RegionContext:
        """The region, with the double in the catalog's place."""
        return injected(self.registry, region, no_secrets, catalog=self.catalog, primary=self.catalog)

    def write(self, name: str, rows: int = 3) -> str:
        """Append rows to a table of region us, creating it when it is new; return its metadata location."""
        identifier = ("ns", name)
        data = pa.table({"id": pa.array(range(rows), pa.int64())})
        if not self.writer.table_exists(identifier):
            location = f"file://{self.folder}/us/lake/{name}"
            self.writer.create_table(identifier, data.schema, location=location)
        table = self.writer.load_table(identifier)
        table.append(data)
        return self.writer.load_table(identifier).metadata_location

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
            known = now.get(key)
            operations.append(Put(key, table(location, known.id if known else None)))
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
    writer = SqlCatalog("writer", uri=f"sqlite:///{folder}/writer.db", warehouse=f"file://{folder}/us/lake")
    writer.create_namespace("ns")
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
