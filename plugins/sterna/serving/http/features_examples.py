"""Examples of features for OpenAPI, which also document the values that are text."""

from __future__ import annotations

from typing import Any

from sterna.serving.http.errors import error_examples

_VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "array", "items": {}},
        {"type": "null"},
    ],
    "description": "By the column's type. `boolean`, `int`, `float`, `double`: JSON's own. `long`, `decimal`: text, as "
    "JSON loses digits of them. `date`, `timestamp`, `timestamptz`: ISO 8601. `binary`, `fixed`: Base64. NaN and the "
    "infinities: `NaN`, `Infinity`, `-Infinity`. A list: an array of these. Null: null.",
}
_HEADERS: dict[str, Any] = {
    "X-Sterna-Cache": {
        "description": "hit: from the store; miss: it hadn't got it; bypass: it wasn't asked, or can't be believed.",
        "schema": {"type": "string", "enum": ["hit", "miss", "bypass"]},
    },
    "X-Sterna-Snapshot": {"description": "The snapshot that the answer stands for.", "schema": {"type": "string"}},
    "X-Sterna-Age": {"description": "Seconds since that one's commit.", "schema": {"type": "integer"}},
}


def _success(description: str, schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"description": description, "headers": _HEADERS, "content": content}


_ERRORS = error_examples(
    {
        400: "user_id: expected a whole number of 64 bits",
        401: "a token is needed",
        403: "a rule keeps the table of this view from you",
        404: "User 123 not found.",
        408: "the body was not here within 20 s",
        410: "That snapshot, or that time's, is not kept here.",
        413: "the body has more than 16,777,216 bytes",
        429: "too much is being sent at once",
        500: "Internal server error retrieving features.",
        503: "Feature service backend is unavailable.",
    }
)
for _error in _ERRORS.values():
    _example = _error["content"]["application/json"]["example"]
    _example["detail"] = _example["error"]
_BODY_STATUSES = (408, 413, 429)
_FLAT = {"type": "object", "additionalProperties": _VALUE}
ONE: dict[int | str, dict[str, Any]] = {
    200: _success(
        "The features.",
        _FLAT,
        {"user_id": "123", "age": 30, "city": "Shanghai", "last_updated_ts": "2023-10-27T10:00:00"},
    ),
    **{status: response for status, response in _ERRORS.items() if status not in _BODY_STATUSES},
}
_MANY = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": _FLAT},
        "found": {"type": "array", "items": {"type": "boolean"}},
        "snapshots": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        "statuses": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": {"enum": ["present", "null", "not_found", "too_old"]},
            },
        },
        "event_timestamps": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        },
    },
}
BODIES: Any = {
    "two users": {"value": {"service": "pricing", "entities": [{"user_id": 123}, {"user_id": "9007199254740993"}]}},
    "a list of features, with statuses": {
        "value": {"features": ["user.age", "user.city"], "entities": [{"user_id": 123}], "statuses": True}
    },
}
MANY: dict[int | str, dict[str, Any]] = {
    200: _success(
        "The features, in the order of the entities.",
        _MANY,
        {
            "rows": [
                {"user_id": "123", "user.age": 30, "user.city": "Shanghai"},
                {"user_id": "9007199254740993", "user.age": None, "user.city": None},
            ],
            "found": [True, False],
            "snapshots": {"user": "8744736658442914487"},
        },
    ),
    **_ERRORS,
}
