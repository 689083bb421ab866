"""What Java needs to reach the world as this machine's other programs do: certificates and proxies."""

from __future__ import annotations

import os
import ssl
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from sterna.errors import EngineError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def network_options(folder: Path, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the `java` options that make it trust and use what this machine's other programs do.

    Java reads neither the system's certificates nor HTTPS_PROXY: behind a proxy that inspects TLS every download fails.

    Args:
        folder: where the trust store may be written.
        environ: the environment to read proxies from; None for this process's.

    Raises:
        EngineError: the proxy needs a password, which Java would only take on its command line.
    """
    store = _write_trust_store(folder / "cacerts.p12")
    trust = [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12"] if store else []
    return trust + _proxy_options(environ)


def _write_trust_store(target: Path) -> Path | None:
    paths = ssl.get_default_verify_paths()
    if not os.path.exists(paths.cafile or ""):
        return None  # nothing system-wide to take over: Java's own list has to do
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    entries = [
        PKCS12Certificate(certificate, f"ca-{index}".encode())
        for index, certificate in enumerate(_system_certificates())
    ]
    # Without a password: certificates are public, and a password would have to be on the command line.
    content = serialize_java_truststore(entries, NoEncryption())
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(target)
    return target


def _system_certificates() -> list[Certificate]:
    from cryptography.x509 import load_der_x509_certificate

    certificates = []
    for content in ssl.create_default_context().get_ca_certs(binary_form=True):
        # Every system carries a few old roots that break a rule; the parser warns of them, and will refuse them one
        # day.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with suppress(ValueError, Warning):
                certificates.append(load_der_x509_certificate(content))
    return certificates


def _proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().removesuffix("_proxy"): value for name, value in environ.items()}


def _proxy_options(environ: Mapping[str, str] | None) -> list[str]:
    proxies = getproxies() if environ is None else _proxies_of(environ)
    options = []
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme) or "")
        if address.hostname is None:
            continue
        if address.username is not None:
            raise EngineError(
                f"the {scheme} proxy {address.hostname} needs a password, and Java takes one only on its command line",
                hint="set STERNA_MAVEN_REPOSITORY to a mirror that needs no proxy, or copy the jars into the cache",
            )
        options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    if options and proxies.get("no"):
        hosts = "|".join(
            f"*{host}" if host.startswith(".") else host for host in proxies["no"].replace(" ", "").split(",") if host
        )
        options.append(f"-Dhttp.nonProxyHosts={hosts}")
    return options
