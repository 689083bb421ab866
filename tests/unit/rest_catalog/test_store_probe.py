"""Stores that check signatures in full, and stores that don't: for these nothing is signed that depends on it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sterna.config.registry.connection import Credential
from sterna.config.registry.model import Location
from sterna.errors import Forbidden, StoreUnreachable
from sterna.serving.rest_catalog.store_probe import Check, StoreProbe
from tests.unit.config.samples import location

KEYS = Credential("store", "AKIA", "hidden-secret")


@contextmanager
def store(kind: str) -> Iterator[tuple[Location, list[str]]]:
    """Serve a store; yield its location and the requests that it got.

    Args:
        kind: it is strict or lax, checks metadata alone of the headers, or is closed or broken.
    """
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            requests.append(f"{self.command} {self.path}")
            signed = self.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
            own = [name.lower() for name in self.headers if name.lower().startswith("x-amz-")]
            digest = self.headers["x-amz-content-sha256"]
            if kind == "metadata":
                own = [name for name in own if name.startswith("x-amz-meta-")]
            is_whole = set(own) <= set(signed) and digest in ("UNSIGNED-PAYLOAD", hashlib.sha256(content).hexdigest())
            good = 404 if self.command == "HEAD" else 200
            checked = good if is_whole else 403
            status = {"strict": checked, "metadata": checked, "lax": good, "closed": 403, "broken": 500}[kind]
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        do_HEAD = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        place = location("eu", "s3://lake/house", "eu")
        place["remote"]["options"] = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}"}
        try:
            yield Location.model_validate(place), requests
        finally:
            server.shutdown()


@pytest.mark.parametrize("check", Check)
def test_a_store_that_checks_all_is_asked_once(check: Check) -> None:
    with store("strict") as (place, requests):
        probe = StoreProbe(5)
        for _ in range(3):
            probe.require_check(check, place, KEYS)
    assert len(requests) == (3 if check is Check.HEADERS else 2)
    assert all("/lake/house/sterna-probe-" in one or one == "POST /lake/?delete" for one in requests)


@pytest.mark.parametrize(("kind", "check"), [*(("lax", check) for check in Check), ("metadata", Check.HEADERS)])
def test_a_store_that_does_not_is_refused(kind: str, check: Check) -> None:
    with store(kind) as (place, requests):
        probe = StoreProbe(5)
        for _ in range(2):
            with pytest.raises(Forbidden, match=check.value):
                probe.require_check(check, place, KEYS)
    assert len(requests) == (3 if check is Check.HEADERS else 2)


@pytest.mark.parametrize("check", Check)
@pytest.mark.parametrize(("kind", "status"), [("broken", 500), ("closed", 403)])
def test_a_store_that_gives_no_answer_is_asked_again(kind: str, status: int, check: Check) -> None:
    with store(kind) as (place, requests):
        probe = StoreProbe(5)
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match=f"status {status}"):
                probe.require_check(check, place, KEYS)
    assert len(requests) == 2
    with pytest.raises(StoreUnreachable, match="can't be asked") as error:
        probe.require_check(Check.CONTENT, place, KEYS)
    assert "hidden-secret" not in str(error.value)
