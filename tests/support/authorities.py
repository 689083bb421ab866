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
    """Let clients that trust the usual authorities share one context; others get one of their own as before."""
    transports.create_ssl_context = _context


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    named = any(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    if verify is not True or cert or (trust_env and named):
        return _create(verify=verify, cert=cert, trust_env=trust_env)
    return _usual()


@cache
def _usual() -> ssl.SSLContext:
    return _create(trust_env=False)
