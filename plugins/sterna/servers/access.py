"""Tokens for the embedded catalog with access rules: a key of its own takes the place of an OpenID Connect server."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_ISSUER = "sterna-local"
_AUDIENCE = "nessie"
_KEY_BITS = 2048


@dataclass(frozen=True)
class TokenIssuer:
    """Issues the tokens that a catalog's servers accept, and no others. The key exists only in memory."""

    key: RSAPrivateKey = field(repr=False)

    def token(self, user: str, *roles: str, seconds: int = 24 * 3600) -> str:
        """Return a bearer token.

        Args:
            user: what messages and commits call its holder.
            roles: roles of access.properties.
            seconds: how long it is good for.
        """
        import jwt

        now = int(time.time())
        claims = {
            "iss": _ISSUER,
            "aud": _AUDIENCE,
            "sub": user,
            "groups": list(roles),
            "iat": now,
            "exp": now + seconds,
        }
        return jwt.encode(claims, self.key, algorithm="RS256")

    def nessie_settings(self) -> dict[str, str]:
        """Return the variables that let a Nessie believe these tokens; none of them is secret."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {
            "QUARKUS_OIDC_PUBLIC_KEY": base64.b64encode(public).decode(),
            "QUARKUS_OIDC_TOKEN_ISSUER": _ISSUER,
            "QUARKUS_OIDC_TOKEN_AUDIENCE": _AUDIENCE,
        }


def create_token_issuer() -> TokenIssuer:
    """Return an access with a key of its own."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    return TokenIssuer(rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS))
