"""What clients send that they shouldn't: each kind is answered as documented, and nothing internal is in an answer."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.errors import CredentialError, UsageError
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.protocols import http_protocol
from sterna.serving.http.server import build_server
from sterna.serving.http.tokens import build_verifier
from tests.support.http_server import Branch, Running, Stream, gateway

OPEN = ServeOptions(port=0, heartbeat=0.5)


@pytest.fixture(scope="module")
def access() -> TokenIssuer:
    return create_token_issuer()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway without keys."""
    branch = Branch(tmp_path_factory.mktemp("plain"))
    branch.update("a")
    with gateway(branch, options=OPEN) as running:
        yield running


@pytest.fixture
def hasty(branch: Branch) -> Iterator[Running]:
    """A gateway that waits for headers no longer than 0.6 s."""
    branch.update("a")
    with gateway(branch, options=replace(OPEN, header_timeout=0.6)) as running:
        yield running


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, access: TokenIssuer) -> Iterator[Running]:
    """A gateway that asks for tokens."""
    branch = Branch(tmp_path_factory.mktemp("closed"))
    branch.update("a", "hr")
    services = parse_services("readers: [{tables: [ns.hr], roles: [hr]}]", "s.yaml")
    with gateway(branch, services, environment=access.nessie_settings(), options=OPEN) as running:
        yield running


def assert_refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    body: dict[str, Any] = answer.json()
    assert body["error"] and body["request_id"] == answer.headers["x-request-id"]
    for internal in ("Traceback", "sterna.", "/work", "127.0.0.1:1", "api/v2", 'File "'):
        assert internal not in answer.text
    return body


LONG = "x" * 257
KEEP = timedelta(days=1)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/events?table=a", "unknown parameter: table; there are: after, delivery, tables, ticket, wait"),
        ("/v1/events?%0d%0aSet-Cookie=1", "unknown parameter: (a name that isn't shown)"),
        ("/v1/tables?after=a", "unknown parameter: after"),
        ("/v1/events?tables=", "tables: a pattern"),
        (f"/v1/events?tables={LONG}", "tables: a pattern"),
        ("/v1/events?tables=a%00b", "tables: a pattern"),
        ("/v1/events?tables=" + ",".join(f"t{index}" for index in range(51)), "tables: at most 50"),
        ("/v1/events?after=head", "after: this is no cursor"),
        ("/v1/events?after=" + "g" * 64, "after: this is no cursor"),
        ("/v1/events?after=" + "0" * 64 + "-9223372036854775808", "after: this is no cursor"),
        ("/v1/events?after=" + "0" * 64 + "--1", "after: this is no cursor"),
        ("/v1/events?after=", "after: this is no cursor"),
        ("/v1/events?wait=61", "wait: expected"),
        ("/v1/events?wait=-1", "wait: expected"),
        ("/v1/events?wait=1e3", "wait: expected"),
        ("/v1/events?wait=99999999999999999999", "wait: expected"),
        ("/v1/events?delivery=some", "delivery: expected"),
        ("/v1/events?wait=1&wait=2", "wait stands twice"),
    ],
)
def test_a_query_that_says_nothing_clear_is_400(plain: Running, path: str, said: str) -> None:
    assert assert_refused(httpx.get(plain.url + path), 400)["error"].startswith(said)


def test_a_bad_last_event_id_is_400(plain: Running) -> None:
    assert_refused(httpx.get(f"{plain.url}/v1/events", headers={"Last-Event-ID": "7"}), 400)


def test_paths_and_methods_that_aren_t_there(plain: Running) -> None:
    assert_refused(httpx.get(f"{plain.url}/v1/../../etc/passwd"), 404)
    assert_refused(httpx.get(f"{plain.url}/kpi"), 404)
    assert_refused(httpx.post(f"{plain.url}/v1/tables"), 405)
    assert httpx.get(f"{plain.url}/v1/tickets").status_code == 405
    assert 'path="other",status="404"' in plain.metrics


