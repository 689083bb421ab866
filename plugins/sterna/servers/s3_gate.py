"""The gate of an embedded object store: a program in front of `rclone serve s3` that imports nothing of sterna.

    python s3_gate.py 127.0.0.1:9001 us.sock -- rclone serve s3 … --addr unix://us.sock
    python s3_gate.py 127.0.0.1:9003 us-lake=127.0.0.1:9001 eu-lake=127.0.0.1:9002

The first starts the server, and listens when it does. It passes on every byte but for the *marker* of a folder: an
empty object whose key ends with a slash, which pyarrow puts whenever it has deleted a file of the folder. The server
takes the marker for a file that has the folder's name, answers 500 and forgets the folder's files for a second. So the
request is changed to one that it rejects: after it has checked signature and bucket, before it writes anything. An
earlier error (403, 404) is passed on. Otherwise the client gets a success; the marker is in no listing.

Either stops answering at a signal, and resumes at another: a server takes much longer to start.

The second is in front of several others, and chooses by the bucket. It keeps nothing, so that what it serves is never
older than what they do.

With `--log-requests` behind the address of the gate, each request that was answered is a line of the output, before its
client has the answer: `REQUEST 200 GET /us-lake/key?query`. The method is COPY where another object is copied.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import closing, suppress

_MAX_FORWARD_BYTES = 1 << 18
_MAX_READ_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"
_MARKER = re.compile(rb"PUT /[^/?\s]+/[^?\s]*/ ")
# What is no digest at all is refused after everything else that a head can be refused for.
_INVALID_DIGEST = b"\r\nContent-MD5: -" + _HEAD_END
_BAD_REQUEST = re.compile(rb"HTTP/1\.1 400 ")
MARKER_CREATED = b'HTTP/1.1 200 OK\r\nETag: "d41d8cd98f00b204e9800998ecf8427e"\r\nContent-Length: 0' + _HEAD_END
_HAS_NO_BODY = re.compile(rb"HTTP/1\.1 (204|304) ")
_CONTINUE = re.compile(rb"HTTP/1\.1 100 ")
_POLL_SECONDS = 0.01
_BACKLOG = 1024
LOG_OPTION, LOG_PREFIX = "--log-requests", b"REQUEST "
"""The option that has requests logged, and how their lines begin."""
SUSPEND_SIGNAL, RESUME_SIGNAL = signal.SIGUSR1, signal.SIGUSR2
"""Signals: refuse connections and end the open ones, and accept them again."""


class _ConnectionClosedError(Exception):
    """A side has closed the connection."""


class RequestLog:
    """Where answered requests are written to.

    Args:
        descriptor: the file; None: nowhere.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, request: bytes, answer: bytes) -> None:
        """Write a line from the heads of a request and its answer."""
        if self._descriptor is None:
            return
        method, target = request.split(b" ", 2)[:2]
        if _header_value(request, b"x-amz-copy-source") is not None:
            method = b"COPY"
        with self._lock:  # a long line is no single write of a pipe's
            os.write(self._descriptor, LOG_PREFIX + b" ".join((answer[9:12], method, target)) + b"\n")


