"""Authentication: tokens as the catalog accepts them, and tickets for pages that can't send one.

The settings are those of the catalog's own server (nessie/access.properties), so that one environment serves both:

    QUARKUS_OIDC_AUTH_SERVER_URL    an OpenID Connect server, whose keys are asked for; it goes before a key
    QUARKUS_OIDC_PUBLIC_KEY         or tokens signed by the private half of this key
    QUARKUS_OIDC_TOKEN_ISSUER       the required issuer of a token; `any`: any issuer. Default: the one in the server's
                                    discovery document; with a key alone, any
    QUARKUS_OIDC_TOKEN_AUDIENCE     what a token must be made for: one of these, with commas between; default, or `any`:
                                    anything
    QUARKUS_OIDC_ROLES_ROLE_CLAIM_PATH   where its roles stand, with commas between several places. Default: `groups`;
                                    where that has none, Keycloak's `realm_access/roles`
    QUARKUS_OIDC_CLIENT_ID          and then Keycloak's `resource_access/<this>/roles`, too

What that means is Quarkus' to say: a token is good here if and only if the catalog takes it, which a test checks with
a real one (tests/integration/http/test_tokens_oracle.py). That names where this one is stricter. No clock skew is
forgiven.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from sterna.codec import parse_json
from sterna.errors import CredentialError
from sterna.serving.http.errors import unauthorized, unavailable
from sterna.serving.http.keys import ServerKeys, TokenKey

# By name, since a token's own algorithm is not to be trusted; none of them has a shared key.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_ANY = "any"
_MAX_TOKEN_CHARS = 8_192
_MAX_TIME = 2.0**63
_SLASH = re.compile(r'/(?=(?:[^"]*"[^"]*")*[^"]*$)')  # outside quotes
# By these the catalog would refuse more than the gateway does, or find other roles.
_UNSUPPORTED_SETTINGS = (
    "QUARKUS_OIDC_ROLES_ROLE_CLAIM_SEPARATOR",
    "QUARKUS_OIDC_ROLES_SOURCE",
    "QUARKUS_OIDC_TOKEN_AGE",
    "QUARKUS_OIDC_TOKEN_REQUIRED_CLAIMS",
    "QUARKUS_OIDC_TOKEN_REQUIRE_JWT_INTROSPECTION_ONLY",
    "QUARKUS_OIDC_TOKEN_SIGNATURE_ALGORITHM",
    "QUARKUS_OIDC_TOKEN_SUBJECT_REQUIRED",
    "QUARKUS_OIDC_TOKEN_TOKEN_TYPE",
    "QUARKUS_OIDC_TOKEN_VERIFY_ACCESS_TOKEN_WITH_USER_INFO",
)
_TICKET_SECONDS = 60.0
_MAX_TICKETS = 10_000
_MAX_CONCURRENCY = 4  # tokens that are verified at once; at most one of them fetches keys
MAX_WAITING_TOKENS = 512  # streams that come back all at once are a burst, too


@dataclass(frozen=True)
class Reader:
    """An authenticated reader.

    Args:
        name: for logs.
        roles: of the token.
        expires_at: when the token does, as Unix time; None: never.
    """

    name: str
    roles: frozenset[str]
    expires_at: float | None = None


ANONYMOUS = Reader("", frozenset())
"""The reader at a gateway without keys, which listens on the loopback alone; it has no role, so no rule admits it."""


class Verifier(Protocol):
    """Verifies tokens."""

    def __call__(self, token: str) -> Reader:
        """Return a token's reader, or raise `RequestError`. It may send a request for keys: call it in a thread."""
        ...


@dataclass(frozen=True)
class TokenRules:
    """Requirements on a token's claims.

    Args:
        issuer: the required issuer; "any": any; "": the one of the key.
        audiences: what for, one of these; none, or "any" alone: for anything.
        roles: paths of the claims that have its roles, with `/` between the names of nested ones; none: by default.
        client: the catalog's name at the issuer, which Keycloak gives roles of its own.
    """

    issuer: str = ""
    audiences: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    client: str = ""


