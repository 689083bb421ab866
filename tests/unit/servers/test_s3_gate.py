"""What the gate of a store passes on, byte for byte, and when it hangs up."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from sterna.servers import s3_gate
from sterna.servers.process import LOOPBACK, free_port

Script = Callable[[socket.socket], None]
SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_KEPT: list[socket.socket] = []  # a gate that has begun listens for signals until this process ends
REFUSED = b"<Error><Code>%s</Code></Error>"


def receive(side: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (more := side.recv(size - len(got))):
        got += more
    return got


def ended(side: socket.socket) -> bool:
    return side.recv(1) == b""


class Servers:
    """Servers that say what a script says, and a gate before them."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.listening: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.signals: socket.socket | None = None
        self.log = s3_gate.RequestLog()

    def serve(self, *scripts: Script) -> str:
        """Start a server that plays a script a connection; return its address."""
        listening = socket.create_server((LOOPBACK, 0))
        self.listening.append(listening)

        def play() -> None:
            for script in scripts:
                connection, _ = listening.accept()
                connection.settimeout(SECONDS)
                with connection:
                    try:
                        script(connection)
                    except (AssertionError, OSError) as error:
                        self.failures.append(error)

        self.threads.append(threading.Thread(target=play, daemon=True))
        self.threads[-1].start()
        return f"{LOOPBACK}:{listening.getsockname()[1]}"

    def connect(self, *targets: str, markers: bool = False) -> socket.socket:
        """Return a client's connection to a gate before some servers."""
        port = free_port()
        signal_socket, self.signals = socket.socketpair()
        _KEPT.append(self.signals)
        arguments = (f"{LOOPBACK}:{port}", s3_gate.parse_routes(targets), signal_socket, self.log)
        threading.Thread(
            target=s3_gate.accept_connections, args=arguments, kwargs={"markers": markers}, daemon=True
        ).start()
        return connected((LOOPBACK, port))


def connected(place: tuple[str, int]) -> socket.socket:
    """Return a connection to a gate, as soon as it listens."""
    while True:
        try:
            return socket.create_connection(place, SECONDS)
        except ConnectionRefusedError:
            continue


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    for thread in running.threads:
        thread.join(SECONDS)
    for listening in running.listening:
        listening.close()
    assert running.failures == []


def exchange(request: bytes, answer: bytes) -> Script:
    """A server that is sent a request, and nothing else, and answers."""

    def script(connection: socket.socket) -> None:
        assert receive(connection, len(request)) == request
        connection.sendall(answer)

    return script


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /lake/a%2Fb?x=/ HTTP/1.1\r\nHost: x\r\n\r\n", OK),
        (b"PUT /lake/a HTTP/1.1\r\nCONTENT-LENGTH: 5\r\n\r\nhello", OK),
        (b"PUT /lake/a HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000, OK),
        (b"PUT /lake/a HTTP/1.1\r\n" + CHUNKED, b"HTTP/1.1 200 OK\r\n" + CHUNKED),
        (b"HEAD /lake/a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n"),
        (b"DELETE /lake/a HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"),
    ],
    ids=["get", "put", "large", "chunked", "head", "nothing"],
)
def test_requests_and_answers_are_passed_on_as_they_are(servers: Servers, request_: bytes, answer: bytes) -> None:
    def twice(connection: socket.socket) -> None:
        exchange(request_, answer)(connection)
        exchange(request_, answer)(connection)

    with servers.connect(servers.serve(twice)) as client:
        for _ in range(2):
            client.sendall(request_)
            assert receive(client, len(answer)) == answer
        assert ended(client)  # for the server hung up


def test_answered_requests_are_logged(servers: Servers) -> None:
    reading, writing = os.pipe()
    servers.log = s3_gate.RequestLog(writing)
    get = b"GET /lake/a%20b?x=/ HTTP/1.1\r\nHost: x\r\n\r\n"
    copied = b"PUT /lake/c HTTP/1.1\r\nX-Amz-Copy-Source: /lake/a\r\nContent-Length: 0\r\n\r\n"
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"

    def script(connection: socket.socket) -> None:
        exchange(get, OK)(connection)
        exchange(copied, refusal)(connection)

    with servers.connect(servers.serve(script)) as client:
        for request, answer in ((get, OK), (copied, refusal)):
            client.sendall(request)
            assert receive(client, len(answer)) == answer
    lines = b"REQUEST 200 GET /lake/a%20b?x=/\nREQUEST 403 COPY /lake/c\n"
    assert os.read(reading, 1000) == lines
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "says", [b"HTTP/1.1 200 OK\r\n\r\nall of it", OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)]
)
def test_an_answer_that_ends_the_connection_does(servers: Servers, says: bytes) -> None:
    request = b"GET /lake/a HTTP/1.1\r\n\r\n"
    with servers.connect(servers.serve(exchange(request, says))) as client:
        client.sendall(request)
        assert receive(client, len(says)) == says
        assert ended(client)


EXPECT_CONTINUE = b"PUT /lake/a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_body_is_sent_when_the_server_has_asked_for_it(servers: Servers) -> None:
    def script(connection: socket.socket) -> None:
        exchange(EXPECT_CONTINUE, GO_ON)(connection)
        exchange(b"body", OK)(connection)

    with servers.connect(servers.serve(script)) as client:
        client.sendall(EXPECT_CONTINUE)
        assert receive(client, len(GO_ON)) == GO_ON
        client.sendall(b"body")
        assert receive(client, len(OK)) == OK


