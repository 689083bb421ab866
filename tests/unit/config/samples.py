"""Registries that the tests share."""

from typing import Any

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.config.registry.remote_types import STORE_TYPES, TYPE_BY_SCHEME

PREFIXES = {name: f"{store_type.schemes[0]}://lake" for name, store_type in STORE_TYPES.items()}
"""A prefix of each type of store."""
PREFIXES |= {"azureblob": "abfss://lake@acc.dfs.core.windows.net", "local": "file:///lake"}


def location(id: str, prefix: str, region: str = "us", **more: Any) -> dict[str, Any]:
    kind = TYPE_BY_SCHEME.get(prefix.partition(":")[0], "s3")
    return {"id": id, "prefix": prefix, "region": region, "remote": {"type": kind}, **more}


def region(name: str, root: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "replica_root": root, "catalog": {"read": "http://127.0.0.1:19120/api/v2"}, **more}


def content(
    locations: list[dict[str, Any]] | None = None, regions: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "regions": regions or [region("us", "s3://us-bucket/replica"), region("eu", "s3://eu-bucket/replica")],
        "locations": [location("us", "s3://us-bucket"), location("eu", "s3://eu-bucket", "eu"), *(locations or [])],
    }


def registry(locations: list[dict[str, Any]] | None = None, regions: list[dict[str, Any]] | None = None) -> Registry:
    return Registry.model_validate(content(locations, regions))


def mapping(*locations: dict[str, Any], name: str = "eu") -> Mapping:
    parsed = registry(list(locations))
    return Mapping(parsed, parsed.region(name))
