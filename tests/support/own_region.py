"""A region of one test's own, with a replica branch and a registry of its own, so that what it holds back disturbs
nobody.
"""

from __future__ import annotations

import gzip
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.config import Config

from sterna.catalog.model import Content, Delete, Operation, key_name
from sterna.config.secrets import environment_secrets
from sterna.operations.status.read import read_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.registry_file import bucket_name
from sterna.servers.spark import add_catalog
from tests.support.answers import ask, differences
from tests.support.world import World


@dataclass
class OwnRegion:
    """A region, and its registry as data that the test may change between syncs.

    Args:
        world: the deployment that it is part of; its files of main are in us.
        name: the region's name, also its folder in eu's bucket; letters and digits.
        registry: the registry's content.
        path: where it is written before each sync.
    """

    world: World
    name: str
    registry: dict[str, Any]
    path: Path

    @property
    def branch(self) -> str:
        return f"main_replica_{self.name}"

    @property
    def root(self) -> str:
        return f"s3://eu-lake/{self.name}/replica"

    @property
    def spark_catalog(self) -> str:
        return f"replica_{self.name}"

    def context(self) -> RegionContext:
        self.path.write_text(yaml.safe_dump(self.registry))
        return open_region(self.path, self.name, environment_secrets())

    def sync(self, **options: Any) -> Report:
        with self.context() as context:
            return sync(context, SyncOptions(**options), self.world.lines.append)

    def replica(self) -> dict[str, Content]:
        catalog = self.world.catalog
        return {
            key_name(key): content for key, content in catalog.entries(self.branch, catalog.reference(self.branch).hash)
        }

    def held(self) -> dict[str, Held]:
        with self.context() as context:
            return {item.held.key: item.held for item in read_status(context).held}

    def refused(self) -> dict[str, str]:
        with self.context() as context:
            return {item.key: item.reason for item in read_status(context).refused}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the replica, with us dark; `{0}` in the query stands for the catalog's name."""
        with self.world.dark("us"):
            return self.world.sql(query.format(self.spark_catalog))

    def assert_equal(self, *tables: str, pruned: bool = False) -> None:
        """Replica and main answer the same, with us dark, and the replica is closed.

        `pruned` as `World.assert_equal`.
        """
        wanted = {table: ask(self.world.spark, f"main_us.{table}") for table in tables}
        with self.world.dark("us"), self.context() as context:
            for table in tables:
                replica = ask(self.world.spark, f"{self.spark_catalog}.{table}")
                mismatches = differences(wanted[table], replica, context.mapping, pruned=pruned)
                assert not mismatches, f"{table} in {self.name}:\n" + "\n".join(mismatches)
        self.assert_closed(*tables)

    def assert_closed(self, *tables: str) -> None:
        """Every file that the replica needs is in the region, with us dark."""
        with self.world.dark("us"), self.context() as context:
            verified = verify_structure(context, tables)
        assert verified.findings == ()
        assert verified.foreign == 0


def own_region(world: World, folder: Path, name: str) -> OwnRegion:
    """Register a region of the test's own; its name starts as it is told, and is new to the deployment."""
    name = f"{name}{secrets.token_hex(3)}"
    registry: dict[str, Any] = yaml.safe_load(world.stage.registry.read_text())
    eu = next(region for region in registry["regions"] if region["name"] == "eu")
    lake = next(location for location in registry["locations"] if location["region"] == "eu")
    own = OwnRegion(world, name, registry, folder / f"{name}.yaml")
    registry["regions"].append({**eu, "name": name, "replica_branch": own.branch, "replica_root": own.root})
    registry["locations"].append({**lake, "id": f"home-{name}", "region": name, "prefix": f"s3://eu-lake/{name}"})
    stage = world.stage
    add_catalog(
        world.spark, own.spark_catalog, stage.nessie.uri, own.branch, stage.warehouse("eu"), stage.endpoints["eu"]
    )
    return own


def read_object(world: World, uri: str) -> bytes:
    """Return an object of whichever region's bucket it lies in."""
    client, place = _place(world, uri)
    return bytes(client.get_object(**place)["Body"].read())


def put_object(world: World, uri: str, data: bytes) -> None:
    """Write an object, over the one that is there, in whichever region's bucket it lies."""
    client, place = _place(world, uri)
    client.put_object(**place, Body=data)


def remove_object(world: World, uri: str) -> None:
    """Take an object away, as an expiry does."""
    client, place = _place(world, uri)
    client.delete_object(**place)


def read_metadata(world: World, content: Content) -> dict[str, Any]:
    """Return the metadata.json, gzip or not, that a content of the catalog names."""
    data = read_object(world, content.metadata_location or "")
    document: dict[str, Any] = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return document


def commit(world: World, *operations: Operation) -> None:
    """Commit to main what no engine writes."""
    world.catalog.commit("main", world.catalog.reference("main").hash, operations, "by hand")


def drop_all(world: World, namespace: str) -> None:
    """Drop all that stands in a namespace of main, whatever it is, in one commit."""
    entries = world.catalog.entries("main", world.catalog.reference("main").hash)
    below = sorted((key for key, _ in entries if key[0] == namespace and len(key) > 1), key=len, reverse=True)
    if below:
        commit(world, *(Delete(key) for key in below))


def _place(world: World, uri: str) -> tuple[Any, dict[str, str]]:
    name, _, key = uri.removeprefix("s3://").partition("/")
    endpoint = next(one for region, one in world.stage.endpoints.items() if bucket_name(region) == name)
    keys = {"aws_access_key_id": endpoint.access_key, "aws_secret_access_key": endpoint.secret_key}
    config = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    client = boto3.client("s3", endpoint_url=endpoint.url, region_name=endpoint.region, config=config, **keys)
    return client, {"Bucket": name, "Key": key}
