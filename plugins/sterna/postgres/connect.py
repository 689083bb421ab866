"""Connecting to the one of a Postgres' addresses that takes writes: none of them waits long for another one's silence.

As RFC 8305 has it for the addresses of one name: the next one is tried beside one that has not answered after a moment,
and each may take all of the time that there is. The first that lets in and takes writes is the one.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Lock, Thread
from typing import Any, Final

from psycopg import OperationalError
from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, PGconn, PollingStatus

from sterna.config.registry.connection import Credential
from sterna.postgres.timeouts import LimitedConnection

_ATTEMPT_DELAY_SECONDS: Final = 0.5  # until the next address is tried beside one that has not answered
_POLL_SECONDS: Final = 0.1  # between two checks for a waiter
_SELECTOR_EVENTS: Final[dict[int, int]] = {PollingStatus.READING: EVENT_READ, PollingStatus.WRITING: EVENT_WRITE}
_SERVER_PREFIX: Final = "connection to server "  # the prefix of libpq's message about an address
_SOCKET_FAILURE: Final = re.compile("failed: (could not (create|set|get)|out of memory)")  # it has no socket for it
# What libpq reports of a TCP connection to something other than Postgres: its end, or another protocol.
_NOT_POSTGRES: Final = re.compile(
    "failed: (server closed the connection|could not (receive|send)|SSL SYSCALL error|SSL error: unexpected eof"
    "|received invalid response|expected authentication request)"
)
# A peer that vanished without a word is noticed after some 15 s, not after the hours of the system's default.
_KEEPALIVE_PARAMETERS: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
_NO_ADDRESS_CODES: Final = {socket.EAI_NONAME, socket.EAI_NODATA}
_UNCONNECTED_STATUSES: Final = {ConnStatus.STARTED, ConnStatus.BAD, ConnStatus.NEEDED, ConnStatus.ALLOCATED}


class NotConnected(OperationalError):
    """No address granted a connection.

    Args:
        text: the error of each, a line each.
        doubt: why the server may be running nevertheless: it granted a connection, sent a message, its name could not
            be resolved, or this process could not connect; "" where nothing indicates that.
    """

    def __init__(self, text: str, doubt: str) -> None:
        super().__init__(text)
        self.doubt = doubt


@dataclass(frozen=True, order=True)
class _Address:
    """One of the addresses.

    Args:
        rank: of its host among the hosts, and its own among the host's.
        host, port: as they are configured.
        address: what the host's name resolves to.
    """

    rank: tuple[int, int]
    host: str
    port: str
    address: str


@dataclass(frozen=True)
class _Resolution:
    """The result of resolving a host's name.

    Args:
        addresses: that it resolves to.
        error: why there are none.
        doubt: it may have some nevertheless.
    """

    addresses: Sequence[_Address] = ()
    error: str = ""
    doubt: bool = False


@dataclass(frozen=True)
class _ConnectFailure:
    """An address that granted no connection, and why.

    Args:
        error: libpq's message.
        doubt: the server may be running nevertheless: it sent a message, such as that it has no process left for a
            connection; or it was not contacted, where this process has no file descriptors left.
    """

    error: str
    doubt: bool


def libpq_parameters(name: str, credential: Credential, sslmode: str) -> dict[str, Any]:
    """Return libpq's parameters for a database that takes writes, but for its addresses; the password is among them.

    Args:
        name: of the database.
        credential: the credential to connect with.
        sslmode: as in libpq.
    """
    return {
        "dbname": name,
        "user": credential.login,
        "password": credential.password,
        "sslmode": sslmode,
        "target_session_attrs": "read-write",
        **_KEEPALIVE_PARAMETERS,
    }


def connect_first(hosts: Sequence[str], parameters: Mapping[str, Any], seconds: float) -> LimitedConnection:
    """Connect to the first of some addresses that lets in and is as `parameters` want it; each statement a transaction.

    Args:
        hosts: each as `host:port`; the earlier ones are tried first.
        parameters: libpq's parameters, but for host and port.
        seconds: how long it may take, looking up names included.

    Raises:
        NotConnected: none did in time.
    """
    with _race(parameters, seconds) as race:
        connection = race.first_connection(hosts)
    connection.autocommit = True
    return connection


@dataclass
class _Race:
    """Connecting to several addresses at once, in daemon threads: name resolution may hang.

    Args:
        parameters: libpq's parameters, but for host and port.
        seconds: how long it may take.
    """

    parameters: Mapping[str, Any]
    seconds: float
    _outcomes: SimpleQueue[_Resolution | _ConnectFailure | LimitedConnection] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _closed: bool = False
    _connected: set[_Address] = field(default_factory=set)

    def first_connection(self, hosts: Sequence[str]) -> LimitedConnection:
        """Return the first connection that is established.

        Raises:
            NotConnected: none does in time.
        """
        deadline = time.monotonic() + self.seconds
        for index, host in enumerate(hosts):
            self._start(partial(_resolve_host, index, host))
        delay = min(_ATTEMPT_DELAY_SECONDS, self.seconds / (2 * len(hosts)))  # so that each has a share of a short time
        lookups, in_flight, pending = len(hosts), 0, list[_Address]()
        errors, doubt, unresolved, next_attempt = list[str](), "", False, 0.0
        while (lookups or in_flight or pending) and (now := time.monotonic()) < deadline:
            if pending and (not in_flight or now >= next_attempt):
                self._start(partial(self._connect, pending.pop(0)))
                in_flight, next_attempt = in_flight + 1, now + delay
                continue
            match self._next_outcome(min(deadline, next_attempt) - now if pending else deadline - now):
                case LimitedConnection() as connection:
                    return connection
                case _ConnectFailure(error, doubtful):
                    errors.append(error)
                    in_flight, next_attempt, doubt = in_flight - 1, 0.0, error.partition("\n")[0] if doubtful else doubt
                case _Resolution(addresses, error, doubtful):
                    pending = sorted([*pending, *addresses])
                    lookups, unresolved = lookups - 1, unresolved or doubtful
                    errors += [error] if error else []
        if lookups or unresolved:
            doubt = doubt or f"its name could not be resolved within {self.seconds:g} s"
        raise self._not_connected(errors, timed_out=bool(in_flight), untried=bool(pending), doubt=doubt)

    def close(self) -> None:
        """End what is still under way."""
        with self._lock:
            self._closed = True
        with suppress(Empty):
            while True:
                if isinstance(outcome := self._outcomes.get_nowait(), LimitedConnection):
                    outcome.close()

    def _not_connected(self, errors: list[str], *, timed_out: bool, untried: bool, doubt: str) -> NotConnected:
        timeout_error = f"no answer within {self.seconds:g} s"
        if timed_out or untried:
            errors.insert(0, timeout_error)
        with self._lock:
            connected = bool(self._connected)
        return NotConnected("\n".join(errors) or doubt, timeout_error if connected or untried else doubt)

    def _next_outcome(self, seconds: float) -> _Resolution | _ConnectFailure | LimitedConnection | None:
        try:
            return self._outcomes.get(timeout=max(seconds, 0.001))
        except Empty:
            return None

    def _start(self, work: Callable[[], _Resolution | _ConnectFailure | LimitedConnection | None]) -> None:
        def run() -> None:
            outcome = work()
            with self._lock:
                if not self._closed and outcome is not None:
                    self._outcomes.put(outcome)
                    return
            if isinstance(outcome, LimitedConnection):
                outcome.close()

        Thread(target=run, name="sterna-postgres-connect", daemon=True).start()

    def _connect(self, address: _Address) -> LimitedConnection | _ConnectFailure | None:
        """Connect to one address, as long as there is a waiter."""
        try:
            return self._poll_connect(address)
        except Exception as error:  # noqa: BLE001 - its text may quote the password
            return _ConnectFailure(f"connection failed: {type(error).__name__}", doubt=True)

    def _poll_connect(self, address: _Address) -> LimitedConnection | _ConnectFailure | None:
        endpoint = {"host": address.host, "port": address.port, "hostaddr": address.address}
        connection = PGconn.connect_start(make_conninfo("", **self.parameters, **endpoint).encode())
        # As libpq requires: an earlier first poll would take any connection as established.
        status: int = PollingStatus.WRITING
        while connection.status != ConnStatus.BAD and status in _SELECTOR_EVENTS:
            with DefaultSelector() as selector:
                selector.register(connection.socket, _SELECTOR_EVENTS[status])
                while not selector.select(_POLL_SECONDS) and not self._closed:
                    pass
            status = connection.connect_poll()
            with self._lock:
                if self._closed:
                    break
                if connection.status not in _UNCONNECTED_STATUSES:
                    self._connected.add(address)
        if status == PollingStatus.OK:
            connection.nonblocking = 1
            return LimitedConnection(connection)
        message = connection.get_error_message()
        connection.finish()
        with self._lock:
            if self._closed:
                return None
            answered = address in self._connected and not _NOT_POSTGRES.search(message)
            self._connected.discard(address)  # it has answered
        reached = message.startswith(_SERVER_PREFIX) and not _SOCKET_FAILURE.search(message)
        return _ConnectFailure(f"connection failed: {message}", answered or not reached)


@contextmanager
def _race(parameters: Mapping[str, Any], seconds: float) -> Iterator[_Race]:
    race = _Race(parameters, seconds)
    try:
        yield race
    finally:
        race.close()


def _resolve_host(host_index: int, host_and_port: str) -> _Resolution:
    host, _, port = host_and_port.rpartition(":")
    try:
        addresses = [str(ipaddress.ip_address(host))]
    except ValueError:
        try:
            address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            # Other codes mean that the resolver gave no answer, which is no evidence on the server.
            doubt = not (isinstance(error, socket.gaierror) and error.errno in _NO_ADDRESS_CODES)
            return _Resolution(error=f"failed to resolve host {host!r}: {error}", doubt=doubt)
        addresses = [str(address_info[4][0]) for address_info in address_infos]
    return _Resolution(
        [_Address((host_index, index), host, port, address) for index, address in enumerate(dict.fromkeys(addresses))]
    )
