"""What features look like in JSON, and the descriptions of their routes' responses.

The routes write their JSON themselves: a model would take longer than the store does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from sterna.pipelines.features.online import CacheStatus, Status
from sterna.serving.http.errors import RequestError
from sterna.serving.http.responses import Responses, failures, success

Value = Annotated[
    str | float | int | bool | list[Any] | None,
    Field(
        description="By the column's type. `boolean`, `int`, `float`, `double`: JSON's own. `long`, `decimal`: text, "
        "as JSON loses digits of them. `date`, `timestamp`, `timestamptz`: ISO 8601. `binary`, `fixed`: Base64. NaN "
        "and the infinities: `NaN`, `Infinity`, `-Infinity`. A list: an array of these. Null: null."
    ),
]
FeaturesBody = dict[str, Value]
"""The features of one entity, by name, behind the columns of its key."""
EntitiesBody = TypedDict(  # noqa: UP013 - no field of a class is named `found`: a key of JSON keeps that name
    "EntitiesBody",
    {
        "rows": list[FeaturesBody],
        "found": list[bool],
        "snapshots": dict[str, str | None],
        "statuses": NotRequired[list[dict[str, Status]]],
        "event_timestamps": NotRequired[list[dict[str, str | None]]],
    },
)
"""The features of many entities, in the order in which they were asked for."""
FEATURE_HEADERS: dict[str, Any] = {
    "X-Sterna-Cache": {
        "description": "hit: from the store; miss: it hadn't got it; bypass: it wasn't asked, or can't be believed.",
        "schema": {"type": "string", "enum": list(CacheStatus)},
    },
    "X-Sterna-Snapshot": {"description": "The snapshot of the answer.", "schema": {"type": "string"}},
    "X-Sterna-Age": {"description": "Seconds since that one's commit.", "schema": {"type": "integer"}},
}
"""Headers of answers, which pages may read, too."""


def features_error(status: int, detail: str, headers: Mapping[str, str] | None = None) -> RequestError:
    """Return an error with `detail` as well: clients of feature servers read that."""
    return RequestError(status, detail, headers, detail=detail)


_ERRORS = {
    400: "user_id: expected a whole number of 64 bits",
    401: "a token is needed",
    403: "a rule keeps the table of this view from you",
    404: "User 123 not found.",
    410: "That snapshot, or that time's, is not kept here.",
    500: "Internal server error retrieving features.",
    503: "Feature service backend is unavailable.",
}
_BODY_ERRORS = {
    408: "the body was not here within 20 s",
    413: "the body has more than 16,777,216 bytes",
    429: "too much is being sent at once",
}
_FEATURES: FeaturesBody = {"user_id": "123", "age": 30, "city": "Shanghai", "last_updated_ts": "2023-10-27T10:00:00"}
_ENTITIES: EntitiesBody = {
    "rows": [
        {"user_id": "123", "user.age": 30, "user.city": "Shanghai"},
        {"user_id": "9007199254740993", "user.age": None, "user.city": None},
    ],
    "found": [True, False],
    "snapshots": {"user": "8744736658442914487"},
}
_describe_errors = partial(failures, make=features_error)
ENTITY_RESPONSES: Responses = {
    200: success("The features.", FeaturesBody, _FEATURES) | {"headers": FEATURE_HEADERS},
    **_describe_errors(_ERRORS),
}
ENTITIES_RESPONSES: Responses = {
    200: success("The features, in the order of the entities.", EntitiesBody, _ENTITIES) | {"headers": FEATURE_HEADERS},
    **_describe_errors(_ERRORS | _BODY_ERRORS),
}
REQUEST_EXAMPLES: Any = {
    "two users": {"value": {"service": "pricing", "entities": [{"user_id": 123}, {"user_id": "9007199254740993"}]}},
    "a list of features, with statuses": {
        "value": {"features": ["user.age", "user.city"], "entities": [{"user_id": 123}], "statuses": True}
    },
}
