"""A route for thousands of requests a second: FastAPI describes it, and Starlette runs it.

What FastAPI does between a request and its endpoint, for any endpoint there might be, takes longer than these do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import request_response

from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST


def build_route_class(
    admit: Callable[[Request], Awaitable[object]], read: Callable[[Request], Awaitable[dict[str, Any]]]
) -> type[APIRoute]:
    """Return a class of routes whose endpoints take the request, texts of its path, `as_of`, and with POST the object
    `asked`.

    Args:
        admit: raises `RequestError` for a request that is not allowed, before its body is read.
        read: returns the body.
    """

    class DirectRoute(APIRoute):
        def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
            super().__init__(path, endpoint, **settings)

            async def run(request: Request) -> Response:
                arguments: dict[str, Any] = dict(request.path_params)
                if request.scope["query_string"]:
                    arguments["as_of"] = request.query_params.get("as_of", "")
                await admit(request)
                if request.method == "POST":
                    try:
                        arguments["asked"] = await read(request)
                    except ClientDisconnect:
                        return Response(status_code=CLIENT_CLOSED_REQUEST)
                answer: Response = await endpoint(request, **arguments)
                return answer

            self.app = request_response(run)

    return DirectRoute
