"""A gateway that takes rows, as a process of its own, over a real store and a real Postgres."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from sterna.servers.access import TokenIssuer
from sterna.servers.postgres import Database
from tests.support.command import STERNA, gateway_url
from tests.support.stores import KEY, SECRET, Stores


@dataclass
class GatewayProcess:
    """A gateway that runs.

    Args:
        url: its address.
        process: it.
        log: what it says.
        access: makes tokens.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    access: TokenIssuer

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, timeout=60)
        self._tokens: dict[tuple[str, ...], str] = {}

    def bearer(self, *roles: str) -> dict[str, str]:
        roles = roles or ("tenant:acme",)
        if roles not in self._tokens:
            self._tokens[roles] = self.access.token("producer", *roles)
        return {"Authorization": f"Bearer {self._tokens[roles]}"}

    def post(
        self,
        content: bytes = b'{"a": 1}\n',
        table: str = "acme.events",
        path: str = "rows",
        roles: tuple[str, ...] = ("tenant:acme",),
        kind: str = "application/jsonl",
        **headers: str,
    ) -> httpx.Response:
        defaults = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        headers = {**self.bearer(*roles), **defaults}
        return self.client.post(f"/v1/tables/{table}/{path}", content=content, headers=headers)

    def get(self, path: str, *roles: str, **params: str) -> httpx.Response:
        return self.client.get(f"/v1/{path}", headers=self.bearer(*roles), params=params)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def services_of(stores: Stores, database: Database, **limits: Any) -> dict[str, Any]:
    """What a services file says."""
    hosts = [f"{database.host}:{database.port}"]
    tracker = {"credential_id": "ingest_eu", "hosts": hosts, "name": database.name, "timeout": 30}
    return {
        "ingest": {
            "regions": {"eu": {"inbox": f"{stores.eu}/inbox", "database": tracker, "timeout": 30}},
            "tenants": {
                "acme": {"namespaces": ["acme"], "limits": limits},
                "zeta": {"namespaces": ["zeta"], "limits": {"backlog": "100B"}},
            },
            "tables": [
                {"match": "acme.slow", "rules": {"age": "1h"}},
                {"match": ["acme.events", "acme.sub.*", "zeta.*"], "rules": {"files": 5, "age": "1s"}},
            ],
        }
    }


def variables_of(database: Database) -> dict[str, str]:
    """What finds the credentials."""
    store = json.dumps({"conn_type": "aws", "login": KEY, "password": SECRET})
    login = json.dumps({"conn_type": "postgres", "login": database.user, "password": database.password})
    return {"AIRFLOW_CONN_EU_STORE": store, "AIRFLOW_CONN_US_STORE": store, "AIRFLOW_CONN_INGEST_EU": login}


def write_settings(folder: Path, stores: Stores, services: dict[str, Any]) -> tuple[Path, Path]:
    """Write registry and services file; return their paths."""
    registry, path = folder / "registry.json", folder / "services.yaml"
    residency = [{"tables": ["acme.sub.kept_out"], "never": ["eu"]}]
    registry.write_text(json.dumps({**stores.mapping.registry.model_dump(mode="json"), "residency": residency}))
    path.write_text(yaml.safe_dump(services))
    return registry, path


@contextmanager
def serving(
    folder: Path, stores: Stores, database: Database, services: dict[str, Any], access: TokenIssuer
) -> Iterator[GatewayProcess]:
    """Run `sterna serve --only ingest`."""
    registry, path = write_settings(folder, stores, services)
    command = [*STERNA, "serve", "--region", "eu", "--only", "ingest", "--port", "0"]
    command += ["--registry", str(registry), "--services", str(path)]
    log = folder / "serve.log"
    environment = {**os.environ, **variables_of(database), **access.nessie_settings()}
    with log.open("wb") as file, subprocess.Popen(command, stderr=file, env=environment, cwd=folder) as process:
        try:
            yield GatewayProcess(gateway_url(log, process), process, log, access)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(30)
