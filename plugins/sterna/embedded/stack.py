"""The embedded deployment as one thing.

Catalog, object stores, registry and credentials of several regions on one machine.
"""

from __future__ import annotations

import json
import os
import secrets
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from sterna.embedded.access import Access
from sterna.embedded.airflow import Airflow, create_airflow_database, start_airflow
from sterna.embedded.connect import SparkConnect, connect_url, start_spark_connect
from sterna.embedded.jars import fetch_jars
from sterna.embedded.nessie import Nessie, Warehouse, start_nessie
from sterna.embedded.postgres import Database, Postgres, start_postgres
from sterna.embedded.process import free_port, start_together
from sterna.embedded.s3 import CLIENT_ENVIRONMENT, Endpoint, start_s3, start_wide_s3
from sterna.errors import EngineError

_EGRESS_PER_GB = 0.02  # what the large clouds ask between two of their regions, so that a plan has a price to show


@dataclass(frozen=True)
class Deployment:
    """A running embedded deployment.

    Args:
        work: its folder.
        regions: the regions' names.
        nessie: the catalog.
        endpoints: region → its own S3 endpoint.
        wide: the endpoint that serves all regions' buckets, for engines that read or write `main`.
        registry: the path of its storage_registry.yaml.
        environment: variables for whatever works with it: the registry's path, credentials, settings of AWS clients;
            secret.
        postgres: the database server; None where the catalog is in memory.
    """

    work: Path
    regions: tuple[str, ...]
    nessie: Nessie
    endpoints: Mapping[str, Endpoint]
    wide: Endpoint
    registry: Path
    environment: Mapping[str, str] = field(repr=False)
    postgres: Postgres | None
    _spark_ports: Mapping[str, int] = field(repr=False)
    _airflow_tables: Database | None = field(repr=False)
    _stack: ExitStack = field(repr=False)

    def warehouse(self, region: str) -> str:
        """Return the URI below which tables that are born in a region are made."""
        return f"s3://{bucket(region)}/warehouse"

    def start_spark(self, region: str) -> SparkConnect:
        """Start a region's Spark Connect server; it is stopped with the deployment.

        Raises:
            EngineError: the deployment was started without `connect=True`, or the server did not start.
        """
        if region not in self._spark_ports:
            raise EngineError("this deployment's registry names no Spark Connect", hint="start it with connect=True")
        server = start_spark_connect(self.work, region, self._spark_ports[region])
        self._stack.callback(server.stop)
        return server

    def start_airflow(
        self,
        region: str,
        dags_folder: Path,
        *,
        plugins_folder: Path | None = None,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Airflow:
        """Start a region's own Airflow; it is stopped with the deployment. Several may be started at once, from
        threads.

        Args:
            region: the region.
            dags_folder: its DAG files.
            plugins_folder: its plugins folder; None for an empty one.
            port: the port of its pages; None for a free one.
            env: variables beyond the deployment's own.

        Raises:
            EngineError: the deployment was started without `airflow=True`, or Airflow did not start.
        """
        if self.postgres is None or self._airflow_tables is None:
            raise EngineError("this deployment was started without Airflow's tables", hint="start it with airflow=True")
        database = self.postgres.copy_database(self._airflow_tables, f"airflow_{region}")
        settings = {"AIRFLOW__STERNA__REGION": region, "AIRFLOW__STERNA__REGISTRY": str(self.registry)}
        environ = {**self.environment, **settings, **(env or {})}
        airflow = start_airflow(
            self.work, region, database, dags_folder, plugins_folder=plugins_folder, port=port, env=environ
        )
        self._stack.callback(airflow.stop)
        return airflow


def bucket(region: str) -> str:
    """Return the name of a region's bucket."""
    return f"{region}-lake"


@contextmanager
def deployment(
    work: Path,
    regions: Sequence[str] = ("us", "eu"),
    *,
    postgres: bool = True,
    airflow: bool = False,
    connect: bool = False,
    count_requests: bool = False,
    access: Access | None = None,
    console: Console | None = None,
) -> Iterator[Deployment]:
    """Bring up catalog and object stores for some regions, and stop all of it at the end.

    Args:
        work: a folder for data, logs and the registry; made if it is not there, never removed.
        regions: the regions' names.
        postgres: keep the catalog in Postgres; else in Nessie's memory, which starts sooner.
        airflow: prepare Airflow's tables, for `Deployment.start_airflow`; needs Postgres.
        connect: let the registry name a Spark Connect server a region, for `Deployment.start_spark`; else each sync has
            its own Spark.
        count_requests: let the regional endpoints count requests, see `Endpoint.requests`.
        access: whose tokens the catalog believes; the registry and the environment get each region's own. None: no
            authentication.
        console: where downloads are shown; None for standard error.

    Raises:
        EngineError: a part is missing or did not start.
    """
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    fetch_jars(console=console)
    with ExitStack() as stack:
        endpoints, wide = _start_stores(stack, work, regions, count_requests=count_requests)
        server = start_postgres(work) if postgres or airflow else None
        if server is not None:
            stack.callback(server.stop)
        nessie, airflow_tables = _start_catalog(work, endpoints, server, access, airflow=airflow)
        stack.callback(nessie.stop)
        ports = {region: free_port() for region in regions} if connect else {}
        catalogs = {region: _catalog(nessie, region if access else None) for region in regions}
        registry = write_registry(work, catalogs, endpoints, ports)
        yield Deployment(
            work=work,
            regions=tuple(regions),
            nessie=nessie,
            endpoints=endpoints,
            wide=wide,
            registry=registry,
            environment=environment_of(registry, endpoints, access),
            postgres=server,
            _spark_ports=ports,
            _airflow_tables=airflow_tables,
            _stack=stack,
        )


def _start_stores(
    stack: ExitStack, work: Path, regions: Sequence[str], *, count_requests: bool
) -> tuple[dict[str, Endpoint], Endpoint]:
    """Start each region's own endpoint, then the one that serves the buckets of all of them."""
    wide_keys = new_keys()
    start = partial(start_s3, wide_keys=wide_keys, count_requests=count_requests)
    starters = (partial(start, work, region, [bucket(region)], *new_keys()) for region in regions)
    endpoints = dict(zip(regions, start_together(stack, *starters), strict=True))
    buckets = {bucket(region): endpoint for region, endpoint in endpoints.items()}
    wide = start_wide_s3(work, "wide", buckets, *wide_keys)
    stack.callback(wide.stop)
    return endpoints, wide


def _start_catalog(
    work: Path, endpoints: Mapping[str, Endpoint], server: Postgres | None, access: Access | None, *, airflow: bool
) -> tuple[Nessie, Database | None]:
    warehouses = [Warehouse(region, bucket(region), "warehouse", endpoint) for region, endpoint in endpoints.items()]
    with ThreadPoolExecutor(max_workers=1) as pool:
        tables = pool.submit(create_airflow_database, server, work) if server and airflow else None
        nessie = start_nessie(
            work, database=server.create_database("nessie") if server else None, warehouses=warehouses, access=access
        )
    try:
        return nessie, tables.result() if tables else None
    except BaseException:
        nessie.stop()
        raise


def write_registry(
    work: Path,
    catalogs: Mapping[str, Mapping[str, object]],
    endpoints: Mapping[str, Endpoint],
    spark_ports: Mapping[str, int],
) -> Path:
    """Write a deployment's registry and return its path.

    Args:
        work: the folder it is written to.
        catalogs: region → what stands under its `catalog`.
        endpoints: region → its S3 endpoint.
        spark_ports: region → the port of its Spark Connect server, where it is to have one.
    """
    regions = [_region_entry(region, catalogs[region], spark_ports.get(region)) for region in endpoints]
    locations = [_location_entry(region, endpoint) for region, endpoint in endpoints.items()]
    path = work / "storage_registry.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "regions": regions, "locations": locations}, sort_keys=False))
    return path


def _region_entry(region: str, catalog: Mapping[str, object], spark_port: int | None) -> dict[str, object]:
    return {
        "name": region,
        "replica_root": f"s3://{bucket(region)}/replica",
        "catalog": dict(catalog),
        "spark": "local[2]" if spark_port is None else connect_url(spark_port),
        # Who asks for a Spark Connect server wants to see it used: nothing here is large enough to need it.
        "localize": "auto" if spark_port is None else "spark",
    }


def _location_entry(region: str, endpoint: Endpoint) -> dict[str, object]:
    store = {"provider": "Rclone", "endpoint": endpoint.url, "region": endpoint.region, "force_path_style": "true"}
    return {
        "id": bucket(region),
        "prefix": f"s3://{bucket(region)}",
        "region": region,
        "remote": {"type": "s3", "options": store},
        "credential_id": _credential(region),
        "egress_per_gb": {"*": _EGRESS_PER_GB},
    }


def environment_of(registry: Path, endpoints: Mapping[str, Endpoint], access: Access | None = None) -> dict[str, str]:
    """Return the variables with which anything works with a deployment: the registry's path, the stores' credentials.

    Secret.
    """
    credentials = {
        f"AIRFLOW_CONN_{_credential(region).upper()}": json.dumps(
            {"conn_type": "aws", "login": endpoint.access_key, "password": endpoint.secret_key}
        )
        for region, endpoint in endpoints.items()
    }
    if access is not None:
        tokens = {region: access.token(f"sterna-{region}", f"replicator-{region}") for region in endpoints}
        credentials |= {
            f"AIRFLOW_CONN_{_catalog_credential(region).upper()}": json.dumps(
                {"conn_type": "sterna_nessie", "password": token}
            )
            for region, token in tokens.items()
        }
    # Tasks and commands look for rclone beside their Python, whichever way they were started.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    return {"STERNA_REGISTRY": str(registry), "PATH": path, **credentials, **CLIENT_ENVIRONMENT}


def _credential(region: str) -> str:
    return f"sterna_{region.replace('-', '_')}"


def _catalog(nessie: Nessie, region: str | None) -> dict[str, object]:
    return {"read": nessie.uri, **({"credential_id": _catalog_credential(region)} if region else {})}


def _catalog_credential(region: str) -> str:
    return f"nessie_{region.replace('-', '_')}"


def new_keys() -> tuple[str, str]:
    """Return a new access key and secret key."""
    return f"STERNA{secrets.token_hex(7).upper()}", secrets.token_urlsafe(30)
