"""The export of a process's spans, as the standard variables `OTEL_*` say; without them nothing is imported.

Nothing waits for a collector: spans are sent by a thread, and what it can't send is dropped.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_BY_PROTOCOL = {"": "otlp", "grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}  # of the SDK itself, too
_ENTRY_POINTS = "opentelemetry_traces_exporter"
# Of exporters and settings; what clients send is logged by others.
_LOGGERS = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.util")
_STOP_SECONDS = 3.0  # for the spans of the last seconds: a collector that is well needs a fraction of it
_WARNING_SECONDS = 600.0


class TraceExport:
    """The export of this process's spans, once a process.

    Args:
        warn: called with a line when spans can't be exported, at most every ten minutes; by any thread.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._provider: TracerProvider | None = None

    def start(self) -> None:
        """Begin, where variables name an exporter, and nobody else exports spans of this process."""
        if not (names := _exporter_names(os.environ)):
            return
        try:
            if not _has_provider():  # `airflow sterna sync` has one: Airflow exports its spans
                failures = _ExportFailures(self._warn)
                for name in _LOGGERS:
                    logging.getLogger(name).handlers[:] = [failures]
                    logging.getLogger(name).propagate = False
                self._provider = _set_provider(names)
        except ModuleNotFoundError as error:
            self._warn(f"traces aren't exported: {error.name} is missing; pip install 'sterna[traces]'")
        except Exception as error:  # noqa: BLE001 - whatever exporters raise: it must not keep work from being done
            self._warn(f"traces aren't exported: {type(error).__name__}; see the variables OTEL_*")

    def stop(self) -> None:
        """Send what is left, for three seconds at most."""
        if self._provider is None:
            return
        stopping = Thread(target=self._provider.shutdown, name="trace-export-stop", daemon=True)
        self._provider = None
        stopping.start()
        stopping.join(_STOP_SECONDS)
        if stopping.is_alive():
            self._warn("the newest traces aren't exported: the collector takes too long")


@contextmanager
def exported_traces(warn: Callable[[str], None]) -> Iterator[None]:
    """Export this process's spans for a while.

    Args:
        warn: see `TraceExport`.
    """
    export = TraceExport(warn)
    export.start()
    try:
        yield
    finally:
        export.stop()


class _ExportFailures(logging.Handler):
    """Takes what OpenTelemetry logs and tells its kind alone: addresses and headers of collectors may hold a key."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._next = warn, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it, unless something was told lately."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + _WARNING_SECONDS
            self._tell(
                f"exporting traces fails: {_failure(record) or 'see the variables OTEL_*'}; nothing waits for it"
            )


def _failure(record: logging.LogRecord) -> str:
    """Return a failure's kind, such as `ConnectionError` or `status 401`; "" where a record has none."""
    details = [*record.args] if isinstance(record.args, tuple) else []
    if record.exc_info:
        details.append(record.exc_info[1])
    for detail in details:
        if isinstance(detail, BaseException):
            return type(detail).__name__
        if isinstance(detail, int):
            return f"status {detail}"
    return ""


def _exporter_names(environment: Mapping[str, str]) -> list[str]:
    """Return the exporters' names, among those that packages register."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    by_endpoint = "otlp" if any(map(environment.get, _ENDPOINTS)) else ""
    names = (name.strip() for name in (environment.get("OTEL_TRACES_EXPORTER") or by_endpoint).split(","))
    protocol = next(filter(None, map(environment.get, _PROTOCOLS)), "").strip()
    otlp = _BY_PROTOCOL.get(protocol, f"otlp over {protocol}")
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def _has_provider() -> bool:
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _set_provider(names: list[str]) -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "sterna"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in [_open_exporter(name) for name in names]:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _open_exporter(name: str) -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    if name == "console":
        return ConsoleSpanExporter(out=sys.stderr)  # stdout is a command's result
    registered = next(iter(entry_points(group=_ENTRY_POINTS, name=name)), None)
    if registered is None:
        raise ModuleNotFoundError(name=f"the exporter {name}")
    exporter: SpanExporter = registered.load()()
    return exporter
