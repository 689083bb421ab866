"""The demo's writers: small files posted to the gateways of two regions become few files on `main` and on replicas."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from sterna.config.environment import temporary_environment
from sterna.errors import SternaError
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.servers.stack import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sterna.replication.replica.region import Progress, RegionContext
    from sterna.servers.valkey import ValkeyServer

TABLE = "acme.uploads"
VIEW = "user"  # as the pages' inspector requests
QUERIES = {"uploads": {"sql": f"SELECT count(*) AS users, min(user_id) AS first, max(user_id) AS last FROM {TABLE}"}}  # noqa: S608
FILES, ROWS = 12, 25
_MAX_WAIT_SECONDS = 120.0
_START_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True)
class Uploads:
    """The gateways of all regions.

    Args:
        services: the services file.
        urls: the gateway of each region.
        logins: variables with the logins at the trackers.
        upload_ids: the ids of what was posted, by region.
    """

    services: Path
    urls: Mapping[str, str]
    logins: Mapping[str, str] = field(repr=False)
    upload_ids: dict[str, list[str]] = field(default_factory=dict)


def plan_uploads(stage: Deployment, folder: Path, store: ValkeyServer) -> Uploads:
    """Configure the gateways: the services file, addresses, and logins."""
    services, logins = _write_services(stage, folder, store)
    urls = {region: f"http://{LOOPBACK}:{free_port()}" for region in stage.regions}
    return Uploads(services, urls, logins)


@contextmanager
def run_gateways(stage: Deployment, folder: Path, uploads: Uploads) -> Iterator[Uploads]:
    """Start a gateway a region, with all services that the services file configures.

    Raises:
        EngineError: one doesn't start.
    """
    processes: list[Process] = []
    try:
        for region, url in uploads.urls.items():
            command = [sys.executable, "-m", "sterna.cli.main", "serve", "--region", region]
            command += ["--registry", str(stage.registry), "--services", str(uploads.services)]
            command += ["--port", url.rpartition(":")[2]]
            environ = {**os.environ, **stage.environment, **uploads.logins}
            log = folder / f"gateway-{region}.log"
            processes.append(start_process(f"the gateway of {region}", command, log=log, env=environ))
        for process, url in zip(processes, uploads.urls.values(), strict=True):
            wait_until_ready(process, partial(_is_healthy, url), timeout=_START_TIMEOUT_SECONDS)
        with temporary_environment(uploads.logins):
            yield uploads
    finally:
        for process in processes:
            process.stop()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def _write_services(stage: Deployment, folder: Path, store: ValkeyServer) -> tuple[Path, dict[str, str]]:
    assert stage.postgres is not None
    regions, logins = {}, {}
    for region in stage.regions:
        database = stage.postgres.create_database(f"ingest_{region}")
        tracker = {"credential_id": f"ingest_{region}", "hosts": [f"{database.host}:{database.port}"]}
        regions[region] = {
            "inbox": f"{stage.warehouse(region).rpartition('/')[0]}/inbox",
            "database": {**tracker, "name": database.name},
            "spark": "local[2]",
        }
        login = {"conn_type": "postgres", "login": database.user, "password": database.password}
        logins[f"AIRFLOW_CONN_INGEST_{region.upper()}"] = json.dumps(login)
    tables = [{"match": "acme.*", "create": "auto", "rules": {"files": FILES}, "audit": ["count(user_id) = count(*)"]}]
    ingest = {"regions": regions, "tenants": {"acme": {"namespaces": ["acme"]}}, "tables": tables}
    services = folder / "sterna_services.yaml"
    services.write_text(json.dumps({"ingest": ingest, "queries": QUERIES, "features": _features_section(store)}))
    logins["AIRFLOW_CONN_VALKEY_EU"] = json.dumps({"conn_type": "generic", "password": store.password})
    return services, logins


def _features_section(store: ValkeyServer) -> dict[str, Any]:
    view = {"name": VIEW, "entity": "user", "table": TABLE, "features": [*user_row(0)][1:], "unique": True}
    return {
        "online": {"eu": {"url": store.url, "credential_id": "valkey_eu"}},
        "entities": [{"name": "user", "key": {"user_id": "long"}}],
        "views": [view],
    }


def user_row(id: int) -> dict[str, Any]:
    """Return what the demo posts of a user, the key first."""
    city = ("Bergen", "Lagos", "Lima", "Shanghai")[id % 4]
    return {"user_id": id, "age": 18 + id % 60, "city": city, "last_updated_ts": "2026-05-20T10:00:00.000Z"}


def post_files(uploads: Uploads, contexts: Mapping[str, RegionContext], progress: Progress) -> None:
    """Post small files to each region's gateway, and put them on `main`.

    Raises:
        SternaError: something isn't taken.
    """
    progress(f"writers post {FILES} small files to the gateway of each region, for the table {TABLE}")
    for number, (region, url) in enumerate(uploads.urls.items()):
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            uploads.upload_ids[region] = [_post_file(client, number * FILES + file) for file in range(FILES)]
    for region, context in contexts.items():
        files = _consolidate(context, uploads.services)
        progress(f"    {region}: {FILES} files posted became {files} on main, {FILES * ROWS} rows in one commit")


def _post_file(client: httpx.Client, number: int) -> str:
    rows = "".join(json.dumps(user_row(number * ROWS + row)) + "\n" for row in range(ROWS))
    headers = {"Content-Type": "application/jsonl", "Idempotency-Key": f"demo-{number}"}
    response = client.post(f"/v1/tables/{TABLE}/rows", content=rows, headers=headers)
    if response.status_code != 201:
        raise SternaError(f"a gateway didn't take what was posted: {response.status_code} {response.text[:200]}")
    return str(response.json()["id"])


def _consolidate(context: RegionContext, services: Path) -> int:
    from sterna.config.services_file import read_services
    from sterna.pipelines.ingest.region import open_ingest
    from sterna.pipelines.ingest.worker import run_worker

    ingest = open_ingest(context, read_services(services))
    try:
        summary = run_worker(context, ingest, lambda batch: None, lambda line: None, once=True)
    finally:
        ingest.close()
    if summary.failed:
        raise SternaError(f"what was posted isn't on main: {next(iter(summary.failed.values()))}")
    return sum(batch_summary.files for batch_summary in summary.steps)


def check_uploads(uploads: Uploads, spark: SparkSession, progress: Progress) -> list[str]:
    """Query the gateways for an upload's state, count its table's files and rows in each region; return the faults."""
    failures = []
    regions = list(uploads.urls)
    for region, url in uploads.urls.items():
        upload = _wait_until_served(url, uploads.upload_ids[region][0], regions)
        progress(f"where is my upload {upload['id'][:8]}, posted in {region}? {_upload_text(upload)}")
        if upload["state"] != "published" or None in upload["served"].values():
            failures.append(f"{region}: an upload is {upload['state']}, served {upload['served']}")
    expected = (len(regions), len(regions) * FILES * ROWS)
    for catalog in (f"main_{regions[0]}", *(f"replica_{region}" for region in regions)):
        (files,) = spark.sql(f"SELECT count(*) FROM {catalog}.{TABLE}.files").collect()  # noqa: S608
        (rows,) = spark.sql(f"SELECT count(DISTINCT user_id) FROM {catalog}.{TABLE}").collect()  # noqa: S608
        progress(f"    {catalog:12} {files[0]} files, {rows[0]} rows of {len(regions) * FILES} posted files")
        if (files[0], rows[0]) != expected:
            failures.append(f"{catalog}: {files[0]} files and {rows[0]} rows of {TABLE}, expected {expected}")
    return failures


def _wait_until_served(url: str, upload_id: str, regions: list[str]) -> dict[str, Any]:
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        upload: dict[str, Any] = httpx.get(f"{url}/v1/drops/{upload_id}", timeout=60).json()
        if all(upload["served"].get(region) for region in regions) or time.monotonic() > deadline:
            return upload
        time.sleep(0.5)


def _upload_text(upload: dict[str, Any]) -> str:
    batch = upload["batch"] or {}
    served = ", ".join(f"in {region} since {since}" for region, since in upload["served"].items())
    return f"{upload['state']}, batch {batch.get('number')} of {batch.get('files')} files; served {served}"
