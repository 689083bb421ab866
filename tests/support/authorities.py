"""The certificate authorities that httpx trusts: read once in a process of tests, not for each client.

Reading them takes 20 ms, also where a client asks a server on the loopback without TLS.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

from httpx._transports import default as transports

_create = transports.create_ssl_context


def read_once() -> None:
    """Let clients that trust the same authorities share one context; a client with a certificate has its own."""
    transports.create_ssl_context = _context


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is not True or cert:
        return _create(verify=verify, cert=cert, trust_env=trust_env)
    return _shared(*(_named(name) if trust_env else None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))


def _named(variable: str) -> tuple[str, int] | None:
    """The file or folder that the environment names, and when it was written last."""
    path = os.environ.get(variable)
    return (path, os.stat(path).st_mtime_ns if os.path.exists(path) else 0) if path else None


@cache
def _shared(file: tuple[str, int] | None, folder: tuple[str, int] | None) -> ssl.SSLContext:
    return _create(trust_env=bool(file or folder))
