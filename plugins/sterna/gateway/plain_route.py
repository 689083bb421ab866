"""A route that is asked thousands of times a second: FastAPI describes it, and Starlette runs it.

What FastAPI does between a request and its endpoint, for any endpoint there might be, takes longer than these do.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import request_response

from sterna.gateway.replies import RefusedRequest

LARGEST_BODY = 16 * 1024 * 1024
"""Bytes: a thousand keys of a thousand letters each, however JSON spells them."""
_UNCLEAR = "the request can't be understood"


class PlainRoute(APIRoute):
    """A route whose endpoint takes the request, texts of its path, `as_of`, and with POST the object `asked`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        super().__init__(path, endpoint, **settings)

        async def run(request: Request) -> Response:
            given: dict[str, Any] = dict(request.path_params)
            if request.scope["query_string"]:
                given["as_of"] = request.query_params.get("as_of", "")
            await self.admit(request)
            if request.method == "POST":
                given["asked"] = await read_object(request)
            answer: Response = await endpoint(request, **given)
            return answer

        self.app = request_response(run)

    async def admit(self, request: Request) -> None:
        """Refuse who may not ask, before anything of a body is read."""


def admitting(admit: Callable[[Request], Awaitable[object]]) -> type[PlainRoute]:
    """Return the class of routes that ask somebody before they read a request's body.

    Args:
        admit: raises `RefusedRequest` for who may not ask.
    """

    class Admitting(PlainRoute):
        async def admit(self, request: Request) -> None:
            await admit(request)

    return Admitting


async def read_object(request: Request) -> dict[str, Any]:
    """Return a request's body, an object of JSON.

    Raises:
        RefusedRequest: it is something else, or too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        raise RefusedRequest(400, _UNCLEAR)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            said = f"the body has more than {LARGEST_BODY:,} bytes"
            raise RefusedRequest(413, said, {"Connection": "close"}, detail=said)
        parts.append(part)
    try:
        found = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise RefusedRequest(400, _UNCLEAR) from None
    if not isinstance(found, dict):
        raise RefusedRequest(400, _UNCLEAR)
    return found
