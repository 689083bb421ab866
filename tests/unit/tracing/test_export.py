"""What keeps traces from being exported is told in a line, and nothing else comes of it."""

from __future__ import annotations

import os
import sys

import pytest

from sterna.tracing.export import exported_traces
from sterna.tracing.span import open_span


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def told(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """Return what is told about an export as variables say, in which a span is opened."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    lines: list[str] = []
    with exported_traces(lines.append), open_span("sterna.plan", {}) as span:
        span.set_attributes({"sterna.files": 1})
        span.fail("StoreError")
    return lines


def test_packages_that_are_missing_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    (line,) = told(monkeypatch, OTEL_TRACES_EXPORTER="console")
    assert line == "traces aren't exported: opentelemetry is missing; pip install 'sterna[traces]'"


def test_an_exporter_that_doesn_t_take_its_settings_is_told_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = told(monkeypatch, OTEL_TRACES_EXPORTER="otlp_proto_http", OTEL_BSP_MAX_QUEUE_SIZE="-1")
    assert line == "traces aren't exported: ValueError; see the variables OTEL_*"


@pytest.mark.parametrize("variables", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": " none , "}])
def test_without_an_exporter_there_is_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    assert told(monkeypatch, **variables) == []
