"""Postgres that survives the loss of a server: two members under Patroni, and a third voter that has no data."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from sterna.errors import EngineError
from sterna.servers.postgres import (
    Database,
    account_ids,
    clean_environment,
    create_database,
    find_binaries,
    is_open,
    open_folder,
    readable_binaries,
    unprivileged_account,
)
from sterna.servers.process import LOOPBACK, Process, free_port, start_process
from sterna.servers.temporary import remove_temporary_folder

SETTINGS = Path(__file__).parents[3] / "nessie" / "patroni.yml"
_START_SECONDS = 120.0
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.2
_MEMBERS = ("a", "b")
_VOTER = "voter"


@dataclass
class Member:
    """One server of the cluster: Patroni, and the Postgres that it started.

    Args:
        name: its name in the cluster.
        port: the port of its Postgres.
        api: the address of its Patroni's API.
        folder: its data; a new process finds it there.
    """

    name: str
    port: int
    api: str
    folder: Path
    process: Process

    def is_primary(self) -> bool:
        """Return whether it has the lease, by its own API."""
        return self._has_role("primary")

    def is_standby(self) -> bool:
        """Return whether it is the synchronous standby: each acknowledged commit is on it."""
        return self._has_role("sync")

    def kill(self) -> None:
        """End Patroni and Postgres at once, as a power failure does."""
        postgres = self.postgres()
        self.process.popen.kill()
        _kill(postgres)
        self.process.stop()

    def kill_postgres(self) -> None:
        """End Postgres at once, and leave Patroni to find out."""
        _kill(self.postgres())

    def stop(self) -> None:
        """End Patroni, which ends its Postgres."""
        self.process.stop()
        _kill(self.postgres())  # nothing is left, unless Patroni was killed

    def postgres(self) -> list[psutil.Process]:
        """Return its Postgres's processes, none where it doesn't run."""
        # Patroni gives Postgres a session of its own, so that it outlives a restart of Patroni.
        with suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            postmaster = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
            if str(self.folder / "data") in " ".join(postmaster.cmdline()):
                return [postmaster, *postmaster.children(recursive=True)]
        return []

    def _has_role(self, role: str) -> bool:
        try:
            return httpx.get(f"{self.api}/{role}", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_KILL_SECONDS)


@dataclass
class Cluster:
    """A running Postgres cluster: a primary, a synchronous standby and a voter.

    Args:
        admin: the superuser's own database, at whichever member is the primary.
        members: the two servers.
        voter: the third voter.
        temporary: folders outside the work folder that end with the cluster.
    """

    admin: Database
    members: tuple[Member, ...]
    voter: Process
    temporary: tuple[Path, ...]
    setup: ClusterSetup = field(repr=False)

    def primary(self) -> Member:
        """Return the member that takes writes now.

        Raises:
            EngineError: none does.
        """
        for member in self.members:
            if member.is_primary():
                return member
        raise EngineError("no member of the Postgres cluster is its primary", hint="wait for Patroni to promote one")

    def create_database(self, name: str) -> Database:
        """Create a database with a login of the same name that owns it, and return it.

        Args:
            name: letters, digits and underscores.

        Raises:
            EngineError: Postgres refused.
        """
        return create_database(self.admin, name)

    def start(self, member: Member) -> None:
        """Start a member again that was killed; it follows the primary when there is one."""
        member.process = self.setup.launch(member.name)

    def start_voter(self) -> None:
        """Start the third voter again."""
        self.voter = self.setup.launch(_VOTER)

    def wait_until_safe(self, timeout: float = _START_SECONDS) -> None:
        """Wait until there are a primary and a synchronous standby.

        Raises:
            EngineError: there are not in time; the message holds the end of both logs.
        """
        deadline = time.monotonic() + timeout
        while not (
            any(member.is_primary() for member in self.members) and any(member.is_standby() for member in self.members)
        ):
            if time.monotonic() > deadline:
                logs = "\n\n".join(member.process.log_tail() for member in self.members)
                raise EngineError(
                    f"the Postgres cluster had no primary with a standby after {timeout:.0f} s; its logs end:\n{logs}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End all of it; data stays where it is in the work folder, passwords don't."""
        # All at once: a member that is alone would first promote itself.
        with ThreadPoolExecutor(max_workers=len(self.members)) as pool:
            list(pool.map(Member.stop, self.members))
        self.voter.stop()
        for member in self.members:
            (member.folder / "pgpass").unlink(missing_ok=True)
        for folder in self.temporary:
            remove_temporary_folder(folder)


