"""Google's and Azure's object stores on this machine.

Fake-gcs-server and Azurite, each fetched once into sterna's cache.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sterna.jvm.jars import cache_folder
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from tests.support.gcs_gate import TOKEN

FAKE_GCS = "1.56.1"
AZURITE = "3.35.0"
ACCOUNT = "sternatest"
ACCOUNT_KEY = base64.b64encode(b"sterna's own key for Azurite" * 2).decode()
_ROOT = Path(__file__).parents[2]
_INSTALL_SECONDS = 840
_START_SECONDS = 60.0


@dataclass
class Server:
    """A server that can go dark and come back at the same address with what it held.

    Args:
        name: what messages call it.
        port: where it listens.
        command: the program and its arguments.
        log: its log.
        environ: its variables beside this process's.
    """

    name: str
    port: int
    command: list[str]
    log: Path
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    _process: Process | None = None
    _placeholder: socket.socket | None = None

    def start(self) -> None:
        self.stop()
        process = start_process(self.name, self.command, log=self.log, env={**os.environ, **self.environ}, cwd=_ROOT)
        wait_until_ready(process, self._listens, timeout=_START_SECONDS)
        self._process = process

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None

    def suspend(self) -> None:
        self.stop()
        # Bound but not listening: nobody else is given the port meanwhile.
        self._placeholder = socket.socket()
        self._placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._placeholder.bind((LOOPBACK, self.port))

    def _listens(self) -> bool:
        socket.create_connection((LOOPBACK, self.port), timeout=5).close()
        return True


@dataclass
class Google:
    """fake-gcs-server behind a gate that asks for a credential."""

    server: Server
    gate: Server
    key: rsa.RSAPrivateKey

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.gate.port}"

    def connection(self, shape: str) -> str:
        """Return the Airflow connection of one shape: `keyfile`, `keyfile text`, `token` or `anonymous`."""
        keyfile = service_account(self.key, self.endpoint)
        shapes: dict[str, dict[str, object]] = {
            "keyfile": {"keyfile_dict": keyfile},
            "keyfile text": {"keyfile_dict": json.dumps(keyfile, indent=2)},
            "token": {"token": TOKEN},
            "anonymous": {"is_anonymous": True},
        }
        return json.dumps({"conn_type": "sterna_gcs", "extra": shapes[shape]})

    def start(self) -> None:
        self.server.start()
        self.gate.start()

    def stop(self) -> None:
        self.gate.stop()
        self.server.stop()

    def suspend(self) -> None:
        self.gate.suspend()
        self.server.suspend()


@dataclass
class Azure:
    """Azurite's blob side."""

    server: Server

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.server.port}/{ACCOUNT}"

    def connection(self, shape: str) -> str:
        """Return the Airflow connection of one shape.

        `key`, `sas`, `connection string` or `connection string with sas`.
        """
        named = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};BlobEndpoint={self.endpoint};"
        shapes: dict[str, dict[str, object]] = {
            "key": {"login": ACCOUNT, "password": ACCOUNT_KEY},
            "sas": {"extra": {"sas_token": f"?{sas()}"}},
            "connection string": {"extra": {"connection_string": f"{named}AccountKey={ACCOUNT_KEY}"}},
            "connection string with sas": {"extra": {"connection_string": f"{named}SharedAccessSignature={sas()}"}},
        }
        return json.dumps({"conn_type": "sterna_azure", **shapes[shape]})

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def suspend(self) -> None:
        self.server.suspend()


