"""A route of the REST catalog: names in its path stay encoded, and each failure is the specification's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from sterna.serving.http.catalog_errors import failure_response
from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST

NAMESPACES = "/v1/{prefix}/namespaces"
NAMESPACE = f"{NAMESPACES}/{{namespace}}"
TABLES, VIEWS = f"{NAMESPACE}/tables", f"{NAMESPACE}/views"
TABLE, VIEW = f"{TABLES}/{{table}}", f"{VIEWS}/{{view}}"


def path_version(request: Request) -> str | None:
    """Return the version of `main` that a request's path names; None: it names none, and means the newest."""
    version = request.path_params.get("version")
    return None if version is None else unquote(version)


class CatalogRoute(APIRoute):
    """A route that is matched by the path as the client sent it: a slash within a name is `%2F` there."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route is meant, and what the endpoint gets."""
        raw_path = scope.get("raw_path")
        if not raw_path:
            return super().matches(scope)
        # Some clients encode the prefix that they were configured with, though nothing in it has to be.
        path = raw_path.decode("latin-1").replace("/v1/main%40", "/v1/main@", 1)
        return super().matches({**scope, "path": path})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handler = super().get_route_handler()

        async def run(request: Request) -> Response:
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            except Exception as error:  # noqa: BLE001 -- each failure has the form that clients decide by, and is logged
                return failure_response(error, request.scope["state"]["request_id"])

        return run
