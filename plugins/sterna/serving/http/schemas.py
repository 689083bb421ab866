"""What a client asks for: its query, checked. What isn't known is refused, for a misspelt wish would do nothing in
silence."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from starlette.requests import HTTPConnection

from sterna.notifications.change_log.cursor import Cursor, parse_cursor
from sterna.serving.http.errors import RequestError

_MAX_PATTERNS = 50
_MAX_PATTERN_CHARS = 256
_MAX_TOTAL_CHARS = 1_024  # of all patterns: what a client asks for is looked for in each table's name
MAX_WAIT_SECONDS = 60
# What polyfills of EventSource (Yaffle's, AmvTek's) add to an address when they come back, or always; `r` is random.
_LAST_ID_PARAMETERS = ("lastEventId", "evs_last_event_id")
_POLYFILL_PARAMETERS = (*_LAST_ID_PARAMETERS, "evs_buffer_size_limit", "evs_preamble", "r")


@dataclass(frozen=True)
class EventsQuery:
    """A checked query.

    Args:
        tables: patterns; none: all tables.
        after: where to begin.
        wait: seconds of a long poll, None for a stream.
        delivery: what happens when the client falls behind.
    """

    tables: tuple[str, ...] = ()
    after: Cursor | None = None
    wait: int | None = None
    delivery: Literal["newest", "all"] = "newest"


def parse_query(request: HTTPConnection, allowed: Collection[str]) -> EventsQuery:
    """Return what a request asks for.

    Args:
        request: the request.
        allowed: the parameters that it may have.

    Raises:
        RequestError: 400, with the parameter's name.
    """
    params = request.query_params
    for name in params:
        if name not in allowed and not ("after" in allowed and name in _POLYFILL_PARAMETERS):
            raise RequestError(
                400, f"unknown parameter: {_printable_name(name)}; there are: {', '.join(sorted(allowed))}"
            )
        if name != "tables" and len(params.getlist(name)) > 1:
            raise RequestError(400, f"{name} stands twice")
    return EventsQuery(
        _parse_patterns(params.getlist("tables")),
        _parse_after(params.get("after"), _last_event_id(request) if "after" in allowed else None),
        _parse_wait(params.get("wait")),
        _parse_delivery(params.get("delivery", "newest")),
    )


def _parse_patterns(texts: list[str]) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(part for text in texts for part in text.split(",")))
    if len(patterns) > _MAX_PATTERNS:
        raise RequestError(400, f"tables: at most {_MAX_PATTERNS} patterns")
    for pattern in patterns:
        if not pattern or len(pattern) > _MAX_PATTERN_CHARS or not pattern.isprintable():
            raise RequestError(400, f"tables: a pattern has 1 to {_MAX_PATTERN_CHARS} printable letters")
    if sum(map(len, patterns)) > _MAX_TOTAL_CHARS:
        raise RequestError(400, f"tables: all patterns together have at most {_MAX_TOTAL_CHARS:,} letters")
    return patterns


def _last_event_id(request: HTTPConnection) -> str | None:
    candidates = [
        request.headers.get("last-event-id"),
        *(request.query_params.get(name) for name in _LAST_ID_PARAMETERS),
    ]
    return next((event_id for event_id in candidates if event_id), None)


def _parse_after(after: str | None, last_event_id: str | None) -> Cursor | None:
    # A browser that reconnects repeats its first address: what it saw last is the newer of the two.
    text = last_event_id or after
    if text is None:
        return None
    cursor = parse_cursor(text)
    if cursor is None:
        raise RequestError(400, "after: this is no cursor: expected an event's id, or the cursor of an answer")
    return cursor


def _parse_wait(seconds: str | None) -> int | None:
    if seconds is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}", seconds) or int(seconds) > MAX_WAIT_SECONDS:
        raise RequestError(400, f"wait: expected 0 to {MAX_WAIT_SECONDS} seconds")
    return int(seconds)


def _parse_delivery(delivery: str) -> Literal["newest", "all"]:
    if delivery == "all":
        return "all"
    if delivery == "newest":
        return "newest"
    raise RequestError(400, "delivery: expected newest or all")


def _printable_name(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", text) else "(a name that isn't shown)"
