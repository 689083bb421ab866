"""Two regions over S3 servers that hold any key (moto's), with tables that PyIceberg writes at exactly the keys it
is told.
"""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.table import StaticTable, Table

from sterna.catalog.model import ICEBERG_TABLE, Content, Put, key_name, namespace_content
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync
from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.stores import KEY, SECRET

US, EU = "s3://lake", "s3://home"
ROOT = f"{EU}/replica"
NAMESPACE = "odd"


class LiteralIO(FileIO):
    """A FileIO that takes what follows the bucket as the object's key, byte for byte.

    PyArrow's and fsspec's take some keys apart.
    """

    def new_input(self, location: str) -> _Object:
        return _Object(location, self.properties)

    def new_output(self, location: str) -> _Object:
        return _Object(location, self.properties)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        item = _Object(location if isinstance(location, str) else location.location, self.properties)
        item.client.delete_object(Bucket=item.bucket, Key=item.key)


class _Object(InputFile, OutputFile):
    def __init__(self, location: str, properties: dict[str, str]) -> None:
        super().__init__(location)
        self.bucket, _, self.key = location.partition("://")[2].partition("/")
        self.client = s3(properties[f"endpoint.{self.bucket}"])

    def __len__(self) -> int:
        return int(self._head()["ContentLength"])

    def exists(self) -> bool:
        try:
            self._head()
        except ClientError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self.client.get_object(Bucket=self.bucket, Key=self.key)["Body"].read())

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Upload(self)

    def to_input_file(self) -> _Object:
        return self

    def _head(self) -> Any:
        return self.client.head_object(Bucket=self.bucket, Key=self.key)


class _Upload(io.BytesIO):
    """Bytes that become an object when they are closed."""

    def __init__(self, item: _Object) -> None:
        super().__init__()
        self._item = item

    def close(self) -> None:
        if not self.closed:
            self._item.client.put_object(Bucket=self._item.bucket, Key=self._item.key, Body=self.getvalue())
        super().close()


def s3(endpoint: str) -> Any:
    """Return an S3 client for an endpoint."""
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )


@dataclass(frozen=True)
class OddWorld:
    """Regions us and eu; the catalog of one test in memory.

    Args:
        source: us's server, which can be stopped.
        us, eu: the servers' addresses.
        writer: PyIceberg's own catalog of the tables, from which they are committed to `main`.
        catalog: sterna's.
        registry: of both regions.
    """

    source: ThreadedMotoServer
    us: str
    eu: str
    writer: Catalog
    catalog: InMemoryCatalog
    registry: Registry

    def context(self) -> RegionContext:
        return injected(self.registry, "eu", environment_secrets(), catalog=self.catalog, primary=self.catalog)

    def sync(self) -> Report:
        """Run a sync for eu; what Spark would localize is localized in this process."""
        return sync(
            self.context(),
            SyncOptions(),
            lambda line: None,
            engine=lambda work, items, label: [work(item) for item in items],
        )

    def create(self, name: str, location: str, **properties: str) -> Table:
        schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
        return self.writer.create_table((NAMESPACE, name), schema, location=location, properties=properties)

    def put_parquet(self, uri: str, *ids: int) -> None:
        """Write a Parquet file with a row for each id."""
        data = io.BytesIO()
        pq.write_table(rows(*ids), data)
        bucket, _, key = uri.partition("://")[2].partition("/")
        s3(self.us).put_object(Bucket=bucket, Key=key, Body=data.getvalue())

    def commit(self, *names: str) -> None:
        """Commit tables to `main` as the writer has them, each in a commit of its own."""
        for name in names:
            head = self.catalog.reference("main").hash
            location = self.writer.load_table((NAMESPACE, name)).metadata_location
            keys = [(NAMESPACE,), (NAMESPACE, name)]
            existing = self.catalog.contents("main", head, keys) if head != self.catalog.no_ancestor() else {}
            before = existing.get(keys[1])
            content = Content.of({"type": ICEBERG_TABLE, "metadataLocation": location, "snapshotId": 1}).with_id(
                before and before.id
            )
            operations = [Put(keys[1], content)]
            if keys[0] not in existing:
                operations.insert(0, Put(keys[0], namespace_content(keys[0])))
            self.catalog.commit("main", head, operations, "write")

    def replica(self) -> dict[str, Content]:
        branch = "main_replica_eu"
        return {
            key_name(key): content for key, content in self.catalog.entries(branch, self.catalog.reference(branch).hash)
        }

    def read_replica(self, name: str) -> list[list[tuple[int, str]]]:
        """Return a replica table's rows at each of its snapshots, oldest first.

        Us is stopped meanwhile, and unknown to the reader.
        """
        location = self.replica()[f"{NAMESPACE}.{name}"].metadata_location or ""
        port = int(self.us.rpartition(":")[2])
        self.source.stop()
        try:
            return read(StaticTable.from_metadata(location, _io({"home": self.eu})))
        finally:
            self.source._port = port
            self.source.start()

    def read_main(self, name: str) -> list[list[tuple[int, str]]]:
        """Return the same of the table on `main`."""
        return read(self.writer.load_table((NAMESPACE, name)))

    def replica_keys(self) -> set[str]:
        """Every key of eu's bucket, sterna's notes of its runs aside."""
        pages = s3(self.eu).get_paginator("list_objects_v2").paginate(Bucket="home")
        return {item["Key"] for page in pages for item in page.get("Contents", []) if "/_sterna/" not in item["Key"]}


