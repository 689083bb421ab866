"""Answers as examples, for OpenAPI."""

from __future__ import annotations

import json
from typing import Any

from sterna.serving.http.errors import error_examples

_HASH = "9f2c4c1e0b7d4a6f8e3b5d2c1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29"
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": f"{_HASH}-1",
    "source": "/regions/eu/branches/main_replica_eu",
    "type": "sterna.table.updated",
    "subject": "db.fact_events",
    "time": "2025-10-09T08:53:20.000000Z",
    "datacontenttype": "application/json",
    "sequence": "000000000042.000001",
    "snapshotid": "8744736658442914487",
    "data": {
        "table_identifier": "db.fact_events",
        "new_snapshot_id": 8744736658442914487,
        "event_timestamp_utc": 1760000000,
        "version": "1.0",
        "region": "eu",
        "branch": "main_replica_eu",
        "source_hash": "1d0c0ffe" * 8,
        "replica_hash": _HASH,
        "previous_snapshot_id": 3051729675574597004,
        "operations": ["append"],
    },
}
_STREAM = f"retry: 2417\n\nid: {EVENT['id']}\ndata: {json.dumps(EVENT)}\n\n"


def _example(description: str, **contents: Any) -> dict[str, Any]:
    kinds = {"json": "application/json", "stream": "text/event-stream"}
    return {
        "description": description,
        "content": {kinds[kind]: {"example": example} for kind, example in contents.items()},
    }


_BAD_REQUEST = {400: "unknown parameter: table"}
_UNAUTHORIZED = {401: "a token is needed", 403: "the token's roles may not read"}
_GONE = {410: "the cursor is not known here any more"}
_UNAVAILABLE = {503: "too many connections"}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: _example("Events; with `wait` as JSON.", stream=_STREAM, json={"cursor": EVENT["id"], "events": [EVENT]}),
    **error_examples(_BAD_REQUEST | _UNAUTHORIZED | _GONE | _UNAVAILABLE),
}
TABLES: dict[int | str, dict[str, Any]] = {
    200: _example(
        "Tables, and the cursor.",
        json={
            "region": "eu",
            "branch": "main_replica_eu",
            "cursor": _HASH,
            "tables": [
                {
                    "table_identifier": "db.fact_events",
                    "snapshot_id": 8744736658442914487,
                    "snapshotid": "8744736658442914487",
                }
            ],
        },
    ),
    **error_examples(_BAD_REQUEST | _UNAUTHORIZED | _UNAVAILABLE),
}
TICKETS: dict[int | str, dict[str, Any]] = {
    201: _example("The ticket.", json={"ticket": "tBv6…", "expires_in": 60}),
    **error_examples(_UNAUTHORIZED),
}
_CURRENT = {"cursor": _HASH, "snapshots": {"db.fact_events": "8744736658442914487"}}
KPI: dict[int | str, dict[str, Any]] = {
    200: _example(
        "The figures; with `answer: rows` a list `rows` in place of `kpi`.",
        json={
            "kpi": {"total_revenue": 12.5},
            "types": {"total_revenue": "double"},
            "snapshot_id": "8744736658442914487",
        },
    ),
    304: {"description": "The client has this answer: `If-None-Match` names its `ETag`."},
    **error_examples(
        {
            400: "Missing snapshotId parameter",
            401: "a token is needed",
            403: "a rule keeps a table of this query from you",
            404: "there is no query 'revenu'",
            410: "snapshot 3051729675574597004 is not here, or no longer",
            413: "the answer has more than 10000 rows or 1048576 bytes",
            429: "34 queries run or wait already",
            500: "Error processing request",
            503: "main has snapshot 3051729675574597004, and this region not yet",
            504: "the query ran for more than 10 s",
        }
    ),
}
KPI[410]["content"]["application/json"]["example"]["current"] = _CURRENT
