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

from sterna.edges.postgres.limits import LimitedConnection
from sterna.registry.connection import Credential

_NEXT_SECONDS: Final = 0.5  # until the next address is tried beside one that has not answered
_LOOK_SECONDS: Final = 0.1  # between two looks at whether anybody still waits
_UNDER_WAY: Final[dict[int, int]] = {PollingStatus.READING: EVENT_READ, PollingStatus.WRITING: EVENT_WRITE}
_ASKED: Final = "connection to server "  # how libpq begins what it says of an address
_NOT_ASKED: Final = re.compile("failed: (could not (create|set|get)|out of memory)")  # it has no socket for it
# Of a connection that stood, what libpq says where no Postgres did: its end, or another protocol.
_NO_POSTGRES: Final = re.compile(
    "failed: (server closed the connection|could not (receive|send)|SSL SYSCALL error|SSL error: unexpected eof"
    "|received invalid response|expected authentication request)"
)
# A peer that vanished without a word is noticed after some 15 s, not after the hours of the system's default.
_ALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 15_000}
_NO_ADDRESS: Final = {socket.EAI_NONAME, socket.EAI_NODATA}
_NO_PEER: Final = {ConnStatus.STARTED, ConnStatus.BAD, ConnStatus.NEEDED, ConnStatus.ALLOCATED}


class NotConnected(OperationalError):
    """No address let anybody in.

    Args:
        text: what each of them said, a line each.
        doubt: why the server may be at work all the same: it granted a connection, said something there, its name could
            not be looked up, or this process could not ask; "" where nothing speaks for that.
    """

    def __init__(self, text: str, doubt: str) -> None:
        super().__init__(text)
        self.doubt = doubt


@dataclass(frozen=True, order=True)
class _Address:
    """One of the addresses.

    Args:
        place: of its host among the hosts, and its own among the host's.
        host, port: as they are configured.
        address: what the host's name stands for.
    """

    place: tuple[int, int]
    host: str
    port: str
    address: str


@dataclass(frozen=True)
class _Named:
    """What looking up a host's name came to.

    Args:
        addresses: that it stands for.
        error: why there are none.
        doubt: it may stand for some all the same.
    """

    addresses: Sequence[_Address] = ()
    error: str = ""
    doubt: bool = False


@dataclass(frozen=True)
class _Failed:
    """An address that let nobody in, and why.

    Args:
        error: what libpq says.
        doubt: the server may be at work all the same: it said something, as one does that has no process left for a
            connection; or nobody asked it, where this process has no file descriptors left.
    """

    error: str
    doubt: bool


def libpq_parts(name: str, credential: Credential, sslmode: str) -> dict[str, Any]:
    """Return libpq's parameters for a database that takes writes, but for its addresses; the password is among them.

    Args:
        name: of the database.
        credential: who asks.
        sslmode: libpq's.
    """
    return {
        "dbname": name,
        "user": credential.login,
        "password": credential.password,
        "sslmode": sslmode,
        "target_session_attrs": "read-write",
        **_ALIVE,
    }


def connect_first(hosts: Sequence[str], parts: Mapping[str, Any], seconds: float) -> LimitedConnection:
    """Connect to the first of some addresses that lets in and is as `parts` want it; each statement a transaction.

    Args:
        hosts: each as `host:port`; the earlier ones are tried first.
        parts: libpq's parameters, but for host and port.
        seconds: how long it may take, looking up names included.

    Raises:
        NotConnected: none did in time.
    """
    with _race(parts, seconds) as race:
        connection = race.first(hosts)
    connection.autocommit = True
    return connection


