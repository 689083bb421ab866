"""Whose a token is while the server of the keys hangs, is dark, or has taken a key back."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import Request

from sterna.config.registry.model import Registry
from sterna.replication.replica.authorization import TableAccess
from sterna.serving.http import keys, tokens
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import RequestError
from sterna.serving.http.keys import MAX_STALE_SECONDS, REFRESH_SECONDS, RETRY_SECONDS, UNKNOWN_KEY_SECONDS, ServerKeys
from sterna.serving.http.tokens import Reader, TokenRules, TokenVerifier, Verifier, build_verifier

KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("one", "two", "evil")}
READER = Reader("ann", frozenset({"reader"}))
NAMED = ("https://id", "https://else", "https://id/", "any", "", None)


def token(name: str, key: str = "", **claims: Any) -> str:
    now = int(time.time())
    payload = {"iss": "https://id", "sub": "ann", "groups": ["reader"], "iat": now, "exp": now + 600, **claims}
    payload = {claim: value for claim, value in payload.items() if value is not None}
    return jwt.encode(payload, KEYS[key or name], algorithm="ES256", headers={"kid": name})


def public(name: str) -> dict[str, Any]:
    jwk = jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key(), as_dict=True)
    return {**jwk, "kid": name, "use": "sig"}


@dataclass
class Issuer:
    """An OpenID Connect server and what verifies by its keys, with a clock that a test moves."""

    shown: list[str] = field(default_factory=lambda: ["one"])
    issuer: str = '"issuer": "https://id", '
    now: float = 1000.0
    status: int = 200
    asked: int = 0
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Event = field(default_factory=threading.Event)

    def start(self, address: str) -> None:
        self.go_on.set()
        self.address = address
        self.verify = TokenVerifier(TokenRules(), ServerKeys(address, lambda: self.now))

    def answer(self, path: str) -> str:
        if path != "/keys":
            return f'{{{self.issuer}"jwks_uri": "{self.address}/keys"}}'
        self.asked += 1
        self.begun.release()
        self.go_on.wait(120)
        return json.dumps({"keys": [public(name) for name in self.shown]})

    def status_of(self, name: str, key: str = "") -> int:
        """What somebody with a token of a key is told."""
        try:
            assert self.verify(token(name, key)).roles == {"reader"}
        except RequestError as refused:
            return refused.status
        return 200


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = issuer.answer(self.path).encode()
            self.send_response(issuer.status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        issuer.start(f"http://127.0.0.1:{server.server_port}")
        yield issuer
        issuer.go_on.set()
        server.shutdown()


def test_a_key_that_was_taken_back_is_trusted_no_longer_than_the_keys_are_fresh(issuer: Issuer) -> None:
    assert issuer.status_of("one") == 200
    issuer.shown = ["two"]
    issuer.now += REFRESH_SECONDS - 1
    assert (issuer.status_of("one"), issuer.asked) == (200, 1)
    issuer.now += 1
    assert (issuer.status_of("one"), issuer.status_of("two"), issuer.asked) == (401, 200, 2)


def test_a_key_that_isn_t_there_is_looked_for_once_in_a_while(issuer: Issuer) -> None:
    assert issuer.status_of("one") == 200
    assert [issuer.status_of(f"x{index}", "evil") for index in range(5)] == [401] * 5 and issuer.asked == 1
    assert issuer.status_of("one", "evil") == 401
    issuer.shown = ["one", "two"]
    issuer.now += UNKNOWN_KEY_SECONDS
    assert (issuer.status_of("two"), issuer.asked) == (200, 2)
    assert [issuer.status_of(f"x{index}", "evil") for index in range(5)] == [401] * 5 and issuer.asked == 2


def test_the_last_keys_do_for_a_while_when_the_server_is_dark(issuer: Issuer) -> None:
    assert issuer.status_of("one") == 200
    issuer.status = 500
    issuer.now += REFRESH_SECONDS
    assert issuer.status_of("one") == 200
    looks = issuer.asked
    assert {issuer.status_of("one") for _ in range(5)} == {200} and issuer.asked == looks
    assert {issuer.status_of(f"x{index}", "evil") for index in range(5)} == {503} and issuer.asked == looks
    issuer.now += RETRY_SECONDS
    assert issuer.status_of("one") == 200
    issuer.now += MAX_STALE_SECONDS
    assert issuer.status_of("one") == 503
    issuer.status = 200
    issuer.now += RETRY_SECONDS
    assert issuer.status_of("one") == 200


@pytest.mark.parametrize(
    "proxy", ["socks5://u:secret@127.0.0.1:9", "socks4://u:secret@127.0.0.1:9", "http://u:secret/more@127.0.0.1:9"]
)
def test_a_proxy_that_is_not_understood_is_a_server_that_is_dark(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, proxy: str
) -> None:
    assert issuer.status_of("one") == 200
    for name in ("ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    issuer.now += REFRESH_SECONDS
    assert issuer.status_of("one") == 200
    assert issuer.status_of("x", "evil") == 503
    assert "can't be asked for" in caplog.text and "secret" not in caplog.text


def test_a_look_for_keys_that_hangs_takes_one_thread(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "REQUEST_TIMEOUT_SECONDS", 60.0)
    assert issuer.status_of("one") == 200
    issuer.go_on.clear()
    issuer.begun.acquire()
    issuer.now += UNKNOWN_KEY_SECONDS
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(issuer.status_of, "x", "evil")
        issuer.begun.acquire()  # it asks
        assert {issuer.status_of(f"x{index}", "evil") for index in range(11)} == {503}
        assert issuer.status_of("one") == 200
        assert not first.done() and issuer.asked == 2
        issuer.go_on.set()
        assert first.result(20) == 401


def accepts(verify: Verifier | None, token: str) -> bool:
    assert verify is not None
    try:
        verify(token)
    except RequestError as refused:
        assert refused.status == 401
        return False
    return True


@pytest.mark.parametrize(
    ("configured", "taken"),
    [("", ["https://id"]), ("https://else", ["https://else"]), ("any", list(NAMED))],
)
def test_the_issuer_is_the_one_that_the_server_names_unless_another_is_configured(
    issuer: Issuer, configured: str, taken: list[str | None]
) -> None:
    verify = build_verifier({"QUARKUS_OIDC_AUTH_SERVER_URL": issuer.address, "QUARKUS_OIDC_TOKEN_ISSUER": configured})
    assert [name for name in NAMED if accepts(verify, token("one", iss=name))] == taken


@pytest.mark.parametrize(
    "named",
    [
        "",
        '"issuer": null, ',
        '"issuer": "", ',
        '"issuer": 5, ',
        '"issuer": ["https://id"], ',
        '"issuer": "https://id", "issuer": "https://id", ',
        '"issuer": "https://else", "issuer": "https://id", ',
    ],
)
def test_no_token_is_taken_from_a_server_that_doesn_t_say_who_it_is(
    issuer: Issuer, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.issuer = named
    assert issuer.status_of("one") == 503 and "issuer" in caplog.text
    issuer.issuer = '"issuer": "https://id", '
    issuer.now += RETRY_SECONDS
    assert issuer.status_of("one") == 200
    issuer.issuer = named  # as in an outage
    issuer.now += REFRESH_SECONDS
    assert issuer.status_of("one") == 200
    issuer.now += MAX_STALE_SECONDS
    assert issuer.status_of("one") == 503


def test_a_server_needs_no_name_where_the_issuer_is_configured(issuer: Issuer) -> None:
    issuer.issuer = ""
    for configured in ("https://id", "any"):
        verify = build_verifier(
            {"QUARKUS_OIDC_AUTH_SERVER_URL": issuer.address, "QUARKUS_OIDC_TOKEN_ISSUER": configured}
        )
        assert accepts(verify, token("one"))


def test_a_server_that_names_anybody_is_taken_at_its_word(issuer: Issuer) -> None:
    issuer.issuer = '"issuer": "any", '
    assert [issuer.status_of("one"), accepts(issuer.verify, token("one", iss="any"))] == [401, True]


def test_an_issuer_that_changes_its_name_is_believed_when_the_keys_are_asked_for_anew(issuer: Issuer) -> None:
    assert issuer.status_of("one") == 200
    issuer.issuer = '"issuer": "https://new", '
    assert issuer.status_of("one") == 200
    issuer.now += REFRESH_SECONDS
    assert issuer.status_of("one") == 401 and accepts(issuer.verify, token("one", iss="https://new"))


def request() -> Request:
    headers = [(b"host", b"127.0.0.1:1"), (b"authorization", b"Bearer x")]
    return Request({"type": "http", "headers": headers, "query_string": b""})


def test_tokens_that_wait_hold_up_nothing_else_and_only_so_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_WAITING_TOKENS", 100)
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def verify(token: str) -> Reader:
        begun.release()
        assert go_on.wait(20)
        return READER

    async def ask() -> None:
        gateway = Gateway(TableAccess(Registry.model_construct(), "eu"), verify=verify)
        asked = [asyncio.create_task(gateway.require_reader(request())) for _ in range(120)]
        await asyncio.sleep(0)
        # In the pool that everything shares these would come when those that wait have given up.
        await asyncio.to_thread(begun.acquire)
        assert sum(task.done() for task in asked) == 20
        await asyncio.to_thread(go_on.set)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, RequestError)]
        assert outcomes.count(READER) == 100 and {refusal.status for refusal in refused} == {503} and len(refused) == 20
        assert all("Retry-After" in refusal.headers for refusal in refused)
        assert await gateway.require_reader(request()) == READER

    asyncio.run(ask())
