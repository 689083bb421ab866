"""Error responses of the gateway: one form for all, without internal details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

CLIENT_CLOSED_REQUEST = 499
"""The status, as in nginx's log, for a client that has disconnected; it is not sent."""


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        status: the HTTP status.
        error: what is wrong with the request; no details of the machine.
        headers: of the answer.
        fields: more of the answer.
    """

    def __init__(self, status: int, error: str, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.headers = dict(headers or {})
        self.fields = fields

    def body(self, request_id: str) -> dict[str, Any]:
        """Return the answer's JSON."""
        return {"error": self.error, **self.fields, "request_id": request_id}

    def response(self, request_id: str) -> JSONResponse:
        """Return the answer."""
        return JSONResponse(self.body(request_id), self.status, {**self.headers, "Cache-Control": "no-store"})


def unauthorized(error: str) -> RequestError:
    """Return the error for a missing or invalid token."""
    return RequestError(401, error, {"WWW-Authenticate": "Bearer"})


def unavailable(error: str, seconds: int = 2) -> RequestError:
    """Return the error for a request that may be retried."""
    return RequestError(503, error, {"Retry-After": str(seconds)})
