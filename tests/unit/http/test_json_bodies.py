"""Bodies that cost more than they are worth: none stalls the loop, holds memory without an end, or waits for ever.

The kind: what a client sends is held or worked through before anything bounds it. What falls under it, and is tried
here: many values, deep values, one that says it is too large, one that comes slowly or never, many halves of bodies at
once, by one reader and by several, and what they held is free afterwards. Text that only looks like structure counts
as text. Ingestion's bodies are bounded in `test_ingest_body.py` and `tests/integration/ingest/test_door.py`.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.config.sections.load import parse_services
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.errors import RequestError
from sterna.serving.http.json_body import (
    INVALID_REQUEST,
    MAX_BODY_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    parse_object,
    validate_parse_cost,
)
from tests.support.http_server import Branch, Running, gateway
from tests.unit.http.test_features_body import FEATURES, JSON

SERVICES = parse_services(json.dumps({"version": 1, "features": FEATURES}), "s.yaml")
MIB = 1 << 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(Branch(tmp_path_factory.mktemp("bodies")), SERVICES, only=["features"]) as running:
        yield running


def refusal(running: Running, body: bytes) -> tuple[int, str]:
    answer = httpx.post(f"{running.url}/v1/features", headers=JSON, content=body, timeout=60)
    return answer.status_code, answer.json()["error"]


MANY = f"the body has more than {MAX_VALUES:,} values"
DEEP = f"the body is nested deeper than {MAX_DEPTH} levels"


def test_a_body_of_many_values_or_deep_ones_is_refused_with_words(plain: Running) -> None:
    for unit in (b"[],", b"{},", b"1,", b'"",', b'{"a":[]},'):
        assert refusal(plain, b'{"service": [' + unit * (MAX_BODY_BYTES // len(unit) - 10) + b"0]}") == (400, MANY)
    for unit, end in ((b"[", b"]"), (b'{"a":', b"}")):
        for depth in (MAX_DEPTH + 1, 1_000, 50_000):
            assert refusal(plain, unit * depth + b"1" + end * depth) == (400, DEEP)
    assert refusal(plain, b"[" * MAX_BODY_BYTES) == (400, MANY)
    assert refusal(plain, b"[" * 100_000) == (400, DEEP)
    assert refusal(plain, b"]" * 1_000) == (400, INVALID_REQUEST)


def test_text_is_text_whatever_stands_in_it(plain: Running) -> None:
    for text in ("[" * 200_000, "{,:" * 200_000, '"[' * 200_000, "\\" * 300_001, '\\"[' * 200_000, "é[" * 200_000):
        for ascii in (True, False):
            body = json.dumps({"service": text}, ensure_ascii=ascii).encode()
            assert refusal(plain, body) == (404, "There is no such service.")
    assert refusal(plain, json.dumps({"service": "none"}).encode("utf-16")) == (400, INVALID_REQUEST)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_refused_is_what_a_parser_counts(seed: int) -> None:
    """Against Python's own parser: depth and values of random documents, with odd text in them."""
    draw, depths = random.Random(seed), set[int]()

    def random_value(depth: int) -> Any:
        kind = draw.choice((0, 1, 1, 2, 2)) if depth else 0
        if kind == 0:
            return draw.choice(["", "[", "]", '"', '\\"', "\\", '{"a":', ",:", 1.5, None, True, "\\\\[" * 3])
        if kind == 1:
            return {draw.choice('ab"\\[{,:') * number: random_value(depth - 1) for number in range(draw.randrange(4))}
        return [random_value(depth - 1) for _ in range(draw.randrange(4))]

    def deep(value: Any) -> int:
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if children is None else 1 + max(map(deep, children), default=0)

    for _ in range(100):
        value = random_value(draw.randrange(7))
        depths.add(depth := deep(value))
        body = json.dumps(value, indent=draw.choice([None, 2]), ensure_ascii=draw.random() < 0.5).encode()
        validate_parse_cost(body, max_depth=depth)
        if depth:
            with pytest.raises(RequestError, match="nested"):
                validate_parse_cost(body, max_depth=depth - 1)
    assert depths >= {0, 1, 2, 3, 4, 5}


