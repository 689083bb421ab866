"""The embedded deployment as one thing.

Catalog, object stores, registry and credentials of several regions on one machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from sterna.errors import EngineError
from sterna.servers.access import TokenIssuer
from sterna.servers.airflow import Airflow, create_airflow_tables, start_airflow
from sterna.servers.jars import fetch_jars
from sterna.servers.nessie import Nessie, Warehouse, start_nessie
from sterna.servers.postgres import Database, Postgres, start_postgres
from sterna.servers.process import start_in_parallel, stop_all
from sterna.servers.registry_file import (
    bucket_name,
    catalog_credential_id,
    create_key_pair,
    deployment_environment,
    write_registry,
)
from sterna.servers.s3 import Endpoint, start_combined_s3, start_s3


@dataclass(frozen=True)
class Deployment:
    """A running embedded deployment.

    Args:
        regions: the regions' names.
        endpoints: region → its own S3 endpoint.
        combined_endpoint: the endpoint that serves all regions' buckets, for engines that read or write `main`.
        registry: the path of its storage_registry.yaml.
        environment: variables for whatever works with it: the registry's path, credentials, settings of AWS clients;
            secret.
        postgres: the database server; None where the catalog is in memory.
    """

    work: Path
    regions: tuple[str, ...]
    nessie: Nessie
    endpoints: Mapping[str, Endpoint]
    combined_endpoint: Endpoint
    registry: Path
    environment: Mapping[str, str] = field(repr=False)
    postgres: Postgres | None
    _airflow_tables: Database | None = field(repr=False)
    _stack: ExitStack = field(repr=False)

    def warehouse(self, region: str) -> str:
        """Return the URI below which tables that are born in a region are made."""
        return f"s3://{bucket_name(region)}/warehouse"

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


@contextmanager
def deployment(
    work: Path,
    regions: Sequence[str] = ("us", "eu"),
    *,
    postgres: bool = True,
    postgres_settings: Mapping[str, str] | None = None,
    airflow: bool = False,
    count_requests: bool = False,
    token_issuer: TokenIssuer | None = None,
    console: Console | None = None,
) -> Iterator[Deployment]:
    """Start catalog and object stores for some regions, and stop all of it at the end.

    Args:
        work: a folder for data, logs and the registry; made if it is not there, never removed.
        regions: the regions' names.
        postgres: keep the catalog in Postgres; else in Nessie's memory, which starts sooner.
        postgres_settings: settings of that server beyond the deployment's own.
        airflow: prepare Airflow's tables, for `Deployment.start_airflow`; needs Postgres.
        count_requests: let the regional endpoints count requests, see `Endpoint.requests`.
        token_issuer: its tokens are accepted by the catalog; the registry and the environment get each region's own.
            None: no authentication.
        console: where downloads are shown; None for standard error.

    Raises:
        EngineError: a part is missing or did not start.
    """
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    fetch_jars(console=console)
    with ExitStack() as stack:
        endpoints, combined_endpoint = _start_stores(stack, work, regions, count_requests=count_requests)
        server = start_postgres(work, postgres_settings) if postgres or airflow else None
        if server is not None:
            stack.callback(server.stop)
        nessie, airflow_tables = start_catalog(work, endpoints, server, token_issuer, airflow=airflow)
        stack.callback(nessie.stop)
        catalogs = {region: _catalog(nessie, region if token_issuer else None) for region in regions}
        registry = write_registry(work, catalogs, endpoints, {})
        yield Deployment(
            work=work,
            regions=tuple(regions),
            nessie=nessie,
            endpoints=endpoints,
            combined_endpoint=combined_endpoint,
            registry=registry,
            environment=deployment_environment(registry, endpoints, token_issuer),
            postgres=server,
            _airflow_tables=airflow_tables,
            _stack=stack,
        )


def _start_stores(
    stack: ExitStack, work: Path, regions: Sequence[str], *, count_requests: bool
) -> tuple[dict[str, Endpoint], Endpoint]:
    """Start each region's own endpoint, then the one that serves the buckets of all of them."""
    combined_keys = create_key_pair()
    start = partial(start_s3, combined_keys=combined_keys, count_requests=count_requests)
    starters = (partial(start, work, region, [bucket_name(region)], *create_key_pair()) for region in regions)
    endpoints = dict(zip(regions, start_in_parallel(stack, *starters), strict=True))
    buckets = {bucket_name(region): endpoint for region, endpoint in endpoints.items()}
    combined_endpoint = start_combined_s3(work, "wide", buckets, *combined_keys)
    stack.callback(combined_endpoint.stop)
    return endpoints, combined_endpoint


def start_catalog(
    work: Path,
    endpoints: Mapping[str, Endpoint],
    server: Postgres | None,
    token_issuer: TokenIssuer | None,
    *,
    airflow: bool,
) -> tuple[Nessie, Database | None]:
    warehouses = [
        Warehouse(region, bucket_name(region), "warehouse", endpoint) for region, endpoint in endpoints.items()
    ]
    airflow_database = server.create_database("airflow") if server and airflow else None
    with ThreadPoolExecutor(max_workers=1) as pool:
        tables = pool.submit(create_airflow_tables, airflow_database, work) if airflow_database else None
        try:
            database = server.create_database("nessie") if server else None
            nessie = start_nessie(work, database=database, warehouses=warehouses, token_issuer=token_issuer)
        except KeyboardInterrupt:
            stop_all()  # else Airflow's tables would be waited for
            raise
    try:
        if tables:
            tables.result()
        return nessie, airflow_database
    except BaseException:
        nessie.stop()
        raise


def _catalog(nessie: Nessie, region: str | None) -> dict[str, object]:
    return {"read": nessie.uri, **({"credential_id": catalog_credential_id(region)} if region else {})}
