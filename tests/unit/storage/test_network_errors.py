"""What keeps a store from being reached is named: names, certificates and closed ports had one text.

Of the kind: an unknown name, an authority that nobody trusts, a port where nothing listens, a connection that is reset,
a proxy that the environment names and the HTTP library doesn't know.
A name is looked up for real nowhere here, since a machine without a resolver takes its time.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sterna.catalog.nessie.http import Deadlines, NessieAuth, NessieHttp
from sterna.config.mapping import Mapping
from sterna.config.registry.credential import Credential
from sterna.config.registry.model import Registry
from sterna.errors import CatalogUnreachable, StoreUnreachable, UsageError
from sterna.storage.client import network_error
from sterna.storage.objects import Objects
from tests.support.doubles.http_server import answer, scripted_server
from tests.support.servers.certificate import make_certificate
from tests.unit.config import samples

_UNKNOWN_NAME = """Connect, ConnectError( "dns error", Custom { kind: Uncategorized,
    error: "failed to lookup address information: Name or service not known", }, ), )"""


def trouble(endpoint: str, timeout: float = 20.0) -> str:
    lake = samples.location("us-lake", "s3://us-lake", "us")
    options = {"endpoint": endpoint, "region": "us-east-1", "provider": "Other"}
    lake |= {"remote": {"type": "s3", "options": options}, "credential_id": "us"}
    roots = [samples.location(f"{name}-replica", f"s3://{name}-replica", name) for name in ("us", "eu")]
    regions = [samples.region(name, f"s3://{name}-replica") for name in ("us", "eu")]
    registry = Registry.model_validate({"regions": regions, "locations": [lake, *roots]})
    credential = Credential(id="us", login="key", password="secret")
    store = Objects(Mapping(registry, registry.region("eu")), lambda id: credential, timeout=timeout)
    with pytest.raises(StoreUnreachable) as caught:
        store.size("s3://us-lake/t/1.parquet")
    return caught.value.message


def catalog_trouble(uri: str) -> str:
    """What a catalog's client reports of an address."""
    nessie = NessieHttp(f"{uri}/api/v2", NessieAuth(), Deadlines(read=0.2, attempts=1))
    with closing(nessie), pytest.raises(CatalogUnreachable) as caught:
        nessie.read("trees/main")
    return caught.value.message


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """Speaks TLS with a certificate of an authority that nobody knows."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    certificate = make_certificate(tmp_path, "password")
    key, own, _ = pkcs12.load_key_and_certificates(certificate.keystore.read_bytes(), b"password")
    assert key is not None and own is not None
    chain = tmp_path / "chain.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain.write_bytes(private + own.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield server


def test_a_certificate(listener: socket.socket) -> None:
    message = trouble(f"https://127.0.0.1:{listener.getsockname()[1]}")
    # Another authority that this process trusts may have the same name.
    assert re.search("its certificate is not accepted: (UnknownIssuer|BadSignature)", message)
    catalog_message = catalog_trouble(f"https://127.0.0.1:{listener.getsockname()[1]}")
    assert "gives no usable answer: its certificate is not accepted: " in catalog_message


def test_a_closed_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "error sending request: Connection refused" in trouble(f"http://127.0.0.1:{port}")
    assert "the connection is refused: nothing listens there" in catalog_trouble(f"http://127.0.0.1:{port}")


def test_a_server_that_is_silent_and_one_that_does_not_speak_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert "no answer in time" in catalog_trouble(uri)
        assert "error sending request: no answer in time" in trouble(uri, timeout=0.2)
    with scripted_server(answer(200, {})) as plain:
        assert "it doesn't speak TLS as expected" in catalog_trouble(plain.uri.replace("http:", "https:"))


def test_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    text = "its name can't be resolved: Name or service not known"
    assert text in catalog_trouble("http://catalog.example")
    message = network_error(_UNKNOWN_NAME)
    assert message == ": its name can't be resolved: failed to lookup address information: Name or service not known"


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://127.0.0.1:9",
        "socks4://somebody:secret@127.0.0.1:9",
        "http://somebody:secret/more@127.0.0.1:9",
        "http://somebody:secret?more@127.0.0.1:9",
        "http://127.0.0.1:none",
        "http://[::1",
        "http://127.0.0.1:9\x01",
    ],
)
def test_a_proxy_that_is_not_understood(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """It is the user's own: it holds up nothing that is reached without it, and is named otherwise."""
    for name in ("ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("NO_PROXY", "example.com,catalog.example")
    monkeypatch.setenv("no_proxy", "example.com,catalog.example")
    NessieHttp("http://catalog.example/api/v2", NessieAuth(), Deadlines()).close()
    with pytest.raises(UsageError, match=r"https://other\.example/api/v2 can't be reached by the proxy") as caught:
        NessieHttp("https://other.example/api/v2", NessieAuth(), Deadlines())
    assert "other.example in NO_PROXY" in (caught.value.hint or "") and "secret" not in str(caught.value)
