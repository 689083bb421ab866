"""Spans, for whoever traces this process: Airflow, or `sterna.tracing.export`.

OpenTelemetry isn't imported here. As long as nobody has imported it, nobody takes spans, and none is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context

P = ParamSpec("P")
R = TypeVar("R")
Attributes = Mapping[str, str | int | float]
_TRACER = "sterna"


@dataclass(frozen=True)
class Span:
    """A span that is open; without anybody who takes spans it does nothing."""

    _span: trace.Span | None = None

    def rename(self, name: str) -> None:
        """Give it another name, which has to be one of few."""
        if self._span is not None:
            self._span.update_name(name)

    def set_attributes(self, attributes: Attributes) -> None:
        """Set attributes, none of which may hold a secret."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def fail(self, kind: str) -> None:
        """Mark it as failed; `kind` is an error's class name or a status, and never its text."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))


@contextmanager
def open_span(
    name: str, attributes: Attributes, headers: Iterable[tuple[bytes, bytes]] | None = None
) -> Iterator[Span]:
    """Open a span below the one that is open here; an error that leaves it marks it as failed, by its class name alone.

    Args:
        headers: those of the request that the span is for: it continues the trace that `traceparent` names.
    """
    opentelemetry = _imported()
    if opentelemetry is None:
        yield Span()
        return
    kind = opentelemetry.SpanKind.INTERNAL if headers is None else opentelemetry.SpanKind.SERVER
    with opentelemetry.get_tracer(_TRACER).start_as_current_span(
        name,
        context=None if headers is None else _remote_context(headers),
        kind=kind,
        attributes=dict(attributes),
        record_exception=False,  # an error's text and its traceback may hold anything
        set_status_on_exception=False,
    ) as opened:
        span = Span(opened)
        try:
            yield span
        except BaseException as error:
            span.fail(type(error).__name__)
            raise


def _imported() -> Any:
    """Return `opentelemetry.trace`, None where nobody has imported it, or another thread is just doing so."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    return opentelemetry if hasattr(opentelemetry, "use_span") else None  # what it defines last


def own_attributes(**values: str | int | float) -> Attributes:
    """Return attributes that are sterna's own: `sterna.` stands before each name."""
    return {f"sterna.{name}": value for name, value in values.items()}


def annotate(attributes: Attributes) -> None:
    """Set attributes of the span that is open here."""
    opentelemetry = _imported()
    if opentelemetry is not None:
        opentelemetry.get_current_span().set_attributes(attributes)


def traced(
    name: str, before: Callable[..., Attributes], after: Callable[[R], Attributes]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that gives each call of a function a span.

    Args:
        before: returns attributes from the call's arguments.
        after: returns further ones from its result.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with open_span(name, before(*args, **kwargs)) as span:
                result = function(*args, **kwargs)
                span.set_attributes(after(result))
                return result

        return run

    return decorate


def _remote_context(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # `tracestate` is of other systems; one that is malformed would be logged with what the client sent.
    parents = [value.decode("latin-1") for name, value in headers if name.lower() == b"traceparent"]
    return TraceContextTextMapPropagator().extract({"traceparent": parents[0]} if len(parents) == 1 else {})
