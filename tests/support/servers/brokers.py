"""Message brokers on this machine: one node each, on the Java and the cache of the other servers.

Sinks are tested and measured against them.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.jvm.jars import pinned_jars
from sterna.jvm.java import find_java
from sterna.servers.jars import fetch_jars
from sterna.servers.process import LOOPBACK, Process, start_process, wait_until_ready
from tests.support.servers.certificate import ServerCertificate, make_certificate

USER = "sterna"
_START_SECONDS = 90.0
# Small and quick to start rather than quick in the long run.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass
class Broker:
    """A broker that can be killed, held up, and come back at the same addresses with what it kept.

    Args:
        name: shown in messages.
        command: the program and its arguments.
        port: without TLS and authentication.
        secure_port: its port with TLS and a login.
        password: that of `USER`.
        certificate: by which it is known there.
    """

    name: str
    command: Sequence[str]
    work: Path
    port: int
    secure_port: int
    password: str = field(repr=False)
    certificate: ServerCertificate
    _process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until it answers at both addresses.

        Raises:
            EngineError: it didn't start.
        """
        process = start_process(self.name, self.command, log=self.work / "broker.log", cwd=self.work)
        wait_until_ready(process, self._is_listening, timeout=_START_SECONDS)
        self._process = process

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def freeze(self) -> None:
        """Hold it up: connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it without a word, as the loss of its machine does."""
        self._signal(signal.SIGKILL)
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _is_listening(self) -> bool:
        for port in (self.port, self.secure_port):
            socket.create_connection((LOOPBACK, port), timeout=5).close()
        return True


def create_certificate(work: Path, password: str) -> ServerCertificate:
    """Return the certificate of a broker's folder, which is made."""
    work.mkdir(parents=True, exist_ok=True)
    return make_certificate(work, password)


def java_command(jars: str, main: str, *arguments: object, memory: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a class, with the jars that a list names; those that are missing are fetched.

    Args:
        jars: the list, a file beside this module.
        main: the main class.
        memory: heap size, as in `-Xmx`.
        options: further ones for the JVM.

    Raises:
        EngineError: no Java fits, or a jar can't be fetched.
    """
    paths = os.pathsep.join(str(path) for path in fetch_jars(pinned_jars("tests.support.servers", jars)))
    java = [str(find_java().executable), f"-Xmx{memory}", *_JVM_OPTIONS, *options, "-cp", paths, main]
    return [*java, *(str(argument) for argument in arguments)]
