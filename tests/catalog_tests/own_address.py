"""Sterna's own address for `CatalogTests`: a deployment of two regions on this machine, and the address of eu."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from sterna.config.environment import temporary_environment
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.mapping import UriLocation
from sterna.config.secrets import environment_secrets
from sterna.demo.rest_address import serve_catalog
from sterna.replication.replica.region import open_region
from sterna.servers.s3 import Endpoint
from sterna.servers.stack import deployment
from sterna.serving.rest_catalog.client_files import ClientFiles

REGION: Final = "eu"
LOCATION: Final = "s3://eu-lake/tests"
# What the tests add to tables.
_ADDED: Final = tuple(f"/path/to/data-{letter}.parquet" for letter in "abc")
_ADDED_BYTES: Final = 10


@contextmanager
def own_address(work: Path, *, proof: bool) -> Iterator[tuple[str, Endpoint]]:
    """Start a deployment and the address of eu; yield its URL and the region's S3 endpoint.

    Args:
        work: a folder for data and logs.
        proof: look whether the files that a commit adds are there and the table's, as the address does. Without it
            the tests' made-up files are taken.
    """
    with ExitStack() as stack:
        stage = stack.enter_context(deployment(work, postgres=False))
        stack.enter_context(temporary_environment(stage.environment))
        context = stack.enter_context(open_region(stage.registry, REGION, environment_secrets()))
        if not proof:
            stack.enter_context(without_proof())
            for name in _ADDED:  # a sync looks whether the region's own files are there
                context.objects.write_new(f"{LOCATION}{name}", bytes(_ADDED_BYTES))
        yield stack.enter_context(serve_catalog(context)), stage.endpoints[REGION]


@contextmanager
def without_proof() -> Iterator[None]:
    """Take files that are nowhere, or no table's: names that are no URIs count as this region's.

    `CatalogTests` adds `/path/to/data-a.parquet` to tables, and never reads it.
    """
    locate = RegionMapping.locate

    def locate_any(mapping: RegionMapping, uri: str) -> UriLocation:
        return locate(mapping, uri if _is_uri(uri) else f"{LOCATION}/{uri.lstrip('/')}")

    with (
        patch.object(RegionMapping, "locate", locate_any),
        patch.object(ClientFiles, "require_place"),
        patch.object(ClientFiles, "require_present"),
    ):
        yield


def _is_uri(name: str) -> bool:
    return "://" in name