def half(running: Running, sent: int, length: int = MAX_BODY_BYTES, headers: str = "") -> socket.socket:
    host, _, port = running.url.removeprefix("http://").partition(":")
    link = socket.create_connection((host, int(port)), timeout=60)
    link.sendall(
        f"POST /v1/features HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
        f"Content-Length: {length}\r\n\r\n".encode()
    )
    with suppress(ConnectionResetError, BrokenPipeError):  # it is answered already
        link.sendall(b" " * sent)
    return link


def answered(link: socket.socket) -> bytes:
    """All that comes until the gateway closes."""
    answer = b""
    try:
        while part := link.recv(65_536):
            answer += part
    except ConnectionResetError:
        pass
    return answer


def test_one_that_says_it_is_too_large_isn_t_read(plain: Running) -> None:
    with half(plain, 0, MAX_BODY_BYTES + 1) as link:
        assert answered(link).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("sent", [0, 100, 2 * MIB])
def test_a_body_that_isn_t_here_in_time_is_408(tmp_path: Path, sent: int) -> None:
    options = ServeOptions(port=0, body_timeout=0.5)
    with gateway(Branch(tmp_path), SERVICES, only=["features"], options=options) as running:
        with half(running, sent) as link:
            answer = answered(link)  # until it is closed: nothing more of the body is waited for
        assert answer.startswith(b"HTTP/1.1 408") and b"within 0.5 s" in answer
        assert running.server.gateway.bodies.reserved_bytes == 0


def test_halves_of_bodies_have_one_memory_and_the_rest_is_429(plain: Running) -> None:
    halves = [half(plain, 15 * MIB) for _ in range(20)]
    deadline = time.monotonic() + 30
    bodies = plain.server.gateway.bodies
    while 'path="/v1/features",status="429"' not in plain.metrics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert 0 < bodies.reserved_bytes <= bodies.limits.max_reserved_bytes < 20 * 15 * MIB
    assert refusal(plain, b'{"service": "none"}') == (404, "There is no such service.")  # a small one has its place
    for link in halves:
        link.close()
    while bodies.reserved_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert refusal(plain, b'{"service": "none"}'.ljust(MAX_BODY_BYTES)) == (404, "There is no such service.")


def test_no_reader_has_all_of_that_memory(tmp_path: Path) -> None:
    access: TokenIssuer = create_token_issuer()
    options = replace(ServeOptions(), port=0)
    gateway_options = {"only": ["features"], "options": options, "environment": access.nessie_settings()}
    with gateway(Branch(tmp_path), SERVICES, **gateway_options) as running:  # type: ignore[arg-type]
        ann, bob = (f"Authorization: Bearer {access.token(name, 'reader')}\r\n" for name in ("ann", "bob"))
        halves = [half(running, 15 * MIB, headers=ann) for _ in range(6)]
        deadline = time.monotonic() + 30
        while 'path="/v1/features",status="429"' not in running.metrics:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        body = b'{"service": "none"}'.ljust(15 * MIB)
        name, _, value = bob.strip().partition(": ")
        answer = httpx.post(f"{running.url}/v1/features", headers={**JSON, name: value}, content=body, timeout=60)
        assert answer.status_code == 404
        for link in halves:
            link.close()


@pytest.mark.parametrize("text", ['{"service": "a", "service": "b"}', '{"a": [{"b": 1, "b": 1}]}'])
def test_a_name_that_stands_twice_is_not_taken_by_the_last_word(text: str) -> None:
    with pytest.raises(RequestError, match="stands twice") as raised:
        parse_object(text.encode())
    assert raised.value.status == 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_json_is_refused(number: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse_object(f'{{"a": {number}}}'.encode())
    assert raised.value.status == 400
