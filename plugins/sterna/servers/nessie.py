"""The catalog of the embedded deployment: a Nessie server, in memory or on Postgres."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from urllib.parse import quote

from rich.console import Console

from sterna.errors import EngineError
from sterna.jvm.class_data_sharing import archive_options
from sterna.jvm.java import find_java
from sterna.servers.access import TokenIssuer
from sterna.servers.jars import NESSIE, fetch_jars
from sterna.servers.postgres import Database
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.servers.s3 import Endpoint

_START_SECONDS = 90.0
_WARM_UP_SECONDS = 120.0
_CLEAN_EXIT_CODES = (0, -signal.SIGTERM, 128 + signal.SIGTERM)  # a JVM that was terminated
# Small and quick to start rather than quick in the long run: one collector thread, no optimising compiler.
_JVM_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


@dataclass(frozen=True)
class Warehouse:
    """A place for tables that are created through Iceberg REST.

    Args:
        name: what REST clients call it.
        path: its path in the bucket, without slashes at the ends.
        endpoint: the S3 endpoint that serves the bucket.
    """

    name: str
    bucket: str
    path: str
    endpoint: Endpoint


@dataclass(frozen=True)
class Nessie:
    """A running Nessie server.

    Args:
        uri: the base of its API v2.
        iceberg_uri: the base of its Iceberg REST API; a branch's name may follow after a slash.
    """

    uri: str
    iceberg_uri: str
    process: Process

    def stop(self) -> None:
        """End the server."""
        self.process.stop()


def start_nessie(
    work: Path,
    *,
    database: Database | None = None,
    warehouses: Sequence[Warehouse] = (),
    port: int | None = None,
    token_issuer: TokenIssuer | None = None,
    console: Console | None = None,
) -> Nessie:
    """Start a Nessie server at a loopback port and wait until it answers.

    Args:
        work: the folder for its log.
        database: the Postgres database that holds the catalog; None to keep it in memory.
        warehouses: what Iceberg REST serves, the first one by default; none turns REST off in effect.
        port: the port; None for a free one.
        token_issuer: its tokens are accepted, within the rules of access.properties; None to let everyone
            do everything.
        console: where the download of the server is shown; None for standard error.

    Raises:
        EngineError: Java or the server is missing, or it did not start.
    """
    (jar,) = fetch_jars([NESSIE], console=console)

    log = (console or Console(stderr=True)).print
    options = archive_options("nessie", find_java(), [jar], partial(_warm_up, jar), log)
    return _start(jar, work, options, database, warehouses, port, token_issuer)


def _warm_up(jar: Path, options: Sequence[str], folder: Path) -> None:
    process = _start(jar, folder, options).process
    try:
        process.stop(grace=_WARM_UP_SECONDS)
    except BaseException:  # it is ending already
        process.stop(grace=0.0)
        raise
    if process.popen.returncode not in _CLEAN_EXIT_CODES:
        raise EngineError(f"Nessie's rehearsal failed; the end of its log:\n{process.log_tail()}")


def _start(
    jar: Path,
    work: Path,
    options: Sequence[str],
    database: Database | None = None,
    warehouses: Sequence[Warehouse] = (),
    port: int | None = None,
    token_issuer: TokenIssuer | None = None,
) -> Nessie:
    port, management_port = port or free_port(), free_port()
    environ = {**os.environ, **_store_settings(database), **_warehouse_secrets(warehouses)}
    environ |= {
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_PORT": str(management_port),
        **(token_issuer.nessie_settings() if token_issuer else {}),
    }
    with _settings("server.properties") as settings, _settings("access.properties") as rules:
        locations = [settings, *([rules] if token_issuer else []), *_write_warehouses(work, warehouses)]
        command = [
            find_java().executable,
            *_JVM_OPTIONS,
            *options,
            f"-Dquarkus.config.locations={','.join(quote(str(location)) for location in locations)}",
            "-jar",
            jar,
        ]
        process = start_process("Nessie", command, log=work / "nessie.log", env=environ, cwd=work)
        uri = f"http://{LOOPBACK}:{port}"
        # Any token is accepted: no rule applies to this address.
        headers = {"Authorization": f"Bearer {token_issuer.token('sterna')}"} if token_issuer else {}
        probe = urllib.request.Request(f"{uri}/api/v2/config", headers=headers)  # noqa: S310 - our own loopback address
        wait_until_ready(process, lambda: _is_answering(probe), timeout=_START_SECONDS)
    return Nessie(f"{uri}/api/v2", f"{uri}/iceberg", process)


def _settings(name: str) -> AbstractContextManager[Path]:
    return as_file(files("sterna.servers") / name)


def _is_answering(probe: urllib.request.Request) -> bool:
    with urllib.request.urlopen(probe, timeout=5) as answer:  # noqa: S310 - see where it is made
        return bool(answer.status == 200)


def _store_settings(database: Database | None) -> dict[str, str]:
    if database is None:
        return {"NESSIE_VERSION_STORE_TYPE": "IN_MEMORY"}
    return {
        "NESSIE_VERSION_STORE_TYPE": "JDBC2",
        "QUARKUS_DATASOURCE_POSTGRESQL_JDBC_URL": database.jdbc_url(),
        "QUARKUS_DATASOURCE_POSTGRESQL_USERNAME": database.user,
        "QUARKUS_DATASOURCE_POSTGRESQL_PASSWORD": database.password,
    }


def _warehouse_secrets(warehouses: Sequence[Warehouse]) -> dict[str, str]:
    secrets = {}
    for index, warehouse in enumerate(warehouses):
        secrets[f"STERNA_S3_{index}_ACCESS_KEY"] = warehouse.endpoint.access_key
        secrets[f"STERNA_S3_{index}_SECRET_KEY"] = warehouse.endpoint.secret_key
    return secrets


def _write_warehouses(work: Path, warehouses: Sequence[Warehouse]) -> list[Path]:
    """Write the REST settings, whose names hold the warehouses' own and so can't come from the environment.

    The keys do.
    """
    if not warehouses:
        return []
    lines = [f"nessie.catalog.default-warehouse={warehouses[0].name}"]
    for index, warehouse in enumerate(warehouses):
        lines += _warehouse_lines(index, warehouse)
    path = work / "warehouses.properties"
    path.write_text("\n".join(lines) + "\n")
    return [path]


def _warehouse_lines(index: int, warehouse: Warehouse) -> list[str]:
    bucket = f"nessie.catalog.service.s3.buckets.b{index}"
    secret = f"sterna.secrets.b{index}"
    return [
        f"nessie.catalog.warehouses.{warehouse.name}.location=s3://{warehouse.bucket}/{warehouse.path}",
        f"{bucket}.name={warehouse.bucket}",
        f"{bucket}.endpoint={warehouse.endpoint.url}",
        f"{bucket}.region={warehouse.endpoint.region}",
        f"{bucket}.path-style-access=true",
        f"{bucket}.access-key=urn:nessie-secret:quarkus:{secret}",
        f"{secret}.name=${{STERNA_S3_{index}_ACCESS_KEY}}",
        f"{secret}.secret=${{STERNA_S3_{index}_SECRET_KEY}}",
    ]
