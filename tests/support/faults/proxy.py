"""A proxy before a real server, which does to connections what networks and overloaded servers do."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sterna.servers.process import LOOPBACK

_CHUNK_BYTES = 64 * 1024
_DELAY_SECONDS = 0.3  # seconds
_TIMEOUT_SECONDS = 5.0
_MAX_TRUNCATED_BYTES = 300  # bytes of an answer that is cut, or of a head that is left whole


def _error(status: str, code: str) -> bytes:
    """Return S3's answer to a request that fails."""
    body = f"<Error><Code>{code}</Code><Message>.</Message></Error>"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


@dataclass
class Connection:
    """One connection through the proxy.

    Args:
        client: who asks.
        server: the real one.
        over: set when the proxy ends.
    """

    client: socket.socket
    server: socket.socket
    over: threading.Event

    def forward(
        self, alter: Callable[[bytes], bytes] = lambda data: data, refuse: Callable[[bytes], bytes] = lambda data: b""
    ) -> None:
        """Pass bytes on both ways, until one side ends.

        Args:
            alter: changes what comes back, and ends it by returning less than it was given.
            refuse: returns what to answer to a request in the server's place, or nothing for the server to answer it.
        """

        def there(data: bytes) -> bytes:
            answer = refuse(data)
            if answer:
                self._answer(answer)
            return b"" if answer else data

        back = threading.Thread(target=self._pump, args=(self.server, self.client, alter), daemon=True)
        back.start()
        self._pump(self.client, self.server, there)
        back.join()

    def first(self) -> bytes:
        """Take the beginning of the request."""
        return self.client.recv(_CHUNK_BYTES)

    def _answer(self, answer: bytes) -> None:
        """Answer, and take in what is left of the request: an early end would be a reset, and hide the answer."""
        self.client.sendall(answer)
        self.client.shutdown(socket.SHUT_WR)
        self.client.settimeout(_TIMEOUT_SECONDS)
        while self.client.recv(_CHUNK_BYTES):
            pass

    def _pump(self, source: socket.socket, target: socket.socket, alter: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                altered = alter(data)
                target.sendall(altered)
                if len(altered) < len(data):
                    break
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


Fault = Callable[[Connection], None]


def reset(connection: Connection) -> None:
    """Take a request and reset the connection."""
    connection.first()
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unavailable(connection: Connection) -> None:
    """Answer that the server has too much to do."""
    connection.first()
    connection.client.sendall(_error("503 Slow Down", "SlowDown"))


def half_open(connection: Connection) -> None:
    """Take a request and never say a word."""
    connection.over.wait()


def late(connection: Connection) -> None:
    """Take a while over each part of an answer."""

    def alter(data: bytes) -> bytes:
        connection.over.wait(_DELAY_SECONDS)
        return data

    connection.forward(alter)


def truncated(connection: Connection) -> None:
    """Cut the answer in its middle."""
    sent = 0

    def alter(data: bytes) -> bytes:
        nonlocal sent
        part = data[: max(0, _MAX_TRUNCATED_BYTES - sent)]
        sent += len(part)
        return part

    connection.forward(alter)


def flipped(connection: Connection) -> None:
    """Flip a bit in the last byte of a Parquet file that comes back whole."""

    def alter(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if b"\r\n\r\nPAR1" in data else data

    connection.forward(alter)


def full(connection: Connection) -> None:
    """Take no object: there is no room left."""
    answer = _error("507 Insufficient Storage", "InsufficientStorage")
    connection.forward(refuse=lambda data: answer if data.startswith((b"PUT ", b"POST ")) else b"")


def expired(token: str) -> Fault:
    """Refuse requests of a session that is over, as S3 does."""
    answer = _error("400 Bad Request", "ExpiredToken")

    def refuse(data: bytes) -> bytes:
        head = data.partition(b"\r\n\r\n")[0]
        if token.encode() not in head:
            return b""
        return answer.partition(b"<")[0] if head.startswith(b"HEAD ") else answer

    return lambda connection: connection.forward(refuse=refuse)


def stuck(token: str, until: threading.Event) -> Fault:
    """Pass everything on, but say nothing to requests that name something, until told so."""

    def refuse(data: bytes) -> bytes:
        if token.encode() in data.partition(b"\r\n")[0]:
            until.wait()
        return b""

    return lambda connection: connection.forward(refuse=refuse)


@dataclass
class Proxy:
    """A proxy that passes everything on, unless it is told otherwise.

    Args:
        url: its address.
        struck: how many connections met a fault.
    """

    url: str = ""
    struck: int = 0
    _fault: Fault | None = None
    _left: int = 0
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, fault: Fault, times: int = 1_000_000) -> None:
        """Let the next connections meet a fault; those that are open now are ended, so that their users come again."""
        with self._lock:
            self._fault, self._left = fault, times
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Pass everything on again."""
        with self._lock:
            self._left = 0

    def _next(self, client: socket.socket) -> Fault:
        with self._lock:
            self._open.add(client)
            if self._fault is None or not self._left:
                return Connection.forward
            self._left -= 1
            self.struck += 1
            return self._fault

    def _end(self, client: socket.socket) -> None:
        with self._lock:
            self._open.discard(client)


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Put a proxy before a server on this machine.

    Args:
        port: the server's.
    """
    proxy, over = Proxy(), threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            fault = proxy._next(self.request)
            try:
                with suppress(OSError), socket.create_connection((LOOPBACK, port)) as server:
                    fault(Connection(self.request, server, over))
            finally:
                proxy._end(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

        def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
            # Not shut down first, which would turn a reset into an orderly end.
            assert isinstance(request, socket.socket)
            request.close()

    with Server((LOOPBACK, 0), Handler) as server:
        proxy.url = f"http://{LOOPBACK}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            over.set()
            proxy.strike(reset)
            server.shutdown()
            thread.join()