def test_a_client_whose_body_is_not_wanted_hears_why_and_is_let_go(servers: Servers) -> None:
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    with servers.connect(servers.serve(exchange(EXPECT_CONTINUE, refused))) as client:
        client.sendall(EXPECT_CONTINUE)
        assert receive(client, len(refused)) == refused
        assert ended(client)


def test_each_bucket_has_its_server_and_unknown_ones_the_first(servers: Servers) -> None:
    requests = {name: b"GET /%s/a HTTP/1.1\r\n\r\n" % name.encode() for name in ("us", "eu", "nowhere")}

    def first(connection: socket.socket) -> None:
        exchange(requests["us"], OK)(connection)
        exchange(requests["nowhere"], OK)(connection)
        assert ended(connection)

    def second(connection: socket.socket) -> None:
        exchange(requests["eu"], OK)(connection)
        assert ended(connection)

    us, eu = servers.serve(first), servers.serve(second)
    with servers.connect(f"us={us}", f"eu={eu}") as client:
        for name in ("us", "nowhere", "eu"):
            client.sendall(requests[name])
            assert receive(client, len(OK)) == OK


def test_a_server_that_is_not_there_is_a_connection_that_ends(servers: Servers) -> None:
    with servers.connect(f"{LOOPBACK}:{free_port()}") as client:
        client.sendall(b"GET /lake/a HTTP/1.1\r\n\r\n")
        assert ended(client)


def test_a_dark_gate_ends_its_connections_takes_none_and_keeps_its_port(servers: Servers) -> None:
    request = b"GET /lake/a HTTP/1.1\r\n\r\n"
    served, under_way = exchange(request, OK), threading.Event()

    def silent(connection: socket.socket) -> None:
        assert receive(connection, len(request)) == request
        under_way.set()
        assert ended(connection)  # with its client's: a request that is under way has no answer

    with servers.connect(servers.serve(silent, served)) as client:
        place = client.getpeername()
        client.sendall(request)
        assert under_way.wait(SECONDS)
        assert servers.signals is not None
        servers.signals.send(bytes([s3_gate.SUSPEND_SIGNAL]))
        assert ended(client)
        client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, SECONDS)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(place)
    servers.signals.send(bytes([s3_gate.SUSPEND_SIGNAL, s3_gate.RESUME_SIGNAL]))
    with connected(place) as client:
        client.sendall(request)
        assert receive(client, len(OK)) == OK


def test_a_connection_that_is_taken_as_the_gate_goes_dark_reaches_no_server(servers: Servers) -> None:
    gone, client = socket.socketpair()
    client.sendall(b"GET /lake/a HTTP/1.1\r\n\r\n")
    place = servers.serve(lambda connection: None if ended(connection) else pytest.fail("it was asked"))
    s3_gate.serve_connection(s3_gate.BufferedSocket(gone), {"": place}, False, set(), s3_gate.RequestLog())
    assert ended(client)
    client.close()


# --- markers

MARKER = b"PUT /lake/t/metadata/ HTTP/1.1\r\nContent-Length: 0\r\n"
MARKER_REQUEST = MARKER + b"Content-MD5: -\r\n\r\n"


def answered(status: bytes, code: bytes) -> bytes:
    body = REFUSED % code
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def test_a_marker_that_has_no_other_fault_was_put(servers: Servers) -> None:
    def twice(connection: socket.socket) -> None:
        for _ in range(2):
            exchange(MARKER_REQUEST, answered(b"400 Bad Request", b"InvalidDigest"))(connection)

    with servers.connect(servers.serve(twice), markers=True) as client:
        for _ in range(2):
            client.sendall(MARKER + b"\r\n")
            assert receive(client, len(s3_gate.MARKER_CREATED)) == s3_gate.MARKER_CREATED


@pytest.mark.parametrize(
    "says",
    [
        answered(b"403 Forbidden", b"SignatureDoesNotMatch"),
        answered(b"404 Not Found", b"NoSuchBucket"),
        answered(b"400 Bad Request", b"KeyTooLongError"),
    ],
)
def test_whatever_else_the_server_finds_fault_with_its_client_is_told(servers: Servers, says: bytes) -> None:
    with servers.connect(servers.serve(exchange(MARKER_REQUEST, says)), markers=True) as client:
        client.sendall(MARKER + b"\r\n")
        assert receive(client, len(says)) == says


@pytest.mark.parametrize(
    "request_",
    [
        MARKER.replace(b" 0", b" 1") + b"\r\nx",
        MARKER.replace(b"metadata/ ", b"metadata ") + b"\r\n",
        MARKER.replace(b"t/metadata/ ", b" ") + b"\r\n",  # the bucket itself
        MARKER.replace(b"/ ", b"/?acl ") + b"\r\n",
        MARKER + b"x-amz-copy-source: lake/a\r\n\r\n",
        MARKER.replace(b"PUT", b"GET") + b"\r\n",
    ],
)
def test_what_is_no_marker_goes_on_as_it_is(servers: Servers, request_: bytes) -> None:
    with servers.connect(servers.serve(exchange(request_, OK)), markers=True) as client:
        client.sendall(request_)
        assert receive(client, len(OK)) == OK
