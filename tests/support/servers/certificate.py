"""A certificate for servers on this machine, with an authority of its own, so that TLS can be spoken in earnest."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.servers.process import LOOPBACK

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_HOST = "localhost"
_VALIDITY = timedelta(days=1)


@dataclass(frozen=True)
class ServerCertificate:
    """A certificate of 127.0.0.1 and localhost.

    Args:
        authority: the file with the authority's own certificate, which clients have to believe.
        keystore: the file with the server's key and certificate, in PKCS #12, as Java reads it.
        password: the keystore's.
    """

    authority: Path
    keystore: Path
    password: str = field(repr=False)


def make_certificate(folder: Path, password: str) -> ServerCertificate:
    """Write a certificate that is good for a day.

    Args:
        password: what the keystore is closed with.
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _sign_certificate("sterna-local", root_key, None, root_key)
    server = _sign_certificate(_HOST, key, root, root_key)
    certificate = ServerCertificate(folder / "authority.pem", folder / "server.p12", password)
    certificate.authority.write_bytes(root.public_bytes(Encoding.PEM))
    encryption = BestAvailableEncryption(password.encode())
    certificate.keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"server", key, server, [root], encryption))
    certificate.keystore.chmod(0o600)
    return certificate


def _sign_certificate(
    name: str, key: EllipticCurvePrivateKey, issuer: x509.Certificate | None, issuer_key: EllipticCurvePrivateKey
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names = [x509.DNSName(_HOST), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