def read(table: Table) -> list[list[tuple[int, str]]]:
    """Return the rows of a table at each of its snapshots, oldest first, sorted."""
    scans = [table.scan(snapshot_id=snapshot.snapshot_id).to_arrow() for snapshot in table.snapshots()]
    return [sorted(zip(scan["id"].to_pylist(), scan["word"].to_pylist(), strict=True)) for scan in scans]


def rows(*ids: int) -> pa.Table:
    """Return rows with these ids."""
    return pa.table({"id": pa.array(ids, pa.int64()), "word": pa.array([f"n{id}" for id in ids])})


@contextmanager
def odd_servers(folder: Path) -> Iterator[tuple[ThreadedMotoServer, str, str]]:
    """Start both servers.

    Moto's state belongs to a process, so that the replica's is another one, which can't hold us's objects.
    """
    source = ThreadedMotoServer(LOOPBACK, port=0, verbose=False)
    source.start()
    us, eu = f"http://{LOOPBACK}:{source.get_host_and_port()[1]}", f"http://{LOOPBACK}:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", eu.rpartition(":")[2]]
    process = start_process("moto", command, log=folder / "moto.log")
    try:
        wait_until_ready(process, lambda: urllib.request.urlopen(eu, timeout=5).status == 200, timeout=60)
        s3(us).create_bucket(Bucket="lake")
        s3(eu).create_bucket(Bucket="home")
        yield source, us, eu
    finally:
        process.stop()
        source.stop()


@contextmanager
def odd_world(servers: tuple[ThreadedMotoServer, str, str], folder: Path) -> Iterator[OddWorld]:
    """Set up catalogs and credentials of one test."""
    source, us, eu = servers
    writer = SqlCatalog("writer", uri=f"sqlite:///{folder}/writer.db", warehouse=US, **_io({"lake": us}))
    writer.create_namespace(NAMESPACE)
    connection = json.dumps({"conn_type": "aws", "login": KEY, "password": SECRET})
    with temporary_environment({"AIRFLOW_CONN_ODD_STORE": connection}):
        yield OddWorld(source, us, eu, writer, InMemoryCatalog(), _registry({US: us, EU: eu}))


def _io(endpoints: dict[str, str]) -> dict[str, str]:
    return {
        "py-io-impl": f"{__name__}.LiteralIO",
        **{f"endpoint.{bucket}": endpoint for bucket, endpoint in endpoints.items()},
    }


def _registry(endpoints: dict[str, str]) -> Registry:
    regions = {"us": US, "eu": EU}
    return Registry.model_validate(
        {
            "regions": [
                {"name": name, "replica_root": f"{prefix}/replica", "catalog": {"read": "http://127.0.0.1:1/api/v2"}}
                for name, prefix in regions.items()
            ],
            "locations": [
                {
                    "id": name,
                    "prefix": prefix,
                    "region": name,
                    "remote": {"type": "s3", "options": {"endpoint": endpoints[prefix]}},
                    "credential_id": "odd_store",
                }
                for name, prefix in regions.items()
            ],
        }
    )
