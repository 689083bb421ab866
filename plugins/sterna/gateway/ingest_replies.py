"""What producers are told where something fails: the error's own words where they are about what was sent, no more
else."""

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
from sterna.gateway.logs import FIELDS
from sterna.gateway.replies import RefusedRequest, later

log = logging.getLogger(__name__)
_SAID: dict[type[SternaError], int] = {BadDrop: 422, DropOverLimit: 413, KeyReused: 409}
_DARK = (StoreError, CatalogError, CredentialError, TrackerLost, TrackerTooNew)
_SECONDS = 5


def refused(error: SternaError, request_id: str) -> RefusedRequest | None:
    """Return what a producer is told of an error; None: it is one that nobody foresaw.

    Args:
        error: what happened.
        request_id: of his request, for the log.
    """
    if (status := _SAID.get(type(error))) is not None:
        return RefusedRequest(status, error.message)
    if isinstance(error, _DARK):
        said = f"{type(error).__name__}: {error}"
        log.warning("nothing is taken: %s", said, extra={FIELDS: {"request_id": request_id}})
        return later("the inbox or the tracker of this region doesn't answer", _SECONDS)
    return None
