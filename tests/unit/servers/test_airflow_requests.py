"""What the embedded Airflow is asked for, over a server that counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sterna.servers.airflow import Airflow
from sterna.servers.process import LOOPBACK


class Handler(BaseHTTPRequestHandler):
    """Hands out a token, and answers those who have it."""

    paths: tuple[str, ...] = ()

    def do_GET(self) -> None:
        type(self).paths += (self.path,)
        is_login = self.path == "/auth/token"
        allowed = is_login or self.headers["Authorization"] == "Bearer good"
        body = json.dumps({"access_token": "good"} if is_login else {"path": self.path}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    Handler.paths = ()
    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield Airflow("eu", f"http://{LOOPBACK}:{server.server_port}", Path(), {}, ())
    server.shutdown()
    server.server_close()


def test_one_token_is_asked_for(airflow: Airflow) -> None:
    for _ in range(2):
        assert airflow.get("/dags") == {"path": "/api/v2/dags"}
    assert Handler.paths == ("/auth/token", "/api/v2/dags", "/api/v2/dags")
