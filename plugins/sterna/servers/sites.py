"""Regions with a catalog of their own on one machine.

Each has its Postgres, its Nessie and its S3 endpoint, and can be killed as one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from sterna.config.registry.model import Registry
from sterna.config.secrets import Secrets, environment_secrets
from sterna.errors import EngineError
from sterna.replication.failover.promote import plan_promotion, promote
from sterna.replication.replica.region import read_registry
from sterna.servers.jars import fetch_jars
from sterna.servers.nessie import Nessie, Warehouse, start_nessie
from sterna.servers.postgres import Database, Postgres, start_postgres
from sterna.servers.process import LOOPBACK, Process, free_port, start_in_parallel
from sterna.servers.registry_file import bucket_name, create_key_pair, deployment_environment, write_registry
from sterna.servers.s3 import Endpoint, start_s3

# What every region's Postgres needs; see nessie/postgresql.conf for the reasons.
SETTINGS = {
    "wal_level": "logical",
    "max_slot_wal_keep_size": "256MB",
    "wal_receiver_timeout": "10s",
    "wal_sender_timeout": "10s",
    "wal_retrieve_retry_interval": "1s",
    # An acknowledged commit outlives the server's sudden end. The disk itself doesn't fail here, so fsync stays off.
    "synchronous_commit": "on",
    # At least one for each region's slot, and the workers of one subscription.
    "max_replication_slots": "10",
    "max_wal_senders": "10",
}


@dataclass
class EmbeddedSite:
    """One region's servers; each may be killed and started again.

    Args:
        work: its folder, for logs.
        postgres: the database server.
        database: the catalog's database, with the login of Nessie.
        endpoint: the object store; None while it is dark.
        nessie: the catalog's server; None while there is none.
        port: Nessie's port, which stays the same.
    """

    region: str
    work: Path
    postgres: Postgres
    database: Database
    endpoint: Endpoint
    port: int
    warehouses: Sequence[Warehouse] = ()
    nessie: Nessie | None = None

    @property
    def uri(self) -> str:
        """The address of its Nessie's API v2."""
        return f"http://{LOOPBACK}:{self.port}/api/v2"

    @property
    def iceberg_uri(self) -> str:
        """The address of its Nessie's Iceberg REST."""
        return f"http://{LOOPBACK}:{self.port}/iceberg"

    def start_nessie(self) -> None:
        """Start the region's Nessie; on a copy it needs that the copy was seeded."""
        self.nessie = start_nessie(self.work, database=self.database, warehouses=self.warehouses, port=self.port)

    def start_postgres(self) -> None:
        """Start the region's Postgres again, on the data that it had."""
        self.postgres = self.postgres.restart()

    def kill(self) -> None:
        """End the region's servers at once, as a power cut does; the disks stay."""
        for process in (self.nessie and self.nessie.process, self.postgres.process, self.endpoint.process):
            if process:
                kill(process)

    def stop(self) -> None:
        """End what runs."""
        if self.nessie:
            self.nessie.stop()
        self.postgres.stop()


def kill(process: Process) -> None:
    """Kill a server and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.stop()


@dataclass(frozen=True)
class Sites:
    """Running regions.

    Args:
        by_region: region → its servers.
        registry: the path of their storage_registry.yaml.
        environment: variables for whatever works with them; secret.
    """

    work: Path
    by_region: Mapping[str, EmbeddedSite]
    registry: Path
    environment: Mapping[str, str] = field(repr=False)

    @property
    def secrets(self) -> Secrets:
        """Finds the credentials of all of them."""
        return environment_secrets(self.environment)

    def read_registry(self) -> Registry:
        """Read the registry."""
        return read_registry(self.registry)


@contextmanager
def sites(
    work: Path,
    regions: Sequence[str] = ("us", "eu"),
    *,
    console: Console | None = None,
    verbatim_copies: bool = False,
) -> Iterator[Sites]:
    """Start some regions, the first of them as the primary, and stop all of them at the end.

    Args:
        work: a folder for data, logs and the registry; made if it is not there, never removed.
        console: where downloads are shown; None for standard error.
        verbatim_copies: whether each region keeps verbatim copies.

    Raises:
        EngineError: a part is missing or did not start.
    """
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    fetch_jars(console=console)
    with ExitStack() as stack:
        yield _connect_sites(work, _start_sites(stack, work, regions), verbatim_copies=verbatim_copies)


def _start_sites(stack: ExitStack, work: Path, regions: Sequence[str]) -> dict[str, EmbeddedSite]:
    """Start each region's endpoint and Postgres; its Nessie waits until the registry is written."""
    stores = (
        partial(start_s3, work, region, [bucket_name(region)], *create_key_pair(), count_requests=True)
        for region in regions
    )
    endpoints = start_in_parallel(stack, *stores)
    warehouses = [
        Warehouse(region, bucket_name(region), "warehouse", end) for region, end in zip(regions, endpoints, strict=True)
    ]
    servers = start_in_parallel(stack, *(partial(start_postgres, work / region, SETTINGS) for region in regions))
    sites_by_region = {}
    for region, endpoint, server in zip(regions, endpoints, servers, strict=True):
        database = server.create_database("nessie")
        sites_by_region[region] = EmbeddedSite(
            region, work / region, server, database, endpoint, free_port(), warehouses
        )
        stack.callback(sites_by_region[region].stop)
    return sites_by_region


def _connect_sites(work: Path, sites_by_region: Mapping[str, EmbeddedSite], *, verbatim_copies: bool) -> Sites:
    """Write the registry, make the first region the primary and let the others follow; then start their Nessies."""
    first = next(iter(sites_by_region.values()))
    endpoints = {region: site.endpoint for region, site in sites_by_region.items()}
    catalogs = {region: catalog_of(site) for region, site in sites_by_region.items()}
    path = write_registry(work, catalogs, endpoints, {}, verbatim_copies=verbatim_copies)
    logins = {
        f"AIRFLOW_CONN_{_credential_id(region).upper()}": json.dumps(
            {"conn_type": "postgres", "login": site.postgres.admin.user, "password": site.postgres.admin.password}
        )
        for region, site in sites_by_region.items()
    }
    running = Sites(work, sites_by_region, path, {**deployment_environment(path, endpoints), **logins})
    first.start_nessie()
    registry = running.read_registry()
    plan = plan_promotion(registry, running.secrets, first.region, planned=False)
    promotion = promote(registry, running.secrets, plan, lambda line: None)
    if promotion.left:
        raise EngineError(f"a region does not follow {first.region}: {promotion.left}")
    for site in sites_by_region.values():
        if site is not first:
            site.start_nessie()
    return running


def catalog_of(site: EmbeddedSite) -> dict[str, object]:
    """Return the registry's mapping of a site's catalog."""
    database = {
        "hosts": [f"{LOOPBACK}:{site.postgres.admin.port}"],
        "name": site.database.name,
        "role": site.database.user,
        "credential_id": _credential_id(site.region),
        "sslmode": "disable",
    }
    return {"read": site.uri, "database": database}


def _credential_id(region: str) -> str:
    return f"catalog_{region.replace('-', '_')}"