def start_google(folder: Path, buckets: list[str]) -> Google:
    """Start a store with these buckets; skip the test where Go is missing."""
    program = _fake_gcs_server()
    key, port, behind = rsa.generate_private_key(public_exponent=65537, key_size=2048), free_port(), free_port()
    public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "gcs.pem").write_bytes(key.public_key().public_bytes(*public))
    command = [str(program), "-scheme", "http", "-host", LOOPBACK, "-port", str(behind), "-backend", "filesystem"]
    command += ["-filesystem-root", str(folder / "gcs"), "-log-level", "warn"]
    command += ["-public-host", f"{LOOPBACK}:{port}", "-external-url", f"http://{LOOPBACK}:{port}"]
    gate = [sys.executable, "-m", "tests.support.gcs_gate", str(port), str(behind), str(folder / "gcs.pem")]
    google = Google(
        Server("fake-gcs-server", behind, command, folder / "gcs.log"),
        Server("its gate", port, gate, folder / "gcs-gate.log"),
        key,
    )
    google.start()
    for bucket in buckets:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        _request("POST", f"{google.endpoint}/storage/v1/b", json.dumps({"name": bucket}).encode(), headers)
    return google


def start_azure(folder: Path, containers: list[str]) -> Azure:
    """Start a store with these containers; skip the test where Node.js is missing."""
    program = _azurite()
    port = free_port()
    (folder / "azure").mkdir(parents=True)
    command = [
        "node",
        str(program),
        "--blobHost",
        LOOPBACK,
        "--blobPort",
        str(port),
        "--location",
        str(folder / "azure"),
    ]
    # Clients name API versions that are newer than Azurite knows.
    command += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    server = Server("Azurite", port, command, folder / "azure.log", {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"})
    azure = Azure(server)
    azure.start()
    for container in containers:
        _request("PUT", f"{azure.endpoint}/{container}?restype=container&{sas()}", b"", {"x-ms-version": "2021-08-06"})
    return azure


def service_account(key: rsa.RSAPrivateKey, endpoint: str) -> dict[str, str]:
    """Return a service account's key file as Google hands it out."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = {
        "type": "service_account",
        "project_id": "sterna",
        "private_key_id": "1",
        "client_id": "1",
        "token_uri": f"{endpoint}/token",
    }
    return {
        **public,
        "client_email": "sterna@sterna.iam.gserviceaccount.com",
        "private_key": key.private_bytes(*form).decode(),
    }


def sas() -> str:
    """Return a shared access signature for everything in the account.

    Source: Azure Storage REST API, "Create an account SAS", version 2020-12-06 and later.
    """
    fields = {
        "sp": "rwdlac",
        "ss": "b",
        "srt": "sco",
        "st": "",
        "se": "2099-01-01T00:00:00Z",
        "sip": "",
        "spr": "https,http",
    }
    fields |= {"sv": "2021-08-06", "ses": ""}
    signed = "".join(f"{value}\n" for value in (ACCOUNT, *fields.values()))
    signature = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256)
    fields["sig"] = base64.b64encode(signature).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items() if value)


def _fake_gcs_server() -> Path:
    if shutil.which("go") is None:
        pytest.skip("Go, which builds fake-gcs-server, is not installed")
    module = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS}"
    return (
        installed(f"fake-gcs-server-{FAKE_GCS}", lambda folder: ["go", "install", module], "GOBIN") / "fake-gcs-server"
    )


def _azurite() -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js and npm, which Azurite needs, are not installed")
    options = ["--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
    folder = installed(
        f"azurite-{AZURITE}", lambda folder: ["npm", "install", "--prefix", str(folder), *options, f"azurite@{AZURITE}"]
    )
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def installed(name: str, command: Callable[[Path], list[str]], variable: str = "") -> Path:
    """Return a folder of sterna's cache, filled by a command the first time.

    It is renamed into place once it is whole.
    """
    parent = cache_folder() / "emulators"
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / f".{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (parent / name).exists():
            staging = Path(tempfile.mkdtemp(prefix="install-", dir=parent))
            environ = {**os.environ, **({variable: str(staging)} if variable else {})}
            try:
                result = subprocess.run(
                    command(staging), env=environ, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
                )
                if result.returncode != 0:
                    pytest.fail(f"{name} could not be installed: {result.stderr[-2000:]}")
                staging.rename(parent / name)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return parent / name


def _request(method: str, url: str, body: bytes, headers: dict[str, str]) -> None:
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30).close()
