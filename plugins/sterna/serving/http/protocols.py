"""How connections are read and written: uvicorn's protocols, with limits that an app can't set."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sterna.serving.http.context import ServeOptions
from sterna.serving.http.fanout import StreamConnection

_CONNECTION = "sterna.connection"  # of a scope's extensions
_MAX_HEADER_BYTES = 16 * 1024
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _WriteTimeoutProtocol:
    """A protocol that cuts a client off which takes nothing for too long."""

    options: ServeOptions
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is here."""
        _set_user_timeout(transport, self.options.write_timeout)
        super().connection_made(transport)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """The client doesn't take what was sent."""
        super().pause_writing()  # type: ignore[misc]
        transport: Any = self.transport  # type: ignore[attr-defined]
        self._write_timer = asyncio.get_running_loop().call_later(self.options.write_timeout, transport.abort)

    def resume_writing(self) -> None:
        """It takes it again."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)  # type: ignore[misc]


def _set_user_timeout(transport: Any, seconds: float) -> None:
    """Have the kernel end a connection whose client takes nothing: it holds megabytes before the gateway notices."""
    link = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # RFC 5482; Linux counts a window of zero, too
    if link is not None and option is not None and link.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # it is gone already
            link.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))


class _HttpProtocol(_WriteTimeoutProtocol, HttpToolsProtocol):
    """Requests, whose headers have to be here in time and within a size.

    The parser is C: one in Python takes a third of the time of an answer of features.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _upgraded = False
    _in_headers = False  # headers, of which there are so many bytes beyond the part in which they began
    _extra_header_bytes = 0
    _kept_header_bytes = 0
    _rejected = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        if self._rejected:
            return  # closing while more arrives would lose the answer: the time for headers ends it
        in_headers = self._in_headers
        super().data_received(data)
        if in_headers and self._in_headers:
            self._extra_header_bytes += len(data)
            if self._extra_header_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
                self._rejected = True
                self.transport.write(_TOO_LARGE)
                self.transport.write_eof()
                return
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self._start_header_timer()
        else:
            self._cancel_header_timer()

    def on_message_begin(self) -> None:
        self._in_headers, self._extra_header_bytes, self._kept_header_bytes = True, 0, 0
        super().on_message_begin()
        scope: Any = self.scope
        scope.setdefault("extensions", {})[_CONNECTION] = self

    def write_chunk(self, chunk: bytes) -> bool:
        """Write a chunk of the response under way, unless the client takes nothing now; return whether it was
        written.
        """
        cycle: Any = self.cycle
        if self._write_timer is not None or self.transport.is_closing() or not cycle.chunked_encoding:
            return False
        self.transport.write(chunk)
        return True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._kept_header_bytes <= _MAX_HEADER_BYTES:  # the app refuses the request by those that are kept
            self._kept_header_bytes += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self._cancel_header_timer()
        self._upgraded = True
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_header_timer()
        super().connection_lost(exc)

    def _start_header_timer(self) -> None:
        # A client that sends headers byte by byte, or none at all, would occupy a connection.
        if self._header_timer is None and not self._upgraded:
            self._header_timer = self.loop.call_later(self.options.header_timeout, self.transport.abort)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def stream_connection(scope: Scope) -> StreamConnection | None:
    """Return the connection of a request, to write its response's chunks to; None under another server."""
    connection: StreamConnection | None = scope.get("extensions", {}).get(_CONNECTION)
    return connection


class _WebSocketProtocol(_WriteTimeoutProtocol, WebSocketsSansIOProtocol):
    """Messages of a WebSocket."""


def http_protocol(options: ServeOptions) -> type[HttpToolsProtocol]:
    """Return the protocol of a gateway's requests."""
    return type("Http", (_HttpProtocol,), {"options": options})


def websocket_protocol(options: ServeOptions) -> type[WebSocketsSansIOProtocol]:
    """Return the protocol of a gateway's WebSockets."""
    return type("WebSocket", (_WebSocketProtocol,), {"options": options})