@dataclass(frozen=True)
class TokenVerifier:
    """Verifies tokens by keys.

    Args:
        rules: requirements on the claims.
        keys: gives the key that a token names.
    """

    rules: TokenRules
    keys: _KeySource = field(repr=False)

    def __call__(self, token: str) -> Reader:
        """See `Verifier`."""
        import jwt

        if len(token) > _MAX_TOKEN_CHARS:
            raise unauthorized("the token is not valid")
        try:
            key = self.keys(token)
            claims = _read_signed_claims(token, key)
            expires_at = _validate_claims(claims, self.rules, key.issuer)
        except jwt.PyJWKClientConnectionError:
            raise unavailable("the keys of tokens can't be asked for now") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            # Without the cause, from which a forger could learn.
            raise unauthorized("the token is not valid") from None
        if expires_at <= int(time.time()):
            raise unauthorized("the token has ended")
        return Reader((claims.get("sub") or "")[:200], _parse_roles(claims, self.rules), float(expires_at))


class _KeySource(Protocol):
    def __call__(self, token: str) -> TokenKey: ...


@dataclass(frozen=True)
class _StaticKey:
    key: TokenKey

    def __call__(self, token: str) -> TokenKey:
        return self.key


def build_verifier(environment: Mapping[str, str]) -> Verifier | None:
    """Return what verifies tokens by the catalog's own settings, None where there are no keys.

    Raises:
        CredentialError: a key is named that is none, or a setting by which the catalog may refuse more than this does.
    """
    rules = TokenRules(
        environment.get("QUARKUS_OIDC_TOKEN_ISSUER", ""),
        _split_setting(environment.get("QUARKUS_OIDC_TOKEN_AUDIENCE", "")),
        _split_setting(environment.get("QUARKUS_OIDC_ROLES_ROLE_CLAIM_PATH", "")),
        environment.get("QUARKUS_OIDC_CLIENT_ID", ""),
    )
    server = environment.get("QUARKUS_OIDC_AUTH_SERVER_URL", "")
    text = environment.get("QUARKUS_OIDC_PUBLIC_KEY", "")
    if not (server or text):
        return None
    if unknown := sorted(
        name for name, value in environment.items() if value and name.startswith(_UNSUPPORTED_SETTINGS)
    ):
        raise CredentialError(
            f"the gateway can't do what {unknown[0]} says, and would take tokens that the catalog refuses"
        )
    # Given both, the catalog uses the server and ignores the key.
    if server:
        return TokenVerifier(rules, ServerKeys(server, require_issuer=not rules.issuer))
    return TokenVerifier(rules, _StaticKey(TokenKey(_load_public_key(text))))


def _split_setting(text: str) -> tuple[str, ...]:
    """Return the values of a setting; as in Quarkus a backslash goes before a comma that is part of one."""
    return tuple(re.sub(r"\\(.)", r"\1", part) for part in re.split(r"(?<!\\),", text) if part)