class BufferedSocket:
    """One side of a connection; no dataclass, whose import would double the time that a gate takes to start."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""  # and not used yet

    @property
    def has_buffered(self) -> bool:
        """Return whether there are bytes that were read and not used yet."""
        return bool(self._buffer)

    def read_until(self, end: bytes) -> bytes:
        """Return what comes up to an end, with it."""
        while end not in self._buffer:
            self._read_more()
        head, end, self._buffer = self._buffer.partition(end)
        return head + end

    def peek(self, size: int) -> bytes:
        """Return the next bytes; they stay."""
        while len(self._buffer) < size:
            self._read_more()
        return self._buffer[:size]

    def skip(self, size: int) -> None:
        """Forget bytes that were peeked at."""
        self._buffer = self._buffer[size:]

    def forward(self, first: bytes, size: int, other: BufferedSocket) -> None:
        """Send the other side something, and the next bytes of this side."""
        other.socket.sendall(first + self._buffer[:size])
        remaining = max(size - len(self._buffer), 0)
        self._buffer = self._buffer[size:]
        chunk = memoryview(bytearray(min(remaining, _MAX_FORWARD_BYTES)))
        while remaining:
            read = self.socket.recv_into(chunk, min(remaining, len(chunk)))
            if not read:
                raise _ConnectionClosedError
            other.socket.sendall(chunk[:read])
            remaining -= read

    def forward_all(self, first: bytes, other: BufferedSocket) -> None:
        """Send the other side something, and what comes until this side ends."""
        other.socket.sendall(first + self._buffer)
        while chunk := self.socket.recv(_MAX_READ_BYTES):
            other.socket.sendall(chunk)
        raise _ConnectionClosedError

    def forward_chunks(self, first: bytes, other: BufferedSocket) -> None:
        """Send bytes to the other side, and a body of declared length piece by piece."""
        size = 1
        while size:
            line = self.read_until(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            self.forward(first + line, size + 2 if size else 0, other)
            first = b""
        while line != b"\r\n":  # trailers after the last piece
            line = self.read_until(b"\r\n")
            other.socket.sendall(line)

    def _read_more(self) -> None:
        more = self.socket.recv(_MAX_READ_BYTES)
        if not more:
            raise _ConnectionClosedError
        self._buffer += more


def main(listen: str, *arguments: str) -> None:
    """Start the server, where there is one, and pass requests on until a signal.

    Args:
        listen: host and port of the gate.
        arguments: `--log-requests` or not; where requests go, `bucket=address`, or one address for all buckets: host
            and port, or the path of a Unix socket; then `--` and the server's command.
    """
    log = RequestLog(sys.stdout.fileno() if LOG_OPTION in arguments[:1] else None)
    arguments = tuple(argument for argument in arguments if argument != LOG_OPTION)
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    targets, command = arguments[:separator], arguments[separator + 1 :]
    child = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        if command:
            with suppress(FileNotFoundError):
                os.unlink(targets[0])  # of a server that was killed
            child = subprocess.Popen(command)
            _wait_for_server(child, targets[0])
        signals = _signal_socket(SUSPEND_SIGNAL, RESUME_SIGNAL)
        accept_connections(listen, parse_routes(targets), signals, log, markers=bool(command))
    finally:
        if child is not None:
            child.terminate()
            child.wait()
        os._exit(0)  # whatever the connections' threads wait for


def _wait_for_server(child: subprocess.Popen[bytes], address: str) -> None:
    """Wait until the server listens; from now on the gate ends when it does."""

    def end_with_it() -> None:
        os._exit(child.wait() or 1)

    threading.Thread(target=end_with_it, daemon=True).start()
    while True:
        with suppress(OSError):
            _connect(address).socket.close()
            return
        time.sleep(_POLL_SECONDS)


def parse_routes(targets: Collection[str]) -> dict[str, str]:
    """Return bucket → address; "" is for all others, which the first server answers as missing."""
    pairs = [target.rpartition("=")[::2] for target in targets]
    return {"": pairs[0][1], **dict(pairs)}


def _connect(address: str) -> BufferedSocket:
    host, _, port = address.rpartition(":")
    if host:
        return _buffered_socket(socket.create_connection((host, int(port))))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return BufferedSocket(connection)


def _buffered_socket(connection: socket.socket) -> BufferedSocket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return BufferedSocket(connection)


def accept_connections(
    listen: str, routes: Mapping[str, str], signals: socket.socket, log: RequestLog, *, markers: bool
) -> None:
    """Take connections; none while the gate is dark, which it is from one signal to the other.

    Args:
        listen: host and port of the gate.
        routes: bucket → address, as `parse_routes` returns them.
        signals: where the numbers of signals come from.
        log: gets the requests.
        markers: the server behind it is one that takes no markers.
    """
    host, _, port = listen.rpartition(":")
    address, is_suspended = (host, int(port)), False
    open_sockets: set[socket.socket] = set()
    server = socket.create_server(address, backlog=_BACKLOG)
    while True:
        ready, _, _ = select.select([signals] if is_suspended else [signals, server], [], [])
        if signals in ready:
            is_suspended = signals.recv(_MAX_READ_BYTES)[-1] == SUSPEND_SIGNAL
            server.close()
            server = _reserve_address(address) if is_suspended else socket.create_server(address, backlog=_BACKLOG)
            while is_suspended and open_sockets:
                with suppress(OSError):  # it has just ended
                    open_sockets.pop().shutdown(socket.SHUT_RDWR)
        elif server in ready:
            connection, _ = server.accept()
            open_sockets.add(connection)
            arguments = (_buffered_socket(connection), routes, markers, open_sockets, log)
            threading.Thread(target=serve_connection, args=arguments, daemon=True).start()


def _signal_socket(*numbers: int) -> socket.socket:
    """Return what the numbers of signals can be read from, from now on."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach())
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return reading


