"""The state that commit b5071db wrote (tests/data/written-2026-11), running at other addresses."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.table import StaticTable

from sterna.catalog.model import Key, key_name, parse_key
from sterna.config.environment import temporary_environment
from sterna.config.renamed import REGISTRY_SETTINGS, SERVICES_SETTINGS
from sterna.config.secrets import environment_secrets
from sterna.config.sections.model import Services
from sterna.config.services_file import read_services
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.servers.nessie import start_nessie
from sterna.servers.postgres import Database, Postgres, start_postgres, unprivileged_account
from sterna.servers.registry_file import bucket_name, create_key_pair, deployment_environment
from sterna.servers.s3 import Endpoint, start_s3
from sterna.servers.valkey import ValkeyServer, start_valkey
from tests.support.world import pyiceberg_properties

DATA = Path(__file__).parents[1] / "data" / "written-2026-11" / "world"
ANSWERS: dict[str, Any] = json.loads((DATA / "answers.json").read_text())
REGIONS = ("us", "eu")
_UNREACHABLE_ADDRESS = "127.0.0.1:1"
_LOGICAL = {"wal_level": "logical", "max_replication_slots": "4", "max_wal_senders": "4", "max_connections": "20"}


@dataclass
class Written:
    """The catalog, the stores and, where it was asked for, what the services work with.

    Args:
        registry: its file.
        services_file: the services file.
        endpoints: by region.
        source: the database that is followed.
        valkey: the store of features.
    """

    registry: Path
    services_file: Path
    endpoints: dict[str, Endpoint]
    source: Database | None = None
    valkey: ValkeyServer | None = None
    lines: list[str] = field(default_factory=list)

    def context(self, region: str = "eu") -> RegionContext:
        return open_region(self.registry, region, environment_secrets())

    @property
    def services(self) -> Services:
        return read_services(self.services_file)

    def sync(self, region: str = "eu", **options: Any) -> Report:
        self.lines.clear()
        with self.context(region) as context:
            return sync(context, SyncOptions(**options), self.lines.append)

    @property
    def compared(self) -> int:
        """How many keys the first plan of the last sync compared."""
        return int(next(line for line in self.lines if "keys compared" in line).split()[0])

    def references(self) -> dict[str, str]:
        with self.context() as context:
            return {reference.name: reference.hash for reference in context.primary.references()}

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each object of eu, but for what belongs to a single run."""
        folder = self.endpoints["eu"].folder
        assert folder is not None
        stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()}
        return {
            name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items() if "/_sterna/runs/" not in f"/{name}"
        }

    def rows(self, table: str, branch: str = "main_replica_eu") -> list[list[str | None]]:
        """What PyIceberg reads of a table, all of whose files are in eu."""
        key: Key = parse_key(table)
        with self.context() as context:
            content = context.primary.contents(branch, context.primary.reference(branch).hash, [key])[key]
        assert content.metadata_location, key_name(key)
        scan = StaticTable.from_metadata(content.metadata_location, pyiceberg_properties(self.endpoints["eu"])).scan()
        return texts([tuple(row.values()) for row in scan.to_arrow().to_pylist()])


def texts(rows: list[tuple[Any, ...]]) -> list[list[str | None]]:
    """Return rows as the recorded answers have them."""
    text_rows = [[None if cell is None else str(cell) for cell in row] for row in rows]
    return sorted(text_rows, key=lambda row: [(cell is not None, cell or "") for cell in row])


def current_settings(text: str, renamed: Mapping[str, str]) -> str:
    """Return a settings file of another version as its operator has to write it now."""
    for pattern, name in renamed.items():
        text = re.sub(rf"\b{pattern.rpartition('.')[2]}:", f"{name}:", text)
    return text


