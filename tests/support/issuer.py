"""An OpenID Connect server on the loopback: a discovery document, keys, and any token that somebody thinks of."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sterna.servers.access import TokenIssuer

NAMELESS = "nameless"
"""A key that the server shows without a name."""


@cache
def key(name: str) -> Any:
    """Return the private key of a name; `evil` is shown by nobody."""
    if name == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    if name == "ed":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_key() -> str:
    """Return the public half of the key `one`, as QUARKUS_OIDC_PUBLIC_KEY has it."""
    return base64.b64encode(_der()).decode()


def _der() -> bytes:
    der: bytes = key("one").public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return der


@dataclass(frozen=True)
class Issuer:
    """Who makes tokens.

    Args:
        url: where the server is, and what it calls itself.
        roles: the claim in which a token has its roles.
    """

    url: str
    roles: str = "groups"

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return claims of a token that is good for ten minutes and has the role `reader`.

        Args:
            changed: others; None takes one away.
        """
        now = int(time.time())
        claims = {"iss": self.url, "aud": "nessie", "sub": "ann", self.roles: ["reader"], "iat": now, "exp": now + 600}
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def token(self, **changed: Any) -> str:
        """Return a token; see `claims`."""
        return self.signed(json.dumps(self.claims(**changed)))

    def signed(self, claims: str | bytes | None = None, signer: str = "one", **header: Any) -> str:
        """Return a token of any claims.

        Args:
            claims: their text; None for those of a good one.
            signer: the key.
            header: more of its header; None takes something away.
        """
        fields = {"alg": {"ec": "ES256", "ed": "EdDSA"}.get(signer, "RS256"), "kid": signer, **header}
        return self.headed(
            json.dumps({name: field for name, field in fields.items() if field is not None}), claims, signer
        )

    def headed(self, header: str, claims: str | bytes | None = None, signer: str = "one") -> str:
        """Return a token with any header; `alg` tells how it is signed, none and a shared key among the ways."""
        claims = json.dumps(self.claims()) if claims is None else claims
        text = f"{encoded(header)}.{encoded(claims)}"
        algorithm = json.loads(header)["alg"]
        if algorithm == "none":
            return f"{text}."
        if algorithm == "HS256":  # the public key is known to everybody
            return f"{text}.{encoded(hmac.digest(_der(), text.encode(), hashlib.sha256))}"
        return f"{text}.{encoded(jwt.get_algorithm_by_name(algorithm).sign(text.encode(), key(signer)))}"


def encoded(data: str | bytes) -> str:
    """Return a part of a token."""
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


@contextmanager
def issuer() -> Iterator[Issuer]:
    """Serve a discovery document and the keys."""
    keys = {"keys": [_public_jwk(name) for name in ("one", "ec", "ed", NAMELESS)]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            document = {"issuer": url, "jwks_uri": f"{url}/keys", "token_endpoint": f"{url}/token"}
            body = {"/keys": keys, "/.well-known/openid-configuration": document}.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield Issuer(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


def _public_jwk(name: str) -> dict[str, Any]:
    kinds: dict[str, Any] = {"ec": jwt.algorithms.ECAlgorithm, "ed": jwt.algorithms.OKPAlgorithm}
    jwk = kinds.get(name, jwt.algorithms.RSAAlgorithm).to_jwk(key(name).public_key(), as_dict=True)
    return {**jwk, "use": "sig", **({} if name == NAMELESS else {"kid": name})}


@dataclass(frozen=True)
class IssuerAccess(TokenIssuer):
    """Lets a Nessie believe an issuer's tokens, by any settings.

    Args:
        issuer: whose.
        variables: the settings.
    """

    key: Any = field(default=None, repr=False)
    issuer: Issuer = Issuer("")
    variables: Mapping[str, str] = field(default_factory=dict)

    def token(self, user: str, *roles: str, seconds: int = 24 * 3600) -> str:
        """See `TokenIssuer`."""
        now = int(time.time())
        return self.issuer.token(sub=user, iat=now, exp=now + seconds, **{self.issuer.roles: list(roles)})

    def nessie_settings(self) -> dict[str, str]:
        """See `TokenIssuer`."""
        return dict(self.variables)
