"""Who asks: tokens as the catalog takes them, and tickets for pages that can't send one.

The settings are those of the catalog's own server (nessie/access.properties), so that one environment serves both:

    QUARKUS_OIDC_PUBLIC_KEY         tokens signed by the private half of this key
    QUARKUS_OIDC_AUTH_SERVER_URL    or an OpenID Connect server, whose keys are asked for
    QUARKUS_OIDC_TOKEN_ISSUER       who must have made a token
    QUARKUS_OIDC_TOKEN_AUDIENCE     what a token must be made for
    QUARKUS_OIDC_ROLES_ROLE_CLAIM_PATH   where its roles stand; default `groups`
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from sterna.errors import CredentialError
from sterna.gateway.keys import ServerKeys
from sterna.gateway.replies import later, unauthorized

# By name, for what a token says of its own algorithm is not to be trusted; none of them has a shared key.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_LONGEST_TOKEN = 8_192
_TICKET_SECONDS = 60.0
_MOST_TICKETS = 10_000
_AT_ONCE = 4  # tokens that are looked at, while at most one of these asks for keys
_MOST_WAITING = 512  # streams that come back all at once are a burst, too


@dataclass(frozen=True)
class Reader:
    """Who asks.

    Args:
        name: for logs.
        roles: of the token.
        ends: when the token does, as Unix time; None: never.
    """

    name: str
    roles: frozenset[str]
    ends: float | None = None


ANYBODY = Reader("", frozenset())
"""Whoever reaches a gateway without keys, which listens on the loopback alone. No rule lets him in: he has no role."""


class Verifier(Protocol):
    """Tells whose a token is."""

    def __call__(self, token: str) -> Reader:
        """Return whose it is; raise `RefusedRequest` where it isn't good. It may ask a server: call it in a thread."""
        ...


@dataclass(frozen=True)
class TokenRules:
    """What a token has to say.

    Args:
        issuer: who made it; "": anybody whose key fits.
        audience: what for; "": for anything.
        roles: the claim that has its roles, with `/` between the names of nested ones.
    """

    issuer: str = ""
    audience: str = ""
    roles: str = "groups"


@dataclass(frozen=True)
class Tokens:
    """Verifies tokens by keys.

    Args:
        rules: what a token has to say.
        keys: gives the key that a token names.
    """

    rules: TokenRules
    keys: _Keys = field(repr=False)

    def __call__(self, token: str) -> Reader:
        """See `Verifier`."""
        import jwt

        if len(token) > _LONGEST_TOKEN:
            raise unauthorized("the token is not valid")
        try:
            claims = jwt.decode(
                token,
                self.keys(token),
                algorithms=_ALGORITHMS,
                issuer=self.rules.issuer or None,
                audience=self.rules.audience or None,
                options={"require": ["exp"], "verify_aud": bool(self.rules.audience)},
            )
        except jwt.PyJWKClientConnectionError:
            raise later("the keys of tokens can't be asked for now") from None
        except jwt.ExpiredSignatureError:
            raise unauthorized("the token has ended") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            # Why is nobody's business: whoever forges one learns nothing.
            raise unauthorized("the token is not valid") from None
        return Reader(str(claims.get("sub", ""))[:200], _roles(claims, self.rules.roles), float(claims["exp"]))


class _Keys(Protocol):
    def __call__(self, token: str) -> Any: ...


@dataclass(frozen=True)
class _OneKey:
    key: Any = field(repr=False)

    def __call__(self, token: str) -> Any:
        return self.key


def verifier(environment: Mapping[str, str]) -> Verifier | None:
    """Return what verifies tokens by the catalog's own settings, None where there are no keys.

    Raises:
        CredentialError: a key is named that is none.
    """
    rules = TokenRules(
        environment.get("QUARKUS_OIDC_TOKEN_ISSUER", ""),
        environment.get("QUARKUS_OIDC_TOKEN_AUDIENCE", ""),
        environment.get("QUARKUS_OIDC_ROLES_ROLE_CLAIM_PATH", "") or "groups",
    )
    if text := environment.get("QUARKUS_OIDC_PUBLIC_KEY", ""):
        return Tokens(rules, _OneKey(_public_key(text)))
    server = environment.get("QUARKUS_OIDC_AUTH_SERVER_URL", "")
    return Tokens(rules, ServerKeys(server)) if server else None


def _public_key(text: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    lines = (line for line in text.splitlines() if "-----" not in line)
    try:
        return load_der_public_key(base64.b64decode("".join(lines), validate=True))
    except Exception:  # noqa: BLE001 - the library raises many kinds
        raise CredentialError("QUARKUS_OIDC_PUBLIC_KEY is no public key: expected Base64 of DER, or PEM") from None


def _roles(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    found: Any = claims
    for name in path.replace('"', "").split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str):
        found = found.split()
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()


class Verifying:
    """Verifies tokens in threads of its own: whatever it waits for, nothing else of the gateway waits for that.

    Args:
        verify: tells whose a token is.
    """

    def __init__(self, verify: Verifier) -> None:
        self._verify = verify
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sterna-tokens")
        self._count = 0

    async def __call__(self, token: str) -> Reader:
        """Return whose a token is.

        Raises:
            RefusedRequest: it isn't good, or too many others wait.
        """
        if self._count >= _MOST_WAITING:
            raise later("too many tokens wait to be looked at")
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, token)
        finally:
            self._count -= 1


class Tickets:
    """Tickets for one use, for a browser's `EventSource` and `WebSocket`, which can't send a token.

    They are known to the process that gave them and to no other.
    """

    def __init__(self) -> None:
        self._given: OrderedDict[str, tuple[float, Reader]] = OrderedDict()

    def give(self, reader: Reader) -> tuple[str, int]:
        """Return a new ticket, and for how many seconds it is good."""
        now = time.monotonic()
        while self._given and (next(iter(self._given.values()))[0] <= now or len(self._given) >= _MOST_TICKETS):
            self._given.popitem(last=False)
        ticket = secrets.token_urlsafe(32)
        self._given[ticket] = now + _TICKET_SECONDS, reader
        return ticket, int(_TICKET_SECONDS)

    def take(self, ticket: str) -> Reader:
        """Return whose a ticket is; it is good no more.

        Raises:
            RefusedRequest: it was used, has ended, or is none.
        """
        until, reader = self._given.pop(ticket, (0.0, ANYBODY))
        if until <= time.monotonic():
            raise unauthorized("the ticket was used, or has ended")
        return reader
