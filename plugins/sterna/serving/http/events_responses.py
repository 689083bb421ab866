"""What events and tables look like in JSON, and the descriptions of their routes' responses."""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import TypedDict

from sterna.serving.http.responses import ResponseBody, Responses, body_field, failures, success

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


class TicketBody(ResponseBody):
    """A ticket for one stream."""

    ticket: str = body_field("tBv6…")
    expires_in: int = body_field(60)


class TableBody(TypedDict):
    """What a table shows."""

    # No model: a name may hold half of a surrogate pair, which JSON can only escape.

    table_identifier: str
    snapshot_id: int | None
    snapshotid: str | None


class TablesBody(TypedDict):
    """What a region's tables show at a commit."""

    region: str
    branch: str
    cursor: str
    tables: list[TableBody]


_TABLES: TablesBody = {
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
}
_EVENTS = success("Events; with `wait` as JSON.", None, {"cursor": EVENT["id"], "events": [EVENT]})
_EVENTS["content"]["text/event-stream"] = {"example": _STREAM}
_BAD_REQUEST = {400: "unknown parameter: table"}
_UNAUTHORIZED = {401: "a token is needed", 403: "the token's roles may not read"}
_GONE = {410: "the cursor is not known here any more"}
_UNAVAILABLE = {503: "too many connections"}
EVENTS_RESPONSES: Responses = {200: _EVENTS, **failures(_BAD_REQUEST | _UNAUTHORIZED | _GONE | _UNAVAILABLE)}
TABLES_RESPONSES: Responses = {
    200: success("Tables, and the cursor.", TablesBody, _TABLES),
    **failures(_BAD_REQUEST | _UNAUTHORIZED | _UNAVAILABLE),
}
TICKETS_RESPONSES: Responses = {
    201: success("The ticket.", TicketBody, TicketBody.example()),
    **failures(_UNAUTHORIZED),
}