def _load_public_key(text: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    lines = (line for line in text.splitlines() if "-----" not in line)
    try:
        return load_der_public_key(base64.b64decode("".join(lines), validate=True))
    except Exception:  # noqa: BLE001 - the library raises many kinds
        raise CredentialError("QUARKUS_OIDC_PUBLIC_KEY is no public key: expected Base64 of DER, or PEM") from None


def _read_signed_claims(token: str, key: TokenKey) -> dict[str, Any]:
    """Return the claims of a token that the key's owner signed."""
    import jwt

    decoded = jwt.PyJWS().decode_complete(token, key.key, algorithms=_ALGORITHMS)
    header = parse_json(jwt.utils.base64url_decode(token.partition(".")[0]).decode())
    if str(header.get("cty", "")).lower() in ("jwt", "application/jwt"):
        raise ValueError("another token is inside")
    claims = parse_json(decoded["payload"].decode())
    if not isinstance(claims, dict):
        raise ValueError("no claims")
    return claims


def _validate_claims(claims: Mapping[str, Any], rules: TokenRules, issuer: str) -> int:
    """Return when a token ends; that may be over.

    Raises:
        ValueError: it isn't good for another reason.
    """
    for name in ("iss", "sub", "jti", "upn", "preferred_username"):
        if not isinstance(claims.get(name, ""), str | None):
            raise ValueError(f"{name} is no text")
    expires_at, issued_at, valid_from = (_parse_time(claims, name) for name in ("exp", "iat", "nbf"))
    # A token made in the future is good, as clocks differ; one that begins there isn't.
    if (
        expires_at is None
        or issued_at is None
        or expires_at < issued_at
        or (valid_from is not None and valid_from > int(time.time()))
    ):
        raise ValueError("its times are absent or wrong")
    expected_issuer = rules.issuer or issuer
    if expected_issuer and rules.issuer != _ANY and claims.get("iss") != expected_issuer:
        raise ValueError("another issuer")
    if rules.audiences not in ((), (_ANY,)) and not set(rules.audiences) & _parse_audiences(claims.get("aud")):
        raise ValueError("another audience")
    if claims.get("typ") == "Refresh":
        raise ValueError("Keycloak's refresh tokens are for Keycloak")
    return expires_at


def _parse_time(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _MAX_TIME:
        raise ValueError(f"{name} is no time")
    return int(value)


def _parse_audiences(value: Any) -> set[str]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(audience, str) for audience in values):
        raise ValueError("aud is no text")
    return set(values)


def _parse_roles(claims: Mapping[str, Any], rules: TokenRules) -> frozenset[str]:
    if rules.roles:
        roles = [role for path in rules.roles for role in _claim_roles(claims, path.strip())]
    elif not (roles := _claim_roles(claims, "groups")):
        roles = _claim_roles(claims, "realm_access/roles")
        if rules.client:
            roles += _claim_roles(claims, f"resource_access/{rules.client}/roles")
    return frozenset(role for role in roles if isinstance(role, str))


def _claim_roles(claims: Mapping[str, Any], path: str) -> list[Any]:
    """Return what stands at a path; what is no text is no role, but it is there."""
    names = _SLASH.split(path) if path.find("/") > 0 else [path]
    while len(names) > 1 and not names[-1]:
        names.pop()
    claim: Any = claims
    for name in names:
        claim = claim.get(name.replace('"', "")) if isinstance(claim, dict) else None
    if isinstance(claim, str):
        claim = claim.split(" ")
    claim = claim if isinstance(claim, list) else [claim]
    return [role for role in claim if role is not None and (not isinstance(role, str) or role.strip())]


class VerifierPool:
    """Verifies tokens in threads of its own: whatever it waits for, nothing else of the gateway waits for that.

    Args:
        verify: returns a token's reader.
    """

    def __init__(self, verify: Verifier) -> None:
        self._verify = verify
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENCY, thread_name_prefix="sterna-tokens")
        self._waiting = 0

    async def __call__(self, token: str) -> Reader:
        """Return whose a token is.

        Raises:
            RequestError: it isn't good, or too many others wait.
        """
        if self._waiting >= MAX_WAITING_TOKENS:
            raise unavailable("too many tokens wait to be looked at")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, token)
        finally:
            self._waiting -= 1


class TicketStore:
    """Tickets for one use, for a browser's `EventSource` and `WebSocket`, which can't send a token.

    They are known to the process that gave them and to no other.
    """

    def __init__(self) -> None:
        self._tickets: OrderedDict[str, tuple[float, Reader]] = OrderedDict()

    def issue(self, reader: Reader) -> tuple[str, int]:
        """Return a new ticket, and for how many seconds it is good."""
        now = time.monotonic()
        while self._tickets and (next(iter(self._tickets.values()))[0] <= now or len(self._tickets) >= _MAX_TICKETS):
            self._tickets.popitem(last=False)
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = now + _TICKET_SECONDS, reader
        return ticket, int(_TICKET_SECONDS)

    def redeem(self, ticket: str) -> Reader:
        """Return whose a ticket is; it is good no more.

        Raises:
            RequestError: it was used, has ended, or is none.
        """
        expires_at, reader = self._tickets.pop(ticket, (0.0, ANONYMOUS))
        if expires_at <= time.monotonic():
            raise unauthorized("the ticket was used, or has ended")
        return reader
