"""A large object of a location that may be read slowly: it arrives, however small the limit.

The kind: a time for one request that is spent with waiting for one's turn. What falls under it, and is tried here:
reading, hashing, ranges, an object of one part whose turn comes late, another version of it in between, and what isn't
paced but is too large for one request. What the store saw is the proof: parts alone.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.credential import Credential
from sterna.config.registry.model import Registry
from sterna.errors import StoreUnreachable
from sterna.replication.verify.content import sha256_of
from sterna.storage import client
from sterna.storage.client import ContentLimits
from sterna.storage.objects import Objects
from sterna.storage.ranges import ObjectReader
from sterna.storage.throttle import CHUNK_BYTES
from tests.unit.config import samples

URI = "s3://us-lake/t/large.bin"
LARGE = bytes(range(256)) * (3 << 12) + b"the end"
_TIMEOUT = 2.0
_TURN_SECONDS = 0.8


class Store:
    """As much of S3 as reading takes: an object, or parts of it."""

    def __init__(self) -> None:
        self.data, self.tag = LARGE, '"1"'
        self.lengths: list[int] = []
        self.before: Callable[[], None] = lambda: None
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                store.answer(self)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.before()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        start, end = (int(match[1]), int(match[2]) + 1) if match else (0, len(self.data))
        part = self.data[start:end]
        handler.send_response(206 if match else 200)
        handler.send_header("Content-Length", str(len(part)))
        handler.send_header("ETag", self.tag)
        handler.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if match:
            self.lengths.append(len(part))
            handler.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(self.data)}")
        handler.end_headers()
        try:
            handler.wfile.write(part)
        except OSError:
            handler.close_connection = True  # it isn't wanted any more


@pytest.fixture
def store() -> Iterator[Store]:
    running = Store()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def objects(store: Store, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """A client whose requests have the time of three turns, and no more."""
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_FACTOR", 1)
    lake = samples.location("us-lake", "s3://us-lake", "us")
    options = {"endpoint": f"http://127.0.0.1:{store.server.server_port}", "region": "us-east-1", "provider": "Other"}
    lake["remote"], lake["credential_id"] = {"type": "s3", "options": options}, "us"
    roots = [samples.location(f"{name}-replica", f"s3://{name}-replica", name) for name in ("us", "eu")]
    regions = [samples.region(name, f"s3://{name}-replica") for name in ("us", "eu")]
    registry = Registry.model_validate({"regions": regions, "locations": [lake, *roots]})
    credential = Credential(id="us", login="key", password="secret")
    store_client = Objects(Mapping(registry, registry.region("eu")), lambda id: credential, timeout=_TIMEOUT)
    store_client.open(store_client.mapping.locate(URI).location).limits = ContentLimits(open_seconds=_TURN_SECONDS / 2)
    return store_client


def paced(objects: Objects, turn: float = _TURN_SECONDS) -> list[int]:
    """Let a mebibyte wait for its turn so long; return what is paid for."""
    paid: list[int] = []

    def pace(size: int) -> None:
        paid.append(size)
        time.sleep(turn)

    objects.open(objects.mapping.locate(URI).location).throttle = pace
    return paid


@pytest.mark.parametrize("way", ["read", "hash", "range"])
def test_a_large_object_arrives_however_slowly(objects: Objects, store: Store, way: str) -> None:
    paid = paced(objects)
    if way == "read":
        assert objects.read(URI) == LARGE
    elif way == "hash":
        assert sha256_of(objects, URI) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    else:
        reader = ObjectReader(objects, URI, len(LARGE))
        reader.seek(1)
        assert reader.read() == LARGE[1:]
    assert sum(paid) == len(LARGE) - (way == "range")
    assert paid == store.lengths and max(paid) == CHUNK_BYTES


def test_one_part_whose_turn_comes_late_is_asked_for_anew(objects: Objects, store: Store) -> None:
    store.data = b"small"
    paid = paced(objects, _TIMEOUT + 0.5)
    assert objects.read(URI) == b"small"
    assert (paid, store.lengths) == ([5], [5])
    paced(objects, 0.0)
    for data in (b"small", b""):
        store.data = data
        assert objects.read(URI) == data
    assert store.lengths == [5], "at once, where it needn't wait"


def test_parts_are_of_one_version(objects: Objects, store: Store) -> None:
    paced(objects, 0.0)
    requests: list[int] = []

    def before() -> None:
        requests.append(1)
        if len(requests) == 3:
            store.data, store.tag = LARGE[::-1], '"2"'

    store.before = before
    with pytest.raises(StoreUnreachable, match="another version"):
        objects.read(URI)


def test_what_is_too_large_for_one_request_comes_by_several(
    objects: Objects, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = objects.open(objects.mapping.locate(URI).location)
    opened.limits = ContentLimits(single_request_bytes=1 << 20, part_bytes=2 << 20)
    assert sha256_of(objects, URI) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert store.lengths == [2 << 20, len(LARGE) - (2 << 20)]
