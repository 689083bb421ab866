"""Spark as a client of region eu: it reads what the region serves, and its commits are taken back and put on `main`.

Its catalog is one of its own, in memory: each statement is for the served metadata, and what it wrote is read there.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Content, Put
from sterna.config.near_places import region_places
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.client_files import write_roots
from sterna.serving.rest_catalog.overlay import served_metadata
from sterna.serving.rest_catalog.take_back import TakenBack, take_back_snapshot
from tests.support.world import World

NEAR_ROOT = "s3://eu-lake"


@dataclass
class NearSpark:
    """The client, and what became of its last statement.

    Args:
        catalog: the name of its catalog in Spark.
    """

    world: World
    context: RegionContext
    catalog: str
    taken: tuple[TakenBack, ...] = ()

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return self.world.sql(text)

    def run(self, key: str, statement: str) -> dict[str, Any]:
        """Run a statement on a table as the region serves it, and commit what it did; return `main`'s new metadata.

        Args:
            key: the table's name.
            statement: with `{table}` and `{catalog}`.
        """
        served = served_metadata(
            self._read(self.world.replica()[key].metadata_location), self.context.mapping, NEAR_ROOT
        )
        name = f"near.t{uuid.uuid4().hex}"
        file = f"{NEAR_ROOT}/near/{uuid.uuid4()}.metadata.json"
        self.context.objects.write_new(file, json.dumps(served).encode())
        self.world.sql(f"CALL {self.catalog}.system.register_table(table => '{name}', metadata_file => '{file}')")
        self.world.sql(statement.format(table=f"{self.catalog}.{name}", catalog=self.catalog, name=name))
        log = self.world.sql(f"SELECT file FROM {self.catalog}.{name}.metadata_log_entries ORDER BY timestamp")
        return self._commit(key, served, self._read(log[-1][0]))

    def _commit(self, key: str, served: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
        content_key = tuple(key.split("."))
        content = self.world.content(content_key)
        main = self._read(content.metadata_location)
        before = {snapshot["snapshot-id"] for snapshot in served["snapshots"]}
        taken: list[TakenBack] = []
        for snapshot in written["snapshots"]:
            if snapshot["snapshot-id"] in before:
                continue
            mapping = self.context.mapping
            roots = write_roots(main, region_places(mapping, NEAR_ROOT, main))
            folder = f"{NEAR_ROOT}/_sterna/rest/{main['table-uuid']}"
            taken.append(
                take_back_snapshot(self.context.objects, mapping, main, snapshot, roots, folder, earlier=taken)
            )
        self.taken = tuple(taken)
        names = (
            "refs",
            "current-snapshot-id",
            "last-sequence-number",
            "next-row-id",
            "snapshot-log",
            "last-updated-ms",
        )
        main |= {name: written[name] for name in names if name in written}
        main["snapshots"] = [*main["snapshots"], *(one.snapshot for one in taken)]
        location = f"{NEAR_ROOT}/_sterna/rest/{main['table-uuid']}/{uuid.uuid4()}.metadata.json"
        self.context.objects.write_new(location, json.dumps(main).encode())
        payload = {
            "type": ICEBERG_TABLE,
            "metadataLocation": location,
            "snapshotId": main["current-snapshot-id"],
            "schemaId": main["current-schema-id"],
            "specId": main["default-spec-id"],
            "sortOrderId": main["default-sort-order-id"],
        }
        head = self.world.catalog.reference("main").hash
        self.world.catalog.commit("main", head, [Put(content_key, Content.of(payload).with_id(content.id))], "near")
        self.world.sql(f"REFRESH TABLE main_us.{key}")
        return main

    def _read(self, uri: str | None) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.context.objects.read(uri or ""))
        return document


@contextmanager
def near_spark(world: World) -> Iterator[NearSpark]:
    """A catalog of the region's client in the world's Spark."""
    name = f"near_{uuid.uuid4().hex[:8]}"
    endpoint = world.stage.endpoints["eu"]
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{prefix}.uri": f"jdbc:derby:memory:near-{uuid.uuid4().hex};create=true",
        f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{prefix}.warehouse": f"{NEAR_ROOT}/near",
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.s3.endpoint": endpoint.url,
        f"{prefix}.s3.access-key-id": endpoint.access_key,
        f"{prefix}.s3.secret-access-key": endpoint.secret_key,
        f"{prefix}.s3.path-style-access": "true",
        f"{prefix}.client.region": endpoint.region,
    }
    java: Any = world.spark
    java._jvm.java.lang.System.setProperty("derby.stream.error.file", os.devnull)
    for key, value in settings.items():
        world.spark.conf.set(key, value)
    with world.context("eu") as context:
        yield NearSpark(world, context, name)
