"""Servers in a Postgres' place that accept connections and then keep silent, at one point or another."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# What libpq asks of `target_session_attrs=read-write`, so that it needs no question of its own.
_PARAMETERS = {"server_version": "16.0", "in_hot_standby": "off", "default_transaction_read_only": "off"}
_SSL_REQUEST = 80877103


@contextmanager
def silent_postgres(
    *, answers_startup: bool, after: float = 0.0, standby: bool = False, left: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Serve `host:port`; shake hands and hang at the first query, or never say a word.

    Args:
        answers_startup: it lets everybody in, as a server does that was stopped right after that.
        after: seconds that this takes.
        standby: it takes no writes.
        left: called when one who was let in has gone.
    """
    over = threading.Event()
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not over.is_set():
                with suppress(OSError):
                    client, _ = server.accept()
                    held.append(client)
                    if answers_startup:
                        threading.Thread(target=_let_in, args=(client, after, standby, left), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            with suppress(OSError):
                socket.create_connection(server.getsockname(), timeout=1).close()  # wakes `accept`
            thread.join(5)
            for client in held:
                client.close()


def _let_in(client: socket.socket, after: float, standby: bool, left: Callable[[], None]) -> None:
    with suppress(OSError, struct.error):
        while _startup_code(client) == _SSL_REQUEST:
            client.sendall(b"N")
        time.sleep(after)
        client.sendall(_message(b"R", struct.pack("!I", 0)))  # AuthenticationOk
        for name, value in {**_PARAMETERS, "in_hot_standby": "on" if standby else "off"}.items():
            client.sendall(_message(b"S", f"{name}\0{value}\0".encode()))
        client.sendall(_message(b"K", struct.pack("!II", 1, 1)) + _message(b"Z", b"I"))  # ReadyForQuery
        while client.recv(4096):
            pass
    left()


def _startup_code(client: socket.socket) -> int:
    length, code = struct.unpack("!II", client.recv(8, socket.MSG_WAITALL))
    if length > 8:
        client.recv(length - 8, socket.MSG_WAITALL)
    return int(code)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