@dataclass
class _Race:
    """Connecting to several addresses at once, in threads that nobody waits for: a resolver of names may hang.

    Args:
        parts: libpq's parameters, but for host and port.
        seconds: how long it may take.
    """

    parts: Mapping[str, Any]
    seconds: float
    _news: SimpleQueue[_Named | _Failed | LimitedConnection] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _over: bool = False
    _granted: set[_Address] = field(default_factory=set)

    def first(self, hosts: Sequence[str]) -> LimitedConnection:
        """Return the first connection that stands.

        Raises:
            NotConnected: none does in time.
        """
        end = time.monotonic() + self.seconds
        for place, host in enumerate(hosts):
            self._begin(partial(_look_up, place, host))
        pause = min(_NEXT_SECONDS, self.seconds / (2 * len(hosts)))  # so that each has a share of a short time
        names, tried, waiting = len(hosts), 0, list[_Address]()
        errors, doubt, unnamed, due = list[str](), "", False, 0.0
        while (names or tried or waiting) and (now := time.monotonic()) < end:
            if waiting and (not tried or now >= due):
                self._begin(partial(self._connect, waiting.pop(0)))
                tried, due = tried + 1, now + pause
                continue
            match self._next(min(end, due) - now if waiting else end - now):
                case LimitedConnection() as connection:
                    return connection
                case _Failed(error, doubtful):
                    errors.append(error)
                    tried, due, doubt = tried - 1, 0.0, error.partition("\n")[0] if doubtful else doubt
                case _Named(addresses, error, doubtful):
                    waiting = sorted([*waiting, *addresses])
                    names, unnamed = names - 1, unnamed or doubtful
                    errors += [error] if error else []
        if names or unnamed:
            doubt = doubt or f"its name could not be looked up within {self.seconds:g} s"
        raise self._none(errors, late=bool(tried), untried=bool(waiting), doubt=doubt)

    def close(self) -> None:
        """End what is still under way."""
        with self._lock:
            self._over = True
        with suppress(Empty):
            while True:
                if isinstance(left := self._news.get_nowait(), LimitedConnection):
                    left.close()

    def _none(self, errors: list[str], *, late: bool, untried: bool, doubt: str) -> NotConnected:
        late_error = f"no answer within {self.seconds:g} s"
        if late or untried:
            errors.insert(0, late_error)
        with self._lock:
            granted = bool(self._granted)
        return NotConnected("\n".join(errors) or doubt, late_error if granted or untried else doubt)

    def _next(self, seconds: float) -> _Named | _Failed | LimitedConnection | None:
        try:
            return self._news.get(timeout=max(seconds, 0.001))
        except Empty:
            return None

    def _begin(self, work: Callable[[], _Named | _Failed | LimitedConnection | None]) -> None:
        def run() -> None:
            found = work()
            with self._lock:
                if not self._over and found is not None:
                    self._news.put(found)
                    return
            if isinstance(found, LimitedConnection):
                found.close()

        Thread(target=run, name="sterna-postgres-connect", daemon=True).start()

    def _connect(self, at: _Address) -> LimitedConnection | _Failed | None:
        """Connect to one address, as long as somebody waits for it."""
        try:
            return self._polled(at)
        except Exception as error:  # noqa: BLE001 - its text may quote the password
            return _Failed(f"connection failed: {type(error).__name__}", doubt=True)

    def _polled(self, at: _Address) -> LimitedConnection | _Failed | None:
        where = {"host": at.host, "port": at.port, "hostaddr": at.address}
        connection = PGconn.connect_start(make_conninfo("", **self.parts, **where).encode())
        # As libpq wants it: a first poll before that takes any connection for granted.
        status: int = PollingStatus.WRITING
        while connection.status != ConnStatus.BAD and status in _UNDER_WAY:
            with DefaultSelector() as selector:
                selector.register(connection.socket, _UNDER_WAY[status])
                while not selector.select(_LOOK_SECONDS) and not self._over:
                    pass
            status = connection.connect_poll()
            with self._lock:
                if self._over:
                    break
                if connection.status not in _NO_PEER:
                    self._granted.add(at)
        if status == PollingStatus.OK:
            connection.nonblocking = 1
            return LimitedConnection(connection)
        message = connection.get_error_message()
        connection.finish()
        with self._lock:
            if self._over:
                return None
            said = at in self._granted and not _NO_POSTGRES.search(message)
            self._granted.discard(at)  # it has had its say
        asked = message.startswith(_ASKED) and not _NOT_ASKED.search(message)
        return _Failed(f"connection failed: {message}", said or not asked)


@contextmanager
def _race(parts: Mapping[str, Any], seconds: float) -> Iterator[_Race]:
    race = _Race(parts, seconds)
    try:
        yield race
    finally:
        race.close()


def _look_up(place: int, host_and_port: str) -> _Named:
    host, _, port = host_and_port.rpartition(":")
    try:
        found = [str(ipaddress.ip_address(host))]
    except ValueError:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            # Where it is not known to stand for nothing, the resolver gave no answer: that says nothing of the server.
            doubt = not (isinstance(error, socket.gaierror) and error.errno in _NO_ADDRESS)
            return _Named(error=f"failed to resolve host {host!r}: {error}", doubt=doubt)
        found = [str(answer[4][0]) for answer in answers]
    return _Named([_Address((place, number), host, port, each) for number, each in enumerate(dict.fromkeys(found))])
