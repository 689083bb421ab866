"""A small HTTP server that answers, or fails to answer, as it is told."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Behaviour = Callable[["ScriptedServer", socket.socket], None]


@dataclass
class ScriptedServer:
    """What a test sees of the server.

    Args:
        uri: its address.
        requests: method, target and headers of each request, in order, the header names in lower case.
        over: set at the end; whoever hangs waits for it.
    """

    uri: str
    behaviours: list[Behaviour]
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def scripted_server(*behaviours: Behaviour) -> Iterator[ScriptedServer]:
    """Serve one request a connection with one behaviour each; the last behaviour serves all that follow."""
    script = ScriptedServer("", list(behaviours))
    lock = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, target, _ = self.rfile.readline().decode().split(" ", 2)
            headers = {}
            while line := self.rfile.readline().decode().strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            self.rfile.read(int(headers.get("content-length", 0)))
            with lock:
                script.requests.append((method, target, headers))
                behaviour = script.behaviours.pop(0) if len(script.behaviours) > 1 else script.behaviours[0]
            behaviour(script, self.connection)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        script.uri = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield script
        finally:
            script.over.set()
            server.shutdown()
            thread.join()


def answer(
    status: int, body: Any, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> Behaviour:
    """Answer with a status, further headers and a body; text as it is, anything else as JSON."""

    def behave(_: ScriptedServer, connection: socket.socket) -> None:
        connection.sendall(_head(status, content_type, len(_bytes(body)), headers) + _bytes(body))

    return behave


def half_answer(status: int, body: Any) -> Behaviour:
    """Promise a body and send half of it."""

    def behave(_: ScriptedServer, connection: socket.socket) -> None:
        connection.sendall(
            _head(status, "application/json", len(_bytes(body))) + _bytes(body)[: len(_bytes(body)) // 2]
        )

    return behave


def reset(_: ScriptedServer, connection: socket.socket) -> None:
    """Take the whole request and reset the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang(script: ScriptedServer, _: socket.socket) -> None:
    """Take the whole request and say nothing."""
    script.over.wait()


def drip(script: ScriptedServer, connection: socket.socket) -> None:
    """Send an answer that never ends, a byte at a time."""
    connection.sendall(_head(200, "application/json", 1_000_000))
    while not script.over.wait(0.02):
        try:
            connection.sendall(b" ")
        except OSError:
            return


def _head(status: int, content_type: str, length: int, headers: Mapping[str, str] | None = None) -> bytes:
    # The date is for clients of object stores.
    lines = (
        f"Content-Type: {content_type}",
        f"Content-Length: {length}",
        "Last-Modified: Sun, 22 Nov 2026 08:00:00 GMT",
        "Connection: close",
        *(f"{name}: {text}" for name, text in (headers or {}).items()),
    )
    return "\r\n".join((f"HTTP/1.1 {status} Some", *lines, "", "")).encode()


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
