"""Errors of the REST catalog's routes, as the specification's ErrorModel: `{"error": {"message", "type", "code"}}`.

Clients decide by status and type whether to try again, and whether to delete the files that they wrote.
"""

from __future__ import annotations

import logging

from starlette.responses import JSONResponse

from sterna.errors import NotYetHere, Remedy, RestCatalogError, SternaError, StoreError, TableError
from sterna.serving.http.errors import RequestError
from sterna.serving.http.logs import FIELDS

log = logging.getLogger(__name__)
_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
    408: "RequestTimeoutException",
    413: "PayloadTooLargeException",
    429: "TooManyRequestsException",
    431: "RequestHeaderFieldsTooLargeException",
    503: "ServiceUnavailableException",
}
_INTERNAL_TYPE = "InternalServerError"
_INTERNAL_MESSAGE = "Error processing request"
_FOLDERS = frozenset({"config", "namespaces", "views", "transactions", "oauth"})
_RENAME = ["tables", "rename"]
_OTHERS = frozenset(
    {"batches", "channels", "drops", "events", "features", "tables", "tickets"}
)  # folders of other routers
NO_STORE = {"Cache-Control": "no-store"}
"""The headers of an answer that is for one client, now."""
_RETRY_AFTER_SECONDS = {429: "5", 503: "2"}
"""By status; Java's client comes again five times where an answer has that header."""


def is_catalog_path(path: str) -> bool:
    """Return whether a path is the REST catalog's, with a prefix or without, whether or not there is anything."""
    _, version, *segments = [*path.split("/"), "", ""]
    if version != "v1":
        return False
    if segments[0] in _FOLDERS or segments[:2] == _RENAME:
        return True
    return segments[0] not in _OTHERS and (segments[1] in _FOLDERS or segments[1:3] == _RENAME)


def error_response(error: RequestError) -> JSONResponse:
    """Return the answer to a request that was refused."""
    return _response(error.status, _TYPES.get(error.status, _INTERNAL_TYPE), error.error, error.headers)


def failure_response(error: Exception, request_id: str) -> JSONResponse:
    """Return the answer to a request that failed.

    Args:
        error: why.
        request_id: for the log.
    """
    match error:
        case RequestError():
            return error_response(error)
        case RestCatalogError():
            return _response(error.status, error.wire_type, str(error))
        case NotYetHere():
            return _response(503, _TYPES[503], str(error))
    log.warning("a request of the catalog failed", exc_info=error, extra={FIELDS: {"request_id": request_id}})
    if isinstance(error, SternaError) and error.remedy is Remedy.RETRY:
        message = "the region's catalog or store does not answer, or not in time"
        return _response(503, _TYPES[503], message)
    message = str(error) if isinstance(error, TableError | StoreError) else _INTERNAL_MESSAGE
    return _response(500, _INTERNAL_TYPE, message)


def _response(status: int, wire_type: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body = {"error": {"message": message, "type": wire_type, "code": status}}
    defaults = {"Retry-After": _RETRY_AFTER_SECONDS[status]} if status in _RETRY_AFTER_SECONDS else {}
    return JSONResponse(body, status, {**defaults, **(headers or {}), **NO_STORE})
