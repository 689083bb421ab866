"""A balancer before some gateways: it takes turns, loses answers, and sends what got none to the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from sterna.servers.process import LOOPBACK

_TIMEOUT_SECONDS = 60.0
_HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "host", "accept-encoding", "content-encoding"}


class Balancer:
    """Sends each request to one gateway after another, until one answers.

    Args:
        urls: the gateways'; may change at any time.
        loses: called with the path of each write that was answered; whether the answer is lost.

    Attributes:
        resends: whether a write without an answer is sent to the next gateway; else it is 502.
        turn: which gateway is next.
        sent_again: how often a write was sent to another gateway.
    """

    def __init__(self, urls: Sequence[str], loses: Callable[[str], bool] = lambda path: False) -> None:
        self.urls = list(urls)
        self.loses = loses
        self.resends = True
        self.turn = 0
        self.sent_again = 0
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False)

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        """Return an answer; 502 where no gateway gives one."""
        is_write = method not in ("GET", "HEAD")
        for number in range(2 * len(self.urls)):
            url = self.urls[self.turn % len(self.urls)]
            self.turn += 1
            self.sent_again += is_write and number > 0
            try:
                response = self._client.request(method, f"{url}{path}", headers=headers, content=body)
                if not (is_write and self.loses(path)):
                    return response
            except httpx.ConnectError:
                continue  # it wasn't sent
            except httpx.TransportError:
                pass
            if is_write and not self.resends:
                break
        return httpx.Response(502, json={"error": {"message": "no answer", "type": "BadGateway", "code": 502}})


@contextmanager
def balancing(urls: Sequence[str], loses: Callable[[str], bool] = lambda path: False) -> Iterator[tuple[str, Balancer]]:
    """Run a balancer; yield its address, and itself."""
    balancer = Balancer(urls, loses)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: text for name, text in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = balancer.forward(self.command, self.path, headers, body)
            self.send_response(response.status_code)
            for name, text in response.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, text)
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.content)

        do_GET = do_HEAD = do_POST = do_DELETE = _forward

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_address[1]}", balancer
        finally:
            server.shutdown()
            thread.join()
