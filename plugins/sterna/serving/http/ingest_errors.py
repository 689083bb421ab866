"""Errors of ingestion as HTTP answers: the error's own message where it is about the request, and no details
otherwise."""

from __future__ import annotations

import logging

from sterna.errors import (
    BadDrop,
    CatalogError,
    CredentialError,
    DropOverLimit,
    KeyReused,
    SternaError,
    StoreError,
    TrackerLost,
    TrackerTooNew,
)
from sterna.runtime.failures import describe_error
from sterna.serving.http.errors import RequestError, unavailable
from sterna.serving.http.logs import FIELDS

log = logging.getLogger(__name__)
_STATUSES: dict[type[SternaError], int] = {BadDrop: 422, DropOverLimit: 413, KeyReused: 409}
_UNAVAILABLE = (StoreError, CatalogError, CredentialError, TrackerLost, TrackerTooNew)
_RETRY_AFTER_SECONDS = 5


def translate_error(error: SternaError, request_id: str) -> RequestError | None:
    """Return the response for an error; None: it is an unexpected one.

    Args:
        request_id: the request's, for the log.
    """
    if (status := _STATUSES.get(type(error))) is not None:
        return RequestError(status, error.message)
    if isinstance(error, _UNAVAILABLE):
        message = describe_error(error)
        log.warning("nothing is taken: %s", message, extra={FIELDS: {"request_id": request_id}})
        return unavailable("the inbox or the tracker of this region doesn't answer", _RETRY_AFTER_SECONDS)
    return None
