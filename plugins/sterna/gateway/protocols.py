"""How connections are read and written: uvicorn's protocols, with limits that an app can't set."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sterna.gateway.gateway import ServeOptions

_MOST_HEADERS = 16 * 1024
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Patient:
    """A protocol that cuts a client off which takes nothing for too long."""

    options: ServeOptions
    _blocked: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is here."""
        _end_with_untaken(transport, self.options.patience)
        super().connection_made(transport)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """The client doesn't take what was sent."""
        super().pause_writing()  # type: ignore[misc]
        transport: Any = self.transport  # type: ignore[attr-defined]
        self._blocked = asyncio.get_running_loop().call_later(self.options.patience, transport.abort)

    def resume_writing(self) -> None:
        """It takes it again."""
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._blocked is not None:
            self._blocked.cancel()
        super().connection_lost(exc)  # type: ignore[misc]


def _end_with_untaken(transport: Any, seconds: float) -> None:
    """Have the kernel end a connection whose client takes nothing: it holds megabytes before the gateway notices."""
    link = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # RFC 5482; Linux counts a window of zero, too
    if link is not None and option is not None and link.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # it is gone already
            link.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))


class _Http(_Patient, HttpToolsProtocol):
    """Requests, whose headers have to be here in time and within a size.

    The parser is C: one in Python takes a third of the time of an answer of features.
    """

    _waiting: asyncio.TimerHandle | None = None
    _upgraded = False
    _within = False  # headers, of which there are so many bytes beyond the part in which they began
    _read = 0
    _kept = 0
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # who closes while more comes takes the answer away: the time for headers ends it
        within = self._within
        super().data_received(data)
        if within and self._within:
            self._read += len(data)
            if self._read > _MOST_HEADERS and not self.transport.is_closing():
                self._refused = True
                self.transport.write(_TOO_LARGE)
                self.transport.write_eof()
                return
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self._await_headers()
        else:
            self._no_more_waiting()

    def on_message_begin(self) -> None:
        self._within, self._read, self._kept = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._kept <= _MOST_HEADERS:  # the app refuses the request by those that are kept
            self._kept += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._within = False
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self._no_more_waiting()
        self._upgraded = True
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_more_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        # Whoever sends headers a byte at a time, or none at all, keeps a connection from others.
        if self._waiting is None and not self._upgraded:
            self._waiting = self.loop.call_later(self.options.headers, self.transport.abort)

    def _no_more_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class _WebSocket(_Patient, WebSocketsSansIOProtocol):
    """Messages of a WebSocket."""


def http_protocol(options: ServeOptions) -> type[HttpToolsProtocol]:
    """Return the protocol of a gateway's requests."""
    return type("Http", (_Http,), {"options": options})


def websocket_protocol(options: ServeOptions) -> type[WebSocketsSansIOProtocol]:
    """Return the protocol of a gateway's WebSockets."""
    return type("WebSocket", (_WebSocket,), {"options": options})
