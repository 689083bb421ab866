"""A collector of traces over OTLP/HTTP on the loopback; it decodes what comes with OpenTelemetry's own messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class ReceivedSpan:
    """One span that arrived."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    kind: int
    failed: bool
    text: str
    """All of it, for what must not be there."""


@dataclass
class Collector:
    """What has arrived."""

    uri: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    answering: Event = field(default_factory=Event)
    """As long as it isn't set, nobody gets an answer."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process exports its spans here."""
        return {"OTEL_TRACES_EXPORTER": "otlp_proto_http", "OTEL_EXPORTER_OTLP_ENDPOINT": self.uri}

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of a name, in the order in which they arrived."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReceivedSpan:
        """Return the one span of a name."""
        (span,) = self.named(name)
        return span

    def wait_until(self, condition: Callable[[], Any]) -> None:
        """Wait until what has arrived satisfies a condition."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, sorted({span.name for span in self.spans})
            time.sleep(0.05)

    def take(self, body: bytes) -> None:
        """Keep the spans of a request's body."""
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            self.resources.append(_values(of_resource.resource.attributes))
            for of_scope in of_resource.scope_spans:
                self.spans.extend(map(_received, of_scope.spans))


@contextmanager
def collector(*, answers: bool = True) -> Iterator[Collector]:
    """Run a collector; one that doesn't answer takes requests and says nothing until its end."""
    received = Collector("")
    if answers:
        received.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.answering.wait()
            assert self.path == "/v1/traces"
            received.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a process that has ended doesn't read its answer

    with Server(("127.0.0.1", 0), Handler) as server:
        received.uri = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            received.answering.set()
            server.shutdown()
            thread.join()


def _received(span: Any) -> ReceivedSpan:
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return ReceivedSpan(
        span.name,
        *ids,
        _values(span.attributes),
        span.kind,
        span.status.code == span.status.STATUS_CODE_ERROR,
        str(span),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
