"""Webhooks: signed as the standard says, to the addresses that the file names, whatever a receiver does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sterna.brokers.message import Message, SendOutcome
from sterna.brokers.ssrf_guard import AddressRefused, GuardedBackend
from sterna.brokers.webhook import WebhookSender, sign, signing_keys
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import Webhook
from sterna.errors import CredentialError, EventRefused, OutletDisabled, ReceiverUnreachable

OLD, NEW = b"o" * 24, b"n" * 24
MESSAGE = Message("ab" * 32 + "-1", "ns.a", b'{"specversion":"1.0","id":"x","data":{"table_identifier":"ns.a"}}')


def key_text(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


ROTATING = Credential("hook", password=key_text(NEW), extra={"previous_password": key_text(OLD)})


@dataclass
class Hook:
    """A receiver on the loopback."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    clients: set[Any] = field(default_factory=set)
    answer: bytes = b""
    server: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"


class Server(ThreadingHTTPServer):
    """One that can be killed: the connections that it keeps end with it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def kill(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):  # it has ended already
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def hooked(**options: Any) -> Iterator[Hook]:
    hook = Hook(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            hook.clients.add(self.client_address)
            hook.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            time.sleep(hook.hang)
            self.send_response(hook.status)
            for name, value in hook.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(hook.answer)))
            self.end_headers()
            self.wfile.write(hook.answer)

        def log_message(self, *_: Any) -> None:
            pass

    hook.server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=hook.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.server.kill()


def sender(url: str, resolver: Callable[[str, int], Any] | None = None, **settings: Any) -> WebhookSender:
    webhook = Webhook.model_validate({"url": url, "timeout": "60s", **settings})
    return WebhookSender(webhook, ROTATING, **({"resolver": resolver} if resolver else {}), drain_seconds=60.0)


def post(url: str, **settings: Any) -> SendOutcome:
    webhook_sender = sender(url, **settings)
    try:
        return webhook_sender.send([MESSAGE])
    finally:
        webhook_sender.close()


def verified(key: bytes, headers: dict[str, str], body: bytes) -> bool:
    """What a receiver does, written anew."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(wanted, candidate) for candidate in headers["webhook-signature"].split(" "))


def test_the_standard_s_own_example() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    header = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert header == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_is_sent_can_be_verified_by_either_key() -> None:
    with hooked() as hook:
        webhook_sender = sender(hook.url)
        assert webhook_sender.send([MESSAGE, MESSAGE]) == SendOutcome(2)
        webhook_sender.close()
    assert len(hook.got) == 2
    for headers, body in hook.got:
        assert body == MESSAGE.payload and json.loads(body)["id"] == "x"
        assert headers["webhook-id"] == MESSAGE.id
        assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 10
        assert verified(NEW, headers, body) and verified(OLD, headers, body)
        assert not verified(b"x" * 24, headers, body) and not verified(NEW, headers, body + b" ")


def test_a_connection_serves_many_events_unless_an_answer_is_long() -> None:
    for answer, clients in ((b"", 1), (b"thank you", 1), (b"x" * 200_000, 3)):
        with hooked(status=200, answer=answer) as hook:
            webhook_sender = sender(hook.url)
            assert webhook_sender.send([MESSAGE] * 3) == SendOutcome(3)
            webhook_sender.close()
        assert (len(hook.got), len(hook.clients)) == (3, clients)


@pytest.mark.parametrize("password", ["", "secret", "whsec_", "whsec_!!", key_text(b"short")])
def test_what_is_no_key_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(CredentialError) as raised:
        signing_keys(Credential("hook", password=password))
    assert "hook" in str(raised.value) and "secret" not in str(raised.value)
    with pytest.raises(CredentialError):
        signing_keys(Credential("hook", password=key_text(NEW), extra={"previous_password": "no"}))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (299, None),
        (301, ReceiverUnreachable),
        (307, ReceiverUnreachable),
        (400, ReceiverUnreachable),
        (401, ReceiverUnreachable),
        (404, ReceiverUnreachable),
        (410, OutletDisabled),
        (413, EventRefused),
        (429, ReceiverUnreachable),
        (500, ReceiverUnreachable),
        (503, ReceiverUnreachable),
    ],
)
def test_each_status(status: int, kind: type[Exception] | None) -> None:
    with hooked() as elsewhere, hooked(status=status, headers={"Location": elsewhere.url}) as hook:
        sent = post(hook.url)
        assert elsewhere.got == [], "no redirect is followed"
    assert (sent.acknowledged, type(sent.error)) == ((1, type(None)) if kind is None else (0, kind))


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "7", 7),
        (503, "120", 120),
        (503, "99999999", 86_400),
        (429, "Mon, 01 Jan 2001 00:00:00 GMT", 0),
        (429, "soon", None),
        (429, "-1", None),
        (500, "7", None),
    ],
)
def test_retry_after(status: int, header: str, seconds: float | None) -> None:
    with hooked(status=status, headers={"Retry-After": header}) as hook:
        assert post(hook.url).retry_after == seconds


