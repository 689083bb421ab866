"""Ingestion's answers as examples, for OpenAPI."""

from __future__ import annotations

from typing import Any

from sterna.serving.http.errors import error_examples

_DROP: dict[str, Any] = {
    "id": "5d41402abc4b2a76b9719d911017c592",
    "table": "acme.events",
    "channel": "eu.acme.default",
    "partition": None,
    "offset": None,
    "format": "json",
    "rows": 2,
    "bytes": 42,
    "accepted": "2026-11-22T10:00:00.000000Z",
    "state": "buffered",
    "batch": None,
    "served": {},
}
_BATCH = {
    "id": "7d793037a0760186574b0282f2f435e7",
    "tenant": "acme",
    "table": "acme.events",
    "channel": "eu.acme.default",
    "partition": None,
    "number": 17,
    "state": "published",
    "files": 500,
    "rows": 1000,
    "bytes": 21_000,
    "oldest": "2026-11-22T10:00:00.000000Z",
    "closed": "2026-11-22T10:00:09.000000Z",
    "closed_by": "files",
    "settled": "2026-11-22T10:00:12.000000Z",
    "snapshotid": "8744736658442914487",
    "commit": "9f2c4c1e0b7d4a6f8e3b5d2c1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29",
    "reason": None,
    "attempts": 1,
}
_CHANNEL = {
    "channel": "eu.acme.feed",
    "tables": [{"table": "acme.events", "accepted_offset": "1042", "settled_offset": "1000", "drops": 1042}],
}
_UNAUTHORIZED = {401: "a token is needed", 403: "the token's tenant has no such namespace"}
_UNAVAILABLE = {503: "the inbox or the tracker of this region doesn't answer"}


def _json_example(description: str, example: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"example": example}}}


POST: dict[int | str, dict[str, Any]] = {
    201: _json_example("Durable in this region.", {**_DROP, "repeated": False}),
    200: _json_example("It was sent before, and is durable since then.", {**_DROP, "repeated": True}),
    **error_examples(
        {400: "send either Idempotency-Key or Sterna-Offset, not both"}
        | _UNAUTHORIZED
        | {
            404: "no table of that name takes rows",
            408: "the upload took longer than 600 s (limits.upload)",
            409: "the same key was used for another content before",
            411: "a Content-Length is needed",
            413: "2000000000 bytes, 1073741824 are allowed (limits.file)",
            415: "the Content-Encoding has to be gzip, or none",
            422: "line 3 is no JSON object",
            429: "10737418240 bytes wait for being published (limits.backlog)",
        }
        | _UNAVAILABLE
    ),
}
DROP: dict[int | str, dict[str, Any]] = {
    200: _json_example("The upload.", {**_DROP, "state": "published", "batch": _BATCH}),
    **error_examples(_UNAUTHORIZED | {404: "there is no such upload"} | _UNAVAILABLE),
}
BATCHES: dict[int | str, dict[str, Any]] = {
    200: _json_example("Batches.", {"region": "eu", "batches": [_BATCH]}),
    **error_examples({400: "limit: expected 1 to 1000"} | _UNAUTHORIZED | _UNAVAILABLE),
}
CHANNEL: dict[int | str, dict[str, Any]] = {
    200: _json_example("The channel.", _CHANNEL),
    **error_examples(_UNAUTHORIZED | {404: "there is no such channel in this region"} | _UNAVAILABLE),
}
