"""What a client asks for: its query, checked. What isn't known is refused, for a misspelt wish would do nothing in
silence."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from starlette.requests import HTTPConnection

from sterna.feed.cursor import Cursor, parse_cursor
from sterna.gateway.replies import RefusedRequest

_MOST_PATTERNS = 50
_LONGEST_PATTERN = 256
_MOST_LETTERS = 1_024  # of all patterns: what a client asks for is looked for in each table's name
LONGEST_WAIT = 60
# What polyfills of EventSource (Yaffle's, AmvTek's) add to an address when they come back, or always; `r` is random.
_LAST_IDS = ("lastEventId", "evs_last_event_id")
_OF_POLYFILLS = (*_LAST_IDS, "evs_buffer_size_limit", "evs_preamble", "r")


@dataclass(frozen=True)
class Asked:
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


def asked(request: HTTPConnection, known: Collection[str]) -> Asked:
    """Return what a request asks for.

    Args:
        request: the request.
        known: the parameters that it may have.

    Raises:
        RefusedRequest: 400, with the parameter's name.
    """
    given = request.query_params
    for name in given:
        if name not in known and not ("after" in known and name in _OF_POLYFILLS):
            raise RefusedRequest(400, f"unknown parameter: {_shown(name)}; there are: {', '.join(sorted(known))}")
        if name != "tables" and len(given.getlist(name)) > 1:
            raise RefusedRequest(400, f"{name} stands twice")
    return Asked(
        _tables(given.getlist("tables")),
        _after(given.get("after"), _last_id(request) if "after" in known else None),
        _wait(given.get("wait")),
        _delivery(given.get("delivery", "newest")),
    )


def _tables(given: list[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part for text in given for part in text.split(",")))
    if len(found) > _MOST_PATTERNS:
        raise RefusedRequest(400, f"tables: at most {_MOST_PATTERNS} patterns")
    for pattern in found:
        if not pattern or len(pattern) > _LONGEST_PATTERN or not pattern.isprintable():
            raise RefusedRequest(400, f"tables: a pattern has 1 to {_LONGEST_PATTERN} printable letters")
    if sum(map(len, found)) > _MOST_LETTERS:
        raise RefusedRequest(400, f"tables: all patterns together have at most {_MOST_LETTERS:,} letters")
    return found


def _last_id(request: HTTPConnection) -> str | None:
    found = [request.headers.get("last-event-id"), *(request.query_params.get(name) for name in _LAST_IDS)]
    return next((each for each in found if each), None)


def _after(given: str | None, last: str | None) -> Cursor | None:
    # A browser that reconnects repeats its first address: what it saw last is the newer of the two.
    text = last or given
    if text is None:
        return None
    cursor = parse_cursor(text)
    if cursor is None:
        raise RefusedRequest(400, "after: this is no cursor: expected an event's id, or the cursor of an answer")
    return cursor


def _wait(given: str | None) -> int | None:
    if given is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}", given) or int(given) > LONGEST_WAIT:
        raise RefusedRequest(400, f"wait: expected 0 to {LONGEST_WAIT} seconds")
    return int(given)


def _delivery(given: str) -> Literal["newest", "all"]:
    if given == "all":
        return "all"
    if given == "newest":
        return "newest"
    raise RefusedRequest(400, "delivery: expected newest or all")


def _shown(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", text) else "(a name that isn't shown)"
