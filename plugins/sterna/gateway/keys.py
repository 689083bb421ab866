"""The keys of an OpenID Connect server: asked for now and then, whatever tokens say, and outlasting its outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

_ANSWER_SECONDS = 5.0
FRESH_SECONDS = 300.0  # after that the server is asked again: a key that it took back is trusted no longer
KEPT_SECONDS = 3600.0  # for so long the last keys do where the server doesn't answer
UNKNOWN_SECONDS = 30.0  # between two looks for a key that isn't among them: anybody can name one
FAILED_SECONDS = 10.0  # in which a look that failed isn't repeated


class ServerKeys:
    """The keys of one server, found by its discovery document; for any number of threads, of which one at a time asks.

    Args:
        server: its address.
        clock: tells seconds.
    """

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._clock = server.rstrip("/"), clock
        self._address = ""
        self._keys: Mapping[str, Any] = {}
        self._fetched = self._failed = float("-inf")
        self._asking = threading.Lock()

    def __call__(self, token: str) -> Any:
        """Return the key that a token names.

        Raises:
            PyJWKClientConnectionError: the server doesn't answer, or is being asked.
            PyJWTError: it has no such key, or this is no token.
        """
        import jwt

        name = str(jwt.get_unverified_header(token).get("kid", ""))
        if self._due(name):
            self._ask(name)
        if self._clock() - self._fetched >= KEPT_SECONDS:
            raise jwt.PyJWKClientConnectionError("no keys")
        if (key := self._keys.get(name)) is not None:
            return key
        if self._failed > self._fetched:  # it may be a new one
            raise jwt.PyJWKClientConnectionError("the last look for keys failed")
        raise jwt.PyJWKClientError("no such key")

    def _due(self, name: str) -> bool:
        now = self._clock()
        if now - self._failed < FAILED_SECONDS:
            return False
        return now - self._fetched >= (FRESH_SECONDS if name in self._keys else UNKNOWN_SECONDS)

    def _ask(self, name: str) -> None:
        import jwt

        # A look that hangs takes one thread, else forged tokens would take them all.
        # In an outage the last keys do. Else whoever names one waits: it may be the one that was taken back.
        known = name in self._keys
        wait = not self._keys or (known and self._failed <= self._fetched)
        if not (self._asking.acquire(timeout=2 * _ANSWER_SECONDS) if wait else self._asking.acquire(blocking=False)):
            if known:
                return
            raise jwt.PyJWKClientConnectionError("somebody is asking")
        try:
            if self._due(name):  # and wasn't asked for while this one waited
                self._keys, self._fetched = self._fetch(), self._clock()
        except jwt.PyJWKClientConnectionError:
            self._failed, self._address = self._clock(), ""  # it may have moved
        finally:
            self._asking.release()

    def _fetch(self) -> dict[str, Any]:
        import jwt

        try:
            self._address = self._address or str(_json(f"{self._server}/.well-known/openid-configuration")["jwks_uri"])
            found = jwt.PyJWKSet.from_dict(_json(self._address)).keys
        except (jwt.PyJWTError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise jwt.PyJWKClientConnectionError(type(error).__name__) from None
        return {key.key_id: key.key for key in found if key.key_id and key.public_key_use in ("sig", None)}


def _json(address: str) -> Any:
    import httpx

    try:
        answer = httpx.get(address, timeout=_ANSWER_SECONDS)
        answer.raise_for_status()
        return answer.json()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ValueError(type(error).__name__) from None