def test_a_receiver_that_hangs_is_left() -> None:
    with hooked(hang=10) as hook:
        assert isinstance(post(hook.url, timeout="1s").error, ReceiverUnreachable)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nX: " + b"y", b"", b"hello\r\n\r\n"], ids=["drip", "eof", "odd"]
)
def test_a_receiver_that_answers_by_drips_or_oddly_is_left(answer: bytes) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)
            try:
                while answer.endswith(b"y"):
                    time.sleep(0.1)
                    connection.sendall(b"y")
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    sent = post(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout="1s")
    assert (sent.acknowledged, type(sent.error)) == (0, ReceiverUnreachable)
    thread.join(10)
    listening.close()


def test_an_endless_answer_is_not_read() -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                while True:
                    connection.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    assert post(f"http://127.0.0.1:{listening.getsockname()[1]}/") == SendOutcome(1)
    listening.close()


def test_a_killed_receiver_that_comes_back_gets_the_same_again() -> None:
    with hooked() as hook:
        webhook_sender, url, port = sender(hook.url), hook.url, hook.server.server_address[1]
        assert webhook_sender.send([MESSAGE]) == SendOutcome(1)
    sent = webhook_sender.send([MESSAGE])
    assert isinstance(sent.error, ReceiverUnreachable) and "127.0.0.1" not in str(sent.error)
    with socket.create_server(("127.0.0.1", port)) as listening:
        got: list[bytes] = []

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                got.append(connection.recv(65_536))
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert webhook_sender.send([MESSAGE]) == SendOutcome(1)
        thread.join(10)
    assert MESSAGE.id.encode() in got[0] and url
    webhook_sender.close()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    ],
)
def test_a_name_that_leads_inside_is_refused(address: str) -> None:
    backend = GuardedBackend((), plaintext=False, resolver=lambda host, port: [address])
    with pytest.raises(AddressRefused):
        backend.connect_tcp("hooks.example.com", 443, 1.0)
    both = GuardedBackend((), plaintext=False, resolver=lambda host, port: ["93.184.215.14", address])
    with pytest.raises(AddressRefused):
        both.connect_tcp("hooks.example.com", 443, 1.0)


def test_a_refused_address_is_no_acknowledgement_and_is_told_without_it() -> None:
    with hooked() as hook:
        port = hook.server.server_address[1]
        sent = post(f"https://hooks.example.com:{port}/", resolver=lambda host, port: ["127.0.0.1"])
        assert isinstance(sent.error, ReceiverUnreachable) and "127.0.0.1" not in str(sent.error)
        assert "isn't allowed" in str(sent.error) and hook.got == []


def test_a_name_that_is_bound_anew_leads_nowhere_else() -> None:
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        # The first answer passes every check, and each later one is another machine.
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    with hooked() as hook:
        port = hook.server.server_address[1]
        url = f"http://hooks.example.com:{port}/"
        webhook_sender = sender(url, resolver=rebinding, allow_networks=["127.0.0.0/8"])
        assert webhook_sender.send([MESSAGE]) == SendOutcome(1)
        assert asked == ["hooks.example.com"], "the address that was checked is the one that was connected to"
        assert hook.got[0][0]["host"] == f"hooks.example.com:{port}"
        webhook_sender.close()
    again = sender(url, resolver=rebinding, allow_networks=["127.0.0.0/8"])
    assert isinstance(again.send([MESSAGE]).error, ReceiverUnreachable)


def test_networks_that_are_allowed_and_http_within_them_alone() -> None:
    with hooked() as hook:
        port = hook.server.server_address[1]

        def inside(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        url = f"http://hooks.example.com:{port}/"
        assert post(url, resolver=inside, allow_networks=["127.0.0.0/8"]) == SendOutcome(1)
        assert post(url, resolver=inside, allow_networks=["10.0.0.0/8"]).error
        assert post(f"http://localhost:{port}/", resolver=inside) == SendOutcome(1)
        assert post(f"http://localhost:{port}/", resolver=lambda host, port: ["10.0.0.1"]).error
    public = GuardedBackend((), plaintext=True, resolver=lambda host, port: ["93.184.215.14"])
    with pytest.raises(AddressRefused):
        public.connect_tcp("hooks.example.com", 80, 1.0)


def test_a_name_that_isn_t_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(host: str, port: int) -> list[str]:
        raise socket.gaierror("secret.internal")

    sent = post("https://hooks.example.com/", resolver=none)
    assert isinstance(sent.error, ReceiverUnreachable) and "secret.internal" not in str(sent.error)


def test_neither_proxies_nor_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with hooked() as hook:
        webhook_sender = sender(hook.url)
        assert webhook_sender.send([MESSAGE]) == SendOutcome(1)
        webhook_sender.close()
    assert key_text(NEW) not in repr(vars(webhook_sender))