def _reserve_address(address: tuple[str, int]) -> socket.socket:
    """Keep an address from others: what is bound and does not listen refuses connections."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(address)
    return reserved


def serve_connection(
    client: BufferedSocket,
    routes: Mapping[str, str],
    markers: bool,
    open_sockets: set[socket.socket],
    log: RequestLog,
) -> None:
    """Pass on the requests of one connection, whose sockets are among the open ones while it lasts."""
    servers: dict[str, BufferedSocket] = {}
    with closing(client.socket), suppress(OSError, _ConnectionClosedError):
        while True:
            _wait_for_request(client, servers.values())
            request = client.read_until(_HEAD_END)
            address = routes.get(_parse_bucket(request), routes[""])
            if address not in servers:
                servers[address] = _connect(address)
                open_sockets.add(servers[address].socket)
                if client.socket not in open_sockets:  # the gate has gone dark meanwhile
                    raise _ConnectionClosedError
            _forward_request(request, client, servers[address], log, markers=markers)
    open_sockets.discard(client.socket)
    for server in servers.values():
        open_sockets.discard(server.socket)
        server.socket.close()


def _wait_for_request(client: BufferedSocket, servers: Collection[BufferedSocket]) -> None:
    """Wait for the next request; when a server has closed its connection, so does the gate."""
    if not servers or client.has_buffered:
        return
    poll = select.poll()
    for side in (client, *servers):
        poll.register(side.socket, select.POLLIN)
    if any(number != client.socket.fileno() for number, _ in poll.poll()):
        raise _ConnectionClosedError


def _forward_request(
    request: bytes, client: BufferedSocket, server: BufferedSocket, log: RequestLog, *, markers: bool
) -> None:
    """Pass on a request, and its answer."""
    if markers and _is_marker(request):
        answer = _probe_marker(request, server)
    elif _header_value(request, b"expect") == b"100-continue" and _header_value(request, b"content-length") != b"0":
        server.socket.sendall(request)
        answer = server.read_until(_HEAD_END)
        if not _CONTINUE.match(answer):
            log.write(request, answer)
            _forward_answer(request, answer, client, server)
            raise _ConnectionClosedError  # it is unknown whether the client sends the body now
        client.socket.sendall(answer)
        _forward_body(b"", request, client, server)
        answer = server.read_until(_HEAD_END)
    else:
        _forward_body(request, request, client, server)
        answer = server.read_until(_HEAD_END)
    log.write(request, answer)
    _forward_answer(request, answer, client, server)
    if b"close" in (_header_value(request, b"connection"), _header_value(answer, b"connection")):
        raise _ConnectionClosedError


def _forward_body(first: bytes, head: bytes, source: BufferedSocket, target: BufferedSocket) -> None:
    """Send something, and the body that belongs to a head."""
    if _header_value(head, b"transfer-encoding") == b"chunked":
        source.forward_chunks(first, target)
    else:
        source.forward(first, int(_header_value(head, b"content-length") or 0), target)


def _forward_answer(request: bytes, answer: bytes, client: BufferedSocket, server: BufferedSocket) -> None:
    if request.startswith(b"HEAD ") or _HAS_NO_BODY.match(answer):
        client.socket.sendall(answer)
    elif _header_value(answer, b"content-length") is None and _header_value(answer, b"transfer-encoding") is None:
        server.forward_all(answer, client)
    else:
        _forward_body(answer, answer, server, client)


def _is_marker(request: bytes) -> bool:
    """Return whether a request puts the marker of a folder, in a way that can be refused in the end."""
    if _MARKER.match(request) is None or _header_value(request, b"content-length") != b"0":
        return False
    return _header_value(request, b"x-amz-copy-source") is None and _header_value(request, b"content-md5") is None


def _probe_marker(request: bytes, server: BufferedSocket) -> bytes:
    """Let the server check a marker, and return the head of the response to its client."""
    server.socket.sendall(request.removesuffix(_HEAD_END) + _INVALID_DIGEST)
    answer = server.read_until(_HEAD_END)
    length = int(_header_value(answer, b"content-length") or 0)
    if _BAD_REQUEST.match(answer) and b"<Code>InvalidDigest</Code>" in server.peek(length):
        server.skip(length)
        return MARKER_CREATED
    return answer


def _parse_bucket(request: bytes) -> str:
    path = request.split(b" ", 2)[1].partition(b"?")[0]
    return path.removeprefix(b"/").partition(b"/")[0].decode("latin-1")


def _header_value(head: bytes, name: bytes) -> bytes | None:
    """Return a header's value in small letters, None where it isn't there."""
    match = re.search(rb"\r\n" + name + rb":[ \t]*([^\r]*)\r\n", head, re.IGNORECASE)
    return match and match[1].strip().lower()


if __name__ == "__main__":
    main(*sys.argv[1:])
