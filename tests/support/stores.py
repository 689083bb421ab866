"""Object stores that the suites run against.

`rclone serve s3`, moto and the local disk, each with a registry of two regions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moto.server import ThreadedMotoServer

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.servers.s3 import Endpoint, start_s3
from sterna.storage.objects import Objects

KEY = "AKIASTERNA"
SECRET = "wJalrXUtnFEMIK7MDENGbPx"
# Every byte must arrive as it is: what URLs, shells, XML, Hive's escapes, rclone's own replacements and list files make
# special.
ODD = [
    "a b",
    " lead",
    "trail ",
    "p=1/x",
    "day=2020-01-01 00%3A00%3A00/f",
    "a%20b",
    "a%2Fb",
    "%",
    "%25",
    "a#b",
    "#x",
    "a+b",
    "a&b",
    "a<b>",
    'a"b',
    "a'b",
    "a`b`",
    "$(touch x)",
    "-x",
    "--x",
    "~x",
    "a:b",
    "a|b",
    "a\\b",
    "a*b",
    "[y]",
    "{x}",
    ".hidden",
    "...",
    "ünï/日本",
    "é",
    "e\u0301",
    "\u2400",
    "\u2401",
    "\u201bq",
    "\uff0e",
    "\uff0f",
    "\U0001f426",
]
# `rclone serve s3` takes two names that differ in Unicode normalization alone for one, and one with its quoting
# character for the name without it as soon as it reads its folder again, a second later.
RCLONE_ALIKE = frozenset({"e\u0301", "\u201bq"})


@dataclass(frozen=True)
class Stores:
    """Two regions' stores: `us` is read, `eu` is this region; names that one of them takes for others are `alike`."""

    objects: Objects
    us: str
    eu: str
    endpoints: tuple[Endpoint, ...] = ()
    alike: frozenset[str] = frozenset()

    @property
    def mapping(self) -> Mapping:
        return self.objects.mapping

    def put(self, uri: str, data: bytes) -> None:
        assert self.objects.write_new(uri, data) == len(data)

    def respelled(self, uri: str) -> str:
        """Return a URI in another spelling of the same place; itself where its scheme has but one."""
        for start, other in (("s3://", "s3a://"), ("abfss://", "abfs://"), ("file:///", "file:/")):
            uri = uri.replace(start, other)
        return uri

    def with_location(self, id: str, secret: str = SECRET, **changes: Any) -> Stores:
        """Return the same stores with one location changed in the registry, and possibly another secret."""
        content = self.mapping.registry.model_dump(mode="json")
        next(item for item in content["locations"] if item["id"] == id).update(changes)
        if "prefix" in changes:
            next(item for item in content["regions"] if item["name"] == id)["replica_root"] = (
                f"{changes['prefix']}/replica"
            )
        return replace(self, objects=_objects(content, self.objects.timeout, secret))


def make(prefixes: dict[str, str], remotes: dict[str, dict[str, Any]], endpoints: tuple[Endpoint, ...] = ()) -> Stores:
    """Build a registry over two prefixes."""
    content = {
        "regions": [
            {"name": name, "replica_root": f"{prefix}/replica's root", "catalog": {"read": "http://127.0.0.1:1"}}
            for name, prefix in prefixes.items()
        ],
        "locations": [
            {"id": name, "prefix": prefix, "region": name, "remote": remotes[name], "credential_id": f"{name}_store"}
            for name, prefix in prefixes.items()
        ],
    }
    return Stores(
        _objects(content), prefixes["us"], prefixes["eu"], endpoints, RCLONE_ALIKE if endpoints else frozenset()
    )


def _objects(content: dict[str, Any], timeout: float = 20.0, secret: str = SECRET) -> Objects:
    registry = Registry.model_validate(content)
    connection = json.dumps({"conn_type": "aws", "login": KEY, "password": secret})
    secrets = environment_secrets({f"AIRFLOW_CONN_{name}_STORE": connection for name in ("US", "EU")})
    return Objects(Mapping(registry, registry.region("eu")), secrets, timeout=timeout, workers=8)


@contextmanager
def rclone_stores(folder: Path) -> Iterator[Stores]:
    us = start_s3(folder, "us", ["lake"], KEY, SECRET, count_requests=True)
    eu = start_s3(folder, "eu", ["home"], KEY, SECRET, count_requests=True)
    try:
        remotes = {one.name: {"type": "s3", "options": {"provider": "Rclone", "endpoint": one.url}} for one in (us, eu)}
        yield make({"us": "s3://lake/ware house", "eu": "s3://home"}, remotes, (us, eu))
    finally:
        us.stop()
        eu.stop()


@contextmanager
def moto_stores() -> Iterator[Stores]:
    import boto3

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
        )
        for bucket in ("lake", "home"):
            client.create_bucket(Bucket=bucket)
        remotes = {name: {"type": "s3", "options": {"endpoint": endpoint}} for name in ("us", "eu")}
        yield make({"us": "s3://lake/ware house", "eu": "s3://home"}, remotes)
    finally:
        server.stop()


@contextmanager
def file_stores(folder: Path) -> Iterator[Stores]:
    for name in ("lake", "home"):
        (folder / name).mkdir(parents=True)
    yield make(
        {"us": f"file://{folder}/lake", "eu": f"file://{folder}/home"},
        {name: {"type": "local"} for name in ("us", "eu")},
    )
