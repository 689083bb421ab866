"""The tables in tests/data/strangers/tables, which other writers wrote, and a place from which readers read them."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import boto3

from sterna.catalog.model import Content, Delete, Key, Put, namespace_content
from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from tests.support.world import World

FOLDER = Path(__file__).parents[1] / "data" / "strangers" / "tables"
NAMESPACE = "of_others"
BUCKET = "us-lake"
PREFIX = "strangers"
_KEYS = {"aws_access_key_id": "reader", "aws_secret_access_key": "of-strangers"}
_REGION = "us-east-1"
_START_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Stranger:
    """A table of another writer's.

    Args:
        name: its folder.
        rows: what its current snapshot has, as its writer's script says: numbers, or text.
    """

    name: str
    rows: list[list[Any]]

    @property
    def files(self) -> dict[str, Path]:
        """Its files by their keys in the bucket that its metadata names."""
        folder = FOLDER / self.name
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {f"{PREFIX}/{self.name}/{path.relative_to(folder).as_posix()}": path for path in paths}

    @property
    def _newest(self) -> tuple[str, Path]:
        candidates = [(key, path) for key, path in self.files.items() if path.name.endswith(".metadata.json")]
        return max(candidates, key=lambda item: int(item[1].name.lstrip("v").split("-")[0].split(".")[0]))

    @property
    def location(self) -> str:
        """The URI of its newest metadata.json."""
        return f"s3://{BUCKET}/{self._newest[0]}"

    def content(self) -> dict[str, Any]:
        """Return what a catalog says of it."""
        path = self._newest[1]
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return {
            "type": "ICEBERG_TABLE",
            "metadataLocation": self.location,
            "snapshotId": document["current-snapshot-id"],
            "schemaId": document["current-schema-id"],
            "specId": document["default-spec-id"],
            "sortOrderId": document["default-sort-order-id"],
        }


def strangers() -> list[Stranger]:
    """Return all of them, by name."""
    rows = json.loads((FOLDER / "rows.json").read_text())
    return [Stranger(name, rows[name]) for name in sorted(rows)]


def without(rows: list[list[Any]], column: int | None) -> list[list[Any]]:
    """Return rows with null in one column.

    Args:
        rows: lists of values.
        column: its place; None: in no column.
    """
    return [[None if place == column else value for place, value in enumerate(row)] for row in rows]


@contextmanager
def replicated_strangers(world: World) -> Iterator[None]:
    """Have all of them on `main`, their files where their metadata says, replicated to eu; dropped at the end."""
    us = world.stage.endpoints["us"]
    assert us.folder is not None
    tables = strangers()
    keys: list[Key] = [(NAMESPACE, table.name) for table in tables]
    for table in tables:
        for key, path in table.files.items():
            target = us.folder / BUCKET / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    _wait_until_shown(world, [f"s3://{BUCKET}/{key}" for table in tables for key in table.files])
    puts = [Put(key, Content.of(table.content())) for key, table in zip(keys, tables, strict=True)]
    head = world.catalog.reference("main").hash
    head = world.catalog.commit(
        "main", head, [Put((NAMESPACE,), namespace_content((NAMESPACE,))), *puts], "register tables of others"
    )
    report = world.sync()
    assert not report.held, report.held
    yield
    head = world.catalog.reference("main").hash
    world.catalog.commit("main", head, [*(Delete(key) for key in keys), Delete((NAMESPACE,))], "drop them")


def _wait_until_shown(world: World, uris: list[str]) -> None:
    """Wait until the store shows files that were written past it: it keeps what it listed for a second."""
    deadline = time.monotonic() + _START_SECONDS
    with world.context("us") as context:
        while None in context.objects.sizes(uris).values():
            assert time.monotonic() < deadline, "the store doesn't show files of its folder"
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class ReadersStore:
    """An S3 endpoint that answers each kind of range, as `rclone serve s3` does not.

    Args:
        endpoint: its address.
        client: boto3's client of it.
    """

    endpoint: str
    client: Any

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": _KEYS["aws_access_key_id"],
            "s3.secret-access-key": _KEYS["aws_secret_access_key"],
            "s3.region": _REGION,
        }

    def fill(self, bucket: str, folder: Path, *prefixes: str) -> None:
        """Put a folder's files into a new bucket.

        Args:
            bucket: its name.
            folder: the folder that is the bucket's root.
            prefixes: only what is below these folders in it.
        """
        self.client.create_bucket(Bucket=bucket)
        for path in chain.from_iterable((folder / prefix).rglob("*") for prefix in prefixes):
            if path.is_file():
                self.client.put_object(Bucket=bucket, Key=path.relative_to(folder).as_posix(), Body=path.read_bytes())

    def remove(self, bucket: str) -> None:
        """Remove a bucket and what is in it."""
        for item in self.client.list_objects_v2(Bucket=bucket).get("Contents", []):
            self.client.delete_object(Bucket=bucket, Key=item["Key"])
        self.client.delete_bucket(Bucket=bucket)


@contextmanager
def readers_store(folder: Path) -> Iterator[ReadersStore]:
    """Start an empty one, as a process of its own: engines block Python's threads while they ask.

    Args:
        folder: where its log is written.
    """
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    process = start_process("moto", command, log=folder / "moto.log", env=dict(os.environ))
    endpoint = f"http://{LOOPBACK}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=_REGION, **_KEYS)

    def answers() -> bool:
        with socket.create_connection((LOOPBACK, port), timeout=5):
            return True

    try:
        wait_until_ready(process, answers, timeout=_START_SECONDS)
        yield ReadersStore(endpoint, client)
    finally:
        process.stop()
