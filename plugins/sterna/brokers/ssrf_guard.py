"""Connections to allowed addresses only: the guard of webhooks against server-side request forgery.

A name is resolved once, each of its addresses is checked, and one of the checked addresses is connected to: so a name
that resolves to another address a moment later (DNS rebinding) has no effect.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore

from sterna.config.sections.sinks import LOOPBACK_HOSTS, Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """A name resolves to an address that is not allowed."""


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host."""
    address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address_info[4][0]) for address_info in address_infos]


class GuardedBackend(httpcore.NetworkBackend):
    """Connects to public addresses over TLS, and to networks that the settings allow.

    Args:
        networks: networks that are allowed beside public ones.
        plaintext: the connection has no TLS: public addresses are refused.
        resolver: returns a host's addresses.
    """

    def __init__(self, networks: Sequence[Network], *, plaintext: bool, resolver: Resolver = resolve) -> None:
        self._networks = networks
        self._plaintext = plaintext
        self._resolve = resolver
        self._backend = httpcore.SyncBackend()
        self.deadline = float("inf")

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """See `httpcore.NetworkBackend`."""
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name can't be resolved: {type(error).__name__}") from None
        if not addresses:
            raise httpcore.ConnectError("the name has no address")
        for address in addresses:
            self._validate_address(host, address)
        return _DeadlineStream(self._backend.connect_tcp(addresses[0], port, self.remaining_seconds(timeout)), self)

    def remaining_seconds(self, timeout: float | None) -> float:
        """Return the timeout of one step, bounded by the deadline of the whole answer.

        Raises:
            httpcore.ReadTimeout: the deadline has passed.
        """
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise httpcore.ReadTimeout("no answer in time")
        return remaining if timeout is None else min(timeout, remaining)

    def _validate_address(self, host: str, text: str) -> None:
        address = _unwrap_ipv4(ipaddress.ip_address(text.partition("%")[0]))
        allowed = any(address in network for network in self._networks) or (
            address.is_loopback and host in LOOPBACK_HOSTS and not self._networks
        )
        public = address.is_global and not address.is_multicast and not self._plaintext
        if not (allowed or public):
            raise AddressRefused(f"{host} leads to an address that isn't allowed")


def _unwrap_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds (mapped, 6to4, Teredo, NAT64), else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


class _DeadlineStream(httpcore.NetworkStream):
    """A connection whose steps all share the deadline of the whole answer."""

    def __init__(self, stream: httpcore.NetworkStream, backend: GuardedBackend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._backend.remaining_seconds(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._backend.remaining_seconds(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._stream.start_tls(ssl_context, server_hostname, self._backend.remaining_seconds(timeout))
        return _DeadlineStream(inner, self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