@contextmanager
def written(folder: Path, *, services: bool = False) -> Iterator[Written]:
    """Restore the state and serve it.

    Args:
        folder: an empty one.
        services: also restore and start the followed source, the tracker and the store of features.
    """
    with ExitStack() as stack:
        endpoints = {region: _store(stack, folder, region) for region in REGIONS}
        server = start_postgres(folder)
        stack.callback(server.stop)
        nessie = start_nessie(folder, database=_loaded(server, "nessie"))
        stack.callback(nessie.stop)
        text = current_settings((DATA / "storage_registry.yaml").read_text(), REGISTRY_SETTINGS)
        text = text.replace("@NESSIE@", nessie.uri)
        for region, endpoint in endpoints.items():
            text = text.replace(f"@{region.upper()}_ENDPOINT@", endpoint.url)
        recorded = Written(folder / "storage_registry.yaml", folder / "sterna_services.yaml", endpoints)
        recorded.registry.write_text(text)
        variables = deployment_environment(recorded.registry, endpoints)
        settings = current_settings((DATA / "sterna_services.yaml").read_text(), SERVICES_SETTINGS)
        if services:
            tracker = _loaded(server, "ingest")
            cluster = _cluster(stack, folder / "source")
            recorded.source = Database(cluster.admin.host, cluster.admin.port, "crm", "crm", "any")
            recorded.valkey = _valkey(stack, folder / "valkey")
            settings = settings.replace("@VALKEY@", recorded.valkey.url).replace("@POSTGRES@", tracker.servers)
            settings = settings.replace("@SOURCE@", recorded.source.servers)
            variables |= _logins(recorded.source, tracker, recorded.valkey)
        for name, nowhere in (
            ("@VALKEY@", "valkey://127.0.0.1:1"),
            ("@POSTGRES@", _UNREACHABLE_ADDRESS),
            ("@SOURCE@", _UNREACHABLE_ADDRESS),
        ):
            settings = settings.replace(name, nowhere)
        recorded.services_file.write_text(settings)
        with temporary_environment(variables):
            yield recorded


def _store(stack: ExitStack, folder: Path, region: str) -> Endpoint:
    # An endpoint serves a folder, a folder in it a bucket. A clean-up asks when files were changed: it is kept.
    with tarfile.open(DATA / f"{bucket_name(region)}.tar.xz") as archive:
        archive.extractall(folder / "s3" / region, filter="data")
    endpoint = start_s3(folder, region, [bucket_name(region)], *create_key_pair())
    stack.callback(endpoint.stop)
    return endpoint


def _loaded(server: Postgres, name: str) -> Database:
    database = server.create_database(name)
    with psycopg.connect(database.url(), autocommit=True) as connection:
        connection.execute(gzip.decompress((DATA / f"{name}.sql.gz").read_bytes()))
    return database


def _cluster(stack: ExitStack, folder: Path) -> Postgres:
    """Start a server on the source's own data: a slot outlives no dump."""
    server = start_postgres(folder, _LOGICAL)
    stack.callback(server.stop)
    version = (server.folder / "PG_VERSION").read_text()
    server.process.stop()
    shutil.rmtree(server.folder)
    with tarfile.open(DATA / "source.tar.xz") as archive:
        archive.extractall(server.folder.parent, filter="data")
    assert (server.folder / "PG_VERSION").read_text() == version, "bring source.tar.xz up to this Postgres: pg_upgrade"
    for path in (server.folder, *server.folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if account := unprivileged_account():
            os.chown(path, account.pw_uid, account.pw_gid)
    return server.restart()


def _valkey(stack: ExitStack, folder: Path) -> ValkeyServer:
    """Start a store that holds what the other one held; the mark of that server's life becomes this one's."""
    import valkey

    server = start_valkey(folder, memory="64mb")
    stack.callback(server.stop)
    dump = json.loads((DATA / "valkey.json").read_text())
    with valkey.Valkey(port=server.port, password=server.password) as client:
        facts: Any = client.info()
        mark = f"{facts['run_id']}/{facts['evicted_keys']}"
        for saved_key in dump["keys"]:
            assert saved_key["ttl"] == -1
            if isinstance(saved_key["value"], str):
                client.set(saved_key["key"], saved_key["value"])
                continue
            fields = {name: mark if text == dump["mark"] else text for name, text in saved_key["value"].items()}
            client.hset(saved_key["key"], mapping=fields)
    return server


def _logins(source: Database, tracker: Database, valkey: ValkeyServer) -> dict[str, str]:
    def login(database: Database) -> str:
        return json.dumps({"conn_type": "postgres", "login": database.user, "password": database.password})

    return {
        "AIRFLOW_CONN_CRM": login(source),
        "AIRFLOW_CONN_INGEST_EU": login(tracker),
        "AIRFLOW_CONN_VALKEY_EU": json.dumps({"conn_type": "redis", "password": valkey.password}),
    }