def raw(running: Running, request: bytes, wait: float = 30.0) -> bytes:
    """What the gateway answers to some bytes before it closes, or within some time."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=wait) as link:
        link.sendall(request)
        answer = b""
        try:
            while part := link.recv(65536):
                answer += part
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def test_oversized_headers_are_refused(plain: Running) -> None:
    start = b"GET /v1/tables HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    for request in (
        start + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
        start + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        start + b"X: xxxx\r\n" * 5_000 + b"\r\n",
        b"GET /v1/tables?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    ):
        assert raw(plain, request)[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400")
    assert raw(plain, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    # HTTP has no such headers: nobody asks whose the token is.
    control = b"Authorization: Bearer a\x7fb\r\nConnection: close\r\n\r\n"
    assert raw(plain, b"GET /v1/tables HTTP/1.1\r\nHost: 127.0.0.1\r\n" + control).startswith(b"HTTP/1.1 400")


class Link(asyncio.Transport):
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def test_headers_that_never_end_are_not_kept() -> None:
    async def answered(parts: int) -> bytes:
        link, config = Link(), uvicorn.Config("none:app", log_config=None, interface="asgi3")
        config.loaded, config.loaded_app = True, None
        config.ws_protocol_class = None
        protocol = http_protocol(ServeOptions())(config, ServerState(), {})
        protocol.connection_made(link)
        protocol.data_received(b"GET /v1/tables HTTP/1.1\r\nX: ")
        for _ in range(parts):
            protocol.data_received(b"x" * 8_192)
        protocol.connection_lost(None)
        return link.written

    assert asyncio.run(answered(2)) == b""
    refused = asyncio.run(answered(30))
    assert refused.startswith(b"HTTP/1.1 431") and refused.count(b"HTTP") == 1


@pytest.mark.parametrize(
    "begins", [b"", b"GET /v1/tables HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n"]
)
@pytest.mark.slow
def test_whoever_sends_headers_slowly_is_cut_off(hasty: Running, begins: bytes) -> None:
    host, _, port = hasty.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as link:
        if begins:
            link.sendall(begins)
            assert link.recv(65536).startswith(b"HTTP/1.1 200")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for letter in b"GET /v1/tables HTTP/1.1\r\nX-A: " + b"a" * 1000:
                link.sendall(bytes([letter]))
                time.sleep(0.05)


@pytest.mark.slow
def test_a_stream_outlives_the_patience_for_headers(hasty: Running) -> None:
    with Stream(hasty.url) as stream:
        started = time.monotonic()
        while time.monotonic() - started < 1.5:
            assert next(stream).data == ""


def test_pages_of_strangers_are_refused(plain: Running) -> None:
    for headers in ({"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Origin": "https://evil.example"}):
        assert_refused(httpx.get(f"{plain.url}/v1/tables", headers=headers), 403)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{plain.url.replace('http', 'ws')}/v1/events", origin="https://evil.example")  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


def test_pages_that_are_named_may_ask(branch: Branch) -> None:
    branch.update("a")
    options = ServeOptions(port=0, origins=("https://dash.example",))
    with gateway(branch, options=options) as running:
        good = httpx.get(f"{running.url}/v1/tables", headers={"Origin": "https://dash.example"})
        assert good.status_code == 200 and good.headers["access-control-allow-origin"] == "https://dash.example"


@pytest.mark.parametrize("name", ["lastEventId", "evs_last_event_id"])
def test_a_polyfill_of_event_source_resumes_from_a_page_elsewhere(
    branch: Branch, access: TokenIssuer, name: str
) -> None:
    """As event-source-polyfill (and eventsource-polyfill) ask: the last id in the query, and headers of their own.

    Older ones of the first kind add a random number each time, and the id from the first time on.
    """
    first = branch.update("a")
    second = branch.update("b")
    page = {"Origin": "https://dash.example"}
    options = replace(OPEN, origins=("https://dash.example",))
    with gateway(branch, environment=access.nessie_settings(), options=options) as running:
        names = "authorization,cache-control,x-requested-with"
        wish = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": names}
        asked = httpx.options(f"{running.url}/v1/events", params={name: first}, headers={**page, **wish})
        assert asked.status_code == 200 and asked.headers["access-control-allow-origin"] == "https://dash.example"
        allowed = {header.strip().lower() for header in asked.headers["access-control-allow-headers"].split(",")}
        assert allowed >= set(names.split(","))
        token = bearer(access.token("ann", "reader"))
        headers = {**page, **token, "Cache-Control": "no-cache", "X-Requested-With": "XMLHttpRequest"}
        more = {"evs_buffer_size_limit": "262144", "evs_preamble": "2056"} if name.startswith("evs") else {"r": "54"}
        with Stream(running.url, headers, **{name: first}, **more) as stream:
            (event,) = stream.events(1)
            assert event.id == f"{second}-1"
        for cursor_params in (
            {"after": first, name: second},
            {name: ""},
        ):  # its last id is newer than its first address
            with Stream(running.url, headers, **cursor_params) as stream:
                third = branch.update("c")
                assert stream.events(1)[0].id == f"{third}-1"
            second = third
        for bad in ("7", "head"):
            assert_refused(httpx.get(f"{running.url}/v1/events", params={name: bad}, headers=headers), 400)
        assert httpx.get(f"{running.url}/v1/tables", params={name: first}, headers=headers).status_code == 400


def test_no_reader_has_all_places_for_streams(branch: Branch, access: TokenIssuer) -> None:
    """Of this kind are all ways to hold a place: streams, WebSockets and long polls, with a token or a ticket."""
    options = replace(OPEN, max_connections=10)
    with gateway(branch, environment=access.nessie_settings(), options=options) as running, ExitStack() as held:
        ann, bob = (bearer(access.token(name, "reader")) for name in ("ann", "bob"))
        for _ in range(8):
            held.enter_context(Stream(running.url, ann))
        ticket = httpx.post(f"{running.url}/v1/tickets", headers=ann).json()["ticket"]
        held.enter_context(Stream(running.url, ticket=ticket))
        assert_refused(httpx.get(f"{running.url}/v1/events", params={"wait": 1}, headers=ann), 503)
        with Stream(running.url, ann) as refused, Stream(running.url, bob) as taken, Stream(running.url, bob) as full:
            assert [refused_stream.answer.status_code for refused_stream in (refused, taken, full)] == [503, 200, 503]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_reader_s_token_is_taken_and_rules_narrow_it(closed: Running, access: TokenIssuer) -> None:
    def shown(*roles: str) -> list[str]:
        answer = httpx.get(f"{closed.url}/v1/tables", headers=bearer(access.token("ann", *roles)))
        assert answer.status_code == 200
        return [table["table_identifier"] for table in answer.json()["tables"]]

    assert shown("reader") == shown("writer") == ["ns.a"]
    assert shown("reader", "hr") == ["ns.a", "ns.hr"]


def test_without_keys_a_rule_s_tables_are_told_to_nobody(branch: Branch) -> None:
    branch.update("a", "hr", "open")
    services = parse_services("readers: [{tables: [ns.hr], roles: [reader]}, {tables: [ns.a], roles: [hr]}]", "s.yaml")
    with gateway(branch, services, options=OPEN) as running:
        answer = httpx.get(f"{running.url}/v1/tables")
        assert [table["table_identifier"] for table in answer.json()["tables"]] == ["ns.open"]


def forged(access: TokenIssuer) -> dict[str, str]:
    """Tokens that must not be believed."""
    good = access.token("mallory", "reader")
    claims = jwt.decode(good, options={"verify_signature": False})
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = access.nessie_settings()["QUARKUS_OIDC_PUBLIC_KEY"]
    head, body, signature = good.split(".")
    return {
        "another key": jwt.encode(claims, other, algorithm="RS256"),
        "no signature": jwt.encode(claims, None, algorithm="none"),
        "public key as secret": _hmac(claims, public),
        "ended": access.token("mallory", "reader", seconds=-60),
        "another issuer": jwt.encode({**claims, "iss": "else"}, access.key, algorithm="RS256"),
        "another audience": jwt.encode({**claims, "aud": "else"}, access.key, algorithm="RS256"),
        "no audience": jwt.encode({k: v for k, v in claims.items() if k != "aud"}, access.key, algorithm="RS256"),
        "no end": jwt.encode({k: v for k, v in claims.items() if k != "exp"}, access.key, algorithm="RS256"),
        "not yet": jwt.encode({**claims, "nbf": time.time() + 600}, access.key, algorithm="RS256"),
        "other claims": f"{head}.{_b64({**claims, 'groups': ['admin']})}.{signature}",
        "cut": good[:-10],
        "no token": "abc",
        "dots": "..",
        "endless": "a" * 9_000,
        "nested": f"{'eyJ' * 100}.{body}.{signature}",
    }


def _b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _hmac(claims: dict[str, Any], secret: str) -> str:
    import hashlib
    import hmac

    text = f"{_b64({'alg': 'HS256', 'typ': 'JWT'})}.{_b64(claims)}"
    for_key = base64.b64decode(secret)
    signature = base64.urlsafe_b64encode(hmac.new(for_key, text.encode(), hashlib.sha256).digest()).rstrip(b"=")
    return f"{text}.{signature.decode()}"


def test_forged_tokens_are_401_and_say_nothing(closed: Running, access: TokenIssuer) -> None:
    for kind, token in forged(access).items():
        for path in ("/v1/tables", "/v1/events", "/v1/events?wait=0"):
            answer = httpx.get(closed.url + path, headers=bearer(token))
            message = assert_refused(answer, 401)["error"]
            assert message in ("the token is not valid", "the token has ended"), kind
            assert answer.headers["www-authenticate"] == "Bearer"
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}):
        assert_refused(httpx.get(f"{closed.url}/v1/events", headers=headers), 401)
    assert_refused(httpx.post(f"{closed.url}/v1/tickets"), 401)


def test_roles_that_may_not_read_are_403(closed: Running, access: TokenIssuer) -> None:
    for roles in ((), ("replicator-eu",), ("readers",), ("hr",)):
        assert_refused(httpx.get(f"{closed.url}/v1/tables", headers=bearer(access.token("bob", *roles))), 403)


def test_a_ticket_opens_one_stream(closed: Running, access: TokenIssuer) -> None:
    issued = httpx.post(f"{closed.url}/v1/tickets", headers=bearer(access.token("ann", "reader")))
    assert issued.status_code == 201 and issued.json()["expires_in"] == 60
    ticket = issued.json()["ticket"]
    assert_refused(httpx.get(f"{closed.url}/v1/tables", params={"ticket": ticket}), 400)
    with Stream(closed.url, ticket=ticket) as stream:
        assert stream.answer.status_code == 200
    assert_refused(httpx.get(f"{closed.url}/v1/events", params={"ticket": ticket}), 401)
    assert_refused(httpx.get(f"{closed.url}/v1/events", params={"ticket": "x"}), 401)
    again = httpx.post(f"{closed.url}/v1/tickets", headers=bearer(access.token("ann", "reader"))).json()["ticket"]
    with connect(f"{closed.url.replace('http', 'ws')}/v1/events?ticket={again}"):
        pass


def test_a_web_socket_without_a_token_is_refused(closed: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{closed.url.replace('http', 'ws')}/v1/events")
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"{}")["error"] == "a token is needed"


@pytest.mark.slow
def test_a_stream_ends_with_its_token(closed: Running, access: TokenIssuer) -> None:
    address = f"{closed.url.replace('http', 'ws')}/v1/events"
    short = bearer(access.token("ann", "reader", seconds=5))
    with Stream(closed.url, headers=short) as stream, connect(address, additional_headers=short) as web:
        (event,) = stream.events(1)
        assert event.event == "bye" and event.json == {"reason": "token"}
        assert json.loads(web.recv(timeout=30))["control"] == "cursor"
        assert json.loads(web.recv(timeout=30)) == {"control": "bye", "reason": "token"}
        with pytest.raises(ConnectionClosed):
            web.recv(timeout=30)
        assert web.close_code == 1008


def test_health_metrics_and_docs_need_no_token(closed: Running) -> None:
    assert httpx.get(f"{closed.url}/health").json() == {"status": "ok", "catalog": "ok"}
    assert "# TYPE sterna_streams_open gauge" in closed.metrics and "ns.hr" not in closed.metrics
    described = httpx.get(f"{closed.url}/openapi.json").json()
    assert set(described["paths"]) == {"/v1/events", "/v1/tables", "/v1/tickets", "/health", "/metrics"}
    assert "db.fact_events" in json.dumps(described["paths"]["/v1/events"])


def test_the_page_of_docs_needs_nothing_from_elsewhere(closed: Running) -> None:
    page = httpx.get(f"{closed.url}/docs").text
    needed = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""", page)
    assert len(needed) >= 3 and all(path.startswith("/") for path in needed), needed
    assert {httpx.get(f"{closed.url}{path}").status_code for path in needed} == {200}