def start_cluster(work: Path) -> Cluster:
    """Start a Postgres cluster with new data at free loopback ports, with the settings of patroni.yml, and wait
    until it is safe.

    Args:
        work: the folder for its data and its logs.

    Raises:
        EngineError: Postgres or Patroni is missing, or it did not start.
    """
    account = unprivileged_account()
    home = open_folder(work)
    temporary = (home,) if home.parent != work else ()
    with ExitStack() as stack:
        for folder in temporary:
            stack.callback(remove_temporary_folder, folder)
        setup = prepare_cluster(work, home, account)
        voter = setup.launch(_VOTER)
        stack.callback(voter.stop)
        members = []
        for name in _MEMBERS:
            member = Member(
                name, setup.ports[name], f"http://{LOOPBACK}:{setup.api_ports[name]}", home / name, setup.launch(name)
            )
            stack.callback(member.stop)
            members.append(member)
        cluster = Cluster(setup.admin(), tuple(members), voter, temporary, setup)
        cluster.wait_until_safe()
        stack.pop_all()
    return cluster


@dataclass(frozen=True)
class ClusterSetup:
    """What each process of the cluster is started with."""

    work: Path
    home: Path
    account: pwd.struct_passwd | None
    binaries: Path
    ports: Mapping[str, int]
    api_ports: Mapping[str, int]
    raft_ports: Mapping[str, int]
    passwords: Mapping[str, str]

    def admin(self) -> Database:
        first, *others = self.ports.values()
        return Database(
            LOOPBACK, first, "postgres", "postgres", self.passwords["PATRONI_SUPERUSER_PASSWORD"], tuple(others)
        )

    def launch(self, name: str) -> Process:
        program = _find_program("patroni_raft_controller" if name == _VOTER else "patroni")
        command = [sys.executable, program, self.home / "patroni.yml"]
        env = {**clean_environment(), **self._environment(name)}
        account = account_ids(self.account)
        if self.account is not None and not is_open(Path(sys.executable).resolve().parent):
            command, account = [*_as_account(self.account), *command], None
        log = self.work / f"patroni-{name}.log"
        return start_process(f"Patroni's {name}", command, log=log, env=env, cwd=self.home / name, account=account)

    def _environment(self, name: str) -> dict[str, str]:
        folder = self.home / name
        variables = {
            "PATRONI_NAME": name,
            "PATRONI_RAFT_SELF_ADDR": f"{LOOPBACK}:{self.raft_ports[name]}",
            "PATRONI_RAFT_PARTNER_ADDRS": ",".join(
                f"'{LOOPBACK}:{port}'" for other, port in self.raft_ports.items() if other != name
            ),
            "PATRONI_RAFT_DATA_DIR": str(folder / "raft"),
            "PATRONI_RAFT_PASSWORD": self.passwords["PATRONI_RAFT_PASSWORD"],
        }
        if name == _VOTER:
            return variables
        variables |= self.passwords
        addresses = {"POSTGRESQL": self.ports[name], "RESTAPI": self.api_ports[name]}
        variables |= {
            f"PATRONI_{component}_{setting}": f"{LOOPBACK}:{port}"
            for component, port in addresses.items()
            for setting in ("LISTEN", "CONNECT_ADDRESS")
        }
        paths = {"DATA_DIR": folder / "data", "BIN_DIR": self.binaries, "PGPASS": folder / "pgpass"}
        return variables | {f"PATRONI_POSTGRESQL_{setting}": str(path) for setting, path in paths.items()}


def prepare_cluster(work: Path, home: Path, account: pwd.struct_passwd | None) -> ClusterSetup:
    binaries = readable_binaries(find_binaries(), home, account)
    (home / "patroni.yml").write_text(SETTINGS.read_text())
    for name in (*_MEMBERS, _VOTER):
        (home / name).mkdir(mode=0o700)
        if account is not None:
            os.chown(home / name, account.pw_uid, account.pw_gid)
    logins = {"SUPERUSER": "postgres", "REPLICATION": "replicator", "RESTAPI": "operator"}
    passwords = {f"PATRONI_{role}_USERNAME": user for role, user in logins.items()}
    passwords |= {f"PATRONI_{role}_PASSWORD": secrets.token_urlsafe(18) for role in (*logins, "RAFT")}
    ports, api_ports, raft_ports = (
        {name: free_port() for name in names} for names in (_MEMBERS, _MEMBERS, (*_MEMBERS, _VOTER))
    )
    return ClusterSetup(work, home, account, binaries, ports, api_ports, raft_ports, passwords)


def _find_program(name: str) -> Path:
    program = Path(sysconfig.get_path("scripts")) / name
    if not program.exists():
        raise EngineError(
            "patroni is not installed in this Python environment", hint="install sterna with the extra 'dev'"
        )
    return program


def _as_account(account: pwd.struct_passwd) -> list[str]:
    """Return a command that runs another one as an account, and lets it read a Python in a home folder
    closed to others.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise EngineError(
            f"Patroni has to run as {account.pw_name}, which can't enter {Path(sys.executable).resolve().parent}",
            hint="install util-linux, or a Python in a place that is open to everyone",
        )
    capabilities = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    # A change of user resets what start_process requested: the child's signal at this process's end.
    user = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups", "--pdeathsig", "TERM"]
    return [setpriv, *user, *capabilities]
