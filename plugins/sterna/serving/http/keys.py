"""The keys of an OpenID Connect server: refreshed at intervals, whatever tokens name, and kept during its outages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna.codec import parse_json

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 5.0
REFRESH_SECONDS = 300.0  # then they are fetched again, so that a revoked key is trusted no longer
MAX_STALE_SECONDS = 3600.0  # for so long the last keys do where the server doesn't answer
UNKNOWN_KEY_SECONDS = 30.0  # between two fetches for an unknown key: any token can name one
RETRY_SECONDS = 10.0  # before a failed fetch is repeated


@dataclass(frozen=True)
class TokenKey:
    """A key that tokens are verified by.

    Args:
        key: its public half.
        issuer: the issuer of tokens signed with it; "": unknown.
    """

    key: Any = field(repr=False)
    issuer: str = ""


class ServerKeys:
    """The keys of one server, found by its discovery document; for any number of threads, of which one at a time
    fetches.

    Args:
        server: its address.
        clock: returns seconds.
        require_issuer: whether the document must name the issuer; else the key's user has to check it.
    """

    def __init__(
        self, server: str, clock: Callable[[], float] = time.monotonic, *, require_issuer: bool = True
    ) -> None:
        self._server, self._clock, self._require_issuer = server.rstrip("/"), clock, require_issuer
        self._keys: Mapping[str | None, TokenKey] = {}
        self._fetched_at = self._failed_at = float("-inf")
        self._fetch_lock = threading.Lock()

    def __call__(self, token: str) -> TokenKey:
        """Return the key that a token names; for one that names none, the only key without a name.

        Raises:
            PyJWKClientConnectionError: the server doesn't answer, is being queried, or names no issuer.
            PyJWTError: it has no such key, or this is no token.
        """
        import jwt

        name = _key_name(jwt.get_unverified_header(token))
        if self._is_fetch_due(name):
            self._refresh(name)
        if self._clock() - self._fetched_at >= MAX_STALE_SECONDS:
            raise jwt.PyJWKClientConnectionError("no keys")
        if (key := self._keys.get(name)) is not None:
            return key
        if self._failed_at > self._fetched_at:  # it may be a new one
            raise jwt.PyJWKClientConnectionError("the last look for keys failed")
        raise jwt.PyJWKClientError("no such key")

    def _is_fetch_due(self, name: str | None) -> bool:
        now = self._clock()
        if now - self._failed_at < RETRY_SECONDS:
            return False
        return now - self._fetched_at >= (REFRESH_SECONDS if name in self._keys else UNKNOWN_KEY_SECONDS)

    def _refresh(self, name: str | None) -> None:
        import jwt

        # A look that hangs takes one thread, else forged tokens would take them all.
        # In an outage the last keys do. Else a token that names one waits: that key may have been revoked.
        is_cached = name in self._keys
        wait = not self._keys or (is_cached and self._failed_at <= self._fetched_at)
        if not (
            self._fetch_lock.acquire(timeout=2 * REQUEST_TIMEOUT_SECONDS)
            if wait
            else self._fetch_lock.acquire(blocking=False)
        ):
            if is_cached:
                return
            raise jwt.PyJWKClientConnectionError("another thread is fetching the keys")
        try:
            if self._is_fetch_due(name):  # and wasn't asked for while this one waited
                self._keys, self._fetched_at = self._fetch(), self._clock()
        except jwt.PyJWKClientConnectionError as error:
            self._failed_at = self._clock()
            log.warning("the keys of tokens can't be asked for: %s", error)
        finally:
            self._fetch_lock.release()

    def _fetch(self) -> dict[str | None, TokenKey]:
        import jwt

        try:
            # The document is read each time: the keys may have moved, and the issuer may have another name.
            discovery = _fetch_json(f"{self._server}/.well-known/openid-configuration")
            issuer = discovery.get("issuer")
            if not (isinstance(issuer, str) and issuer):
                if self._require_issuer:
                    raise ValueError("the server's discovery document names no issuer")
                issuer = ""
            json_keys = [
                json_key for json_key in _fetch_json(str(discovery["jwks_uri"]))["keys"] if isinstance(json_key, dict)
            ]
            keys = jwt.PyJWKSet([json_key for json_key in json_keys if not _uses_certificate(json_key)]).keys
        except (jwt.PyJWTError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise jwt.PyJWKClientConnectionError(_reason(error)) from None
        signing = [key for key in keys if key.public_key_use in ("sig", None)]
        nameless = [key for key in signing if key.key_id is None]
        return {
            # With several, none: which of them is meant is ambiguous.
            **({None: TokenKey(nameless[0].key, issuer)} if len(nameless) == 1 else {}),
            **{key.key_id: TokenKey(key.key, issuer) for key in signing if isinstance(key.key_id, str)},
        }


def _key_name(header: Mapping[str, Any]) -> str | None:
    """Return the key that a token names, None where it doesn't name any in any way."""
    by_certificate = header.keys() & {"x5t", "x5t#S256"}
    name: str | None = header.get("kid", "" if by_certificate else None)
    return name


def _uses_certificate(key: Mapping[str, Any]) -> bool:
    return key.get("kid") is None and bool(key.keys() & {"x5c", "x5t", "x5t#S256"})


def _reason(error: Exception) -> str:
    # Others' exceptions may show what they read; the ValueErrors are our own, or say where JSON ends.
    return str(error) if isinstance(error, ValueError) else type(error).__name__


def _fetch_json(address: str) -> Any:
    import httpx

    try:
        answer = httpx.get(address, timeout=REQUEST_TIMEOUT_SECONDS)
        answer.raise_for_status()
        return parse_json(answer.text)
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as error:  # the last: a proxy of the environment
        raise ValueError(type(error).__name__) from None
