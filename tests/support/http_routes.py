"""The page of a gateway's addresses, made from the routes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

from sterna.serving.http.app import create_app
from tests.support.prose import filled

_INTRODUCTION = """\
# HTTP

This page is made from the routes of `sterna serve`: change a route, then run
`python3 -m tests.reference`. A gateway has the addresses of the services that are configured. It
also serves this description with all schemas at `/docs`, and as `/openapi.json`. Tokens are
described in [Events](events.md#who-may-read-what).

The Iceberg REST addresses are those of its specification: see [REST catalog](rest-catalog.md).

"""
_TITLES = {
    "events": "[Events](events.md)",
    "queries": "[Named queries](queries.md)",
    "ingest": "[Ingestion](ingest.md)",
    "features": "[Online features](features.md)",
    "operation": "Operation",
}


def http_page() -> str:
    """Return the page of all addresses of a gateway with all of its services."""
    paths = create_app(MagicMock(), MagicMock()).openapi()["paths"]
    parts, group = [], ""
    for path, operations in paths.items():
        for method, operation in operations.items():
            (tag,) = operation["tags"]
            if tag != group:
                parts.append(f"## {_TITLES[tag]}\n")
                group = tag
            parts += [f"### `{method.upper()} {path}`\n", *_lines(operation)]
    return _INTRODUCTION + "\n".join(parts).rstrip() + "\n"


def _lines(operation: dict[str, Any]) -> Iterator[str]:
    for paragraph in operation["description"].split("\n\n"):
        yield filled(" ".join(paragraph.split())) + "\n"
    for parameter in operation.get("parameters", ()):
        text = f"* `{parameter['name']}` ({parameter['in']}): {parameter.get('description', '')}"
        yield filled(text.removesuffix(": "), "  ")
    yield filled(f"* Statuses: {', '.join(sorted(operation['responses']))}.", "  ") + "\n"