def test_without_keys_only_the_loopback_is_listened_on(branch: Branch) -> None:
    with pytest.raises(UsageError, match="loopback"):
        build_server(branch.context(), Services(), ServeOptions(host="0.0.0.0"), KEEP, environment={})
    with pytest.raises(UsageError, match="no service kpi"):
        build_server(branch.context(), Services(), ServeOptions(), KEEP, only=("kpi",), environment={})
    with pytest.raises(CredentialError, match="no public key"):
        build_server(branch.context(), Services(), ServeOptions(), KEEP, environment={"QUARKUS_OIDC_PUBLIC_KEY": "x"})


def test_keys_of_an_open_id_server_are_asked_for(access: TokenIssuer, tmp_path: Path) -> None:
    key = access.key.public_key()
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key)) | {"kid": "one", "use": "sig", "alg": "RS256"}

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            document = {"keys": [jwk]} if self.path == "/keys" else {"issuer": address, "jwks_uri": f"{address}/keys"}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        verify = build_verifier({"QUARKUS_OIDC_AUTH_SERVER_URL": address})
        assert verify is not None
        now = int(time.time())
        claims = {"iss": address, "sub": "ann", "groups": ["reader"], "iat": now, "exp": now + 60}
        token = jwt.encode(claims, access.key, algorithm="RS256", headers={"kid": "one"})
        assert verify(token).roles == {"reader"}
        server.shutdown()
    dark = build_verifier({"QUARKUS_OIDC_AUTH_SERVER_URL": "http://127.0.0.1:1"})
    assert dark is not None
    with pytest.raises(Exception, match="can't be asked for now"):
        dark(token)
