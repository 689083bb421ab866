"""What stands before fake-gcs-server: it asks for a credential, as the real store does, and adds the PUT that the
server lacks.

A process of its own: pyarrow waits for a store's answer without letting the threads of its process go on.

    python -m tests.support.gcs_gate <port> <the server's port> <file with the service account's public key>
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sterna.servers.process import LOOPBACK

TOKEN = "ya29.a0AfH6SMBx-sterna"
_JSON_API = ("/storage/", "/upload/", "/download/", "/batch/")
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class Gate:
    """Who may enter, and where to.

    Args:
        server: the port of fake-gcs-server.
        key: the public key of the service account that may enter; so may the bearer of `TOKEN`.
    """

    def __init__(self, server: int, key: bytes) -> None:
        self.server = server
        loaded = serialization.load_pem_public_key(key)
        assert isinstance(loaded, rsa.RSAPublicKey)
        self._key = loaded

    def admits(self, method: str, path: str, authorization: str) -> bool:
        """Tell whether a request may pass.

        Everybody may read the bucket `public`, unless he says who he is and isn't.
        """
        if not authorization and method in ("GET", "HEAD"):
            return re.match(r"(/storage/v1/b|/download/storage/v1/b)?/public[/?]", path) is not None
        scheme, _, token = authorization.partition(" ")
        return scheme == "Bearer" and (token == TOKEN or self.signed(token))

    def signed(self, jwt: str) -> bool:
        """Tell whether the service account signed a JSON web token."""
        content, _, signature = jwt.rpartition(".")
        try:
            self._key.verify(_decoded(signature), content.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, gate: Gate, *args: Any) -> None:
        self.gate = gate
        super().__init__(*args)

    def handle_any(self) -> None:
        body = self._body()
        if self.path == "/token":
            self._token(body)
        elif not self.gate.admits(self.command, self.path, self.headers.get("Authorization", "")):
            self._answer(
                401, [("Content-Type", "application/xml")], b"<Error><Code>AuthenticationRequired</Code></Error>"
            )
        elif self.command == "PUT" and not self.path.startswith(_JSON_API):
            self._put(body)
        else:
            self._answer(*self._forward(self.command, self.path, body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = handle_any

    def log_message(self, *_: Any) -> None:
        pass

    def _token(self, body: bytes) -> None:
        if not self.gate.signed(parse_qs(body.decode()).get("assertion", [""])[0]):
            return self._answer(401, [], b'{"error": "invalid_grant"}')
        content = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
        return self._answer(200, [("Content-Type", "application/json")], json.dumps(content).encode())

    def _put(self, body: bytes) -> None:
        """Do what the XML API's PUT does through the JSON API, its precondition included."""
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name.replace('+', '%2B')}"
        if generation := self.headers.get("x-goog-if-generation-match"):
            target += f"&ifGenerationMatch={generation}"
        status, headers, answer = self._forward("POST", target, body)
        if status == 200:
            headers, answer = [("ETag", json.loads(answer)["etag"])], b""
        self._answer(status, headers, answer)

    def _forward(self, method: str, target: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes | int]:
        connection = http.client.HTTPConnection(LOOPBACK, self.gate.server, timeout=60)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(method, target, body or (b"" if method in ("PUT", "POST", "PATCH") else None), kept)
            answer = connection.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            content: bytes | int = answer.read()
            return answer.status, headers, int(answer.headers.get("Content-Length", 0)) if method == "HEAD" else content
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes | int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(content if isinstance(content, int) else len(content)))
        self.end_headers()
        if isinstance(content, bytes) and self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunk(self) -> bytes:
        chunk = self.rfile.read(int(self.rfile.readline().partition(b";")[0], 16))
        self.rfile.readline()
        return chunk


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


if __name__ == "__main__":
    port, server, key = sys.argv[1:]
    ThreadingHTTPServer(
        (LOOPBACK, int(port)), partial(_Handler, Gate(int(server), Path(key).read_bytes()))
    ).serve_forever()
