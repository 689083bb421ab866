"""Requests to other services for the browser: one entity's features, and the figure of a named query."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.responses import JSONResponse, Response

from sterna.airflow.pages.source import FeatureView
from sterna.config.secrets import Secrets
from sterna.errors import CredentialError, printable

FEATURE_TIMEOUT_SECONDS = 5.0
_KPI_TIMEOUT_SECONDS = 15.0
_USER_ID = re.compile(r"[0-9]+")
_MAX_USER_ID = 2**63 - 1
_MAX_BODY_BYTES = 1 << 20
_MAX_ID_LENGTH = 1_000
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_FEATURES = 200  # that the gateway takes at once
ClientFactory = Callable[[float], httpx.AsyncClient]


def default_client(seconds: float) -> httpx.AsyncClient:
    """Return a client with a timeout, that follows no redirects and uses no proxies."""
    return httpx.AsyncClient(timeout=seconds, follow_redirects=False, trust_env=False)


@dataclass(frozen=True)
class FeatureService:
    """The service for features.

    Args:
        address: of the service; "": not configured.
        credential: id of the credential whose password is a token of the service's; "": none is sent.
    """

    address: str
    credential: str
    secrets: Secrets
    client: ClientFactory = default_client


async def user_features(user: str, service: FeatureService) -> Response:
    """Return a user's features as the feature service answers them.

    Args:
        user: the user's id as it was typed.
        service: that serves them.
    """
    if not _USER_ID.fullmatch(user) or int(user[:20]) > _MAX_USER_ID or len(user.lstrip("0")) > len(str(_MAX_USER_ID)):
        return _error_response(400, "Invalid user ID format")
    features = await _request_features(service, "GET", f"features/user/{user}", f"user {user}")
    return features if isinstance(features, Response) else JSONResponse(features)


async def view_features(view: FeatureView | None, ids: Sequence[str], service: FeatureService) -> Response:
    """Return an entity's features as the gateway serves them.

    They are requested by `POST /v1/features`: a path can't carry each id, as `..` is one.

    Args:
        view: the view of features; None: the services file has none of that name.
        ids: the values of its key's columns as they were typed; spaces of any kind are part of them.
        service: that serves them.
    """
    if view is None:
        return _error_response(404, "There is no such view")
    if len(ids) != len(view.key) or not all(
        1 <= len(id) <= _MAX_ID_LENGTH and not _CONTROL_CHARACTERS.search(id) for id in ids
    ):
        return _error_response(400, "Invalid ID format")
    subject, features = printable(", ".join(ids)), dict[str, Any]()
    entity = dict(zip(view.key, ids, strict=True))
    for start in range(0, len(view.features), _MAX_FEATURES):
        names = [f"{view.name}.{name}" for name in view.features[start : start + _MAX_FEATURES]]
        answer = await _request_features(
            service, "POST", "v1/features", subject, {"features": names, "entities": [entity]}
        )
        if isinstance(answer, Response):
            return answer
        match answer:
            case {"rows": [dict() as row], "found": [True]}:
                features |= {name.removeprefix(f"{view.name}."): feature for name, feature in row.items()}
            case {"found": [False]}:
                return _error_response(404, _failure_message(subject))
            case _:
                return _error_response(500, _failure_message(subject))
    return JSONResponse(features)


async def _request_features(
    service: FeatureService, method: str, path: str, subject: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any] | Response:
    if not service.address:
        return _error_response(500, "Feature service URL is not configured")
    try:
        headers = {"Accept": "application/json", **await _auth_headers(service.credential, service.secrets)}
        async with asyncio.timeout(FEATURE_TIMEOUT_SECONDS), service.client(FEATURE_TIMEOUT_SECONDS) as http:
            response = await http.request(method, f"{service.address.rstrip('/')}/{path}", headers=headers, json=body)
            document = response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, CredentialError):
        return _error_response(500, _failure_message(subject))
    if not isinstance(document, dict):
        return _error_response(response.status_code if response.status_code >= 400 else 500, _failure_message(subject))
    return document


def _failure_message(subject: str) -> str:
    return f"Failed to fetch features for {subject}."


async def _auth_headers(credential: str, secrets: Secrets) -> dict[str, str]:
    # A connection may be read from Airflow's database, or from a vault: the others are answered meanwhile.
    token = (await asyncio.to_thread(secrets, credential)).password if credential else ""
    return {"Authorization": f"Bearer {token}"} if token else {}


async def kpi_at(
    at: str, address: str, credential: str, secrets: Secrets, client: ClientFactory = default_client
) -> Response:
    """Return the figure of the gateway's default query, as of an event.

    Args:
        at: an event's id.
        address: of the gateway; "": not configured, and there is no figure.
        credential: id of the credential whose password is a token of the gateway's; "": none is sent.
    """
    if not address:
        return JSONResponse({"configured": False})
    try:
        headers = await _auth_headers(credential, secrets)
        async with asyncio.timeout(_KPI_TIMEOUT_SECONDS), client(_KPI_TIMEOUT_SECONDS) as http:
            response = await http.get(f"{address.rstrip('/')}/kpi", params={"at": at}, headers=headers)
            document: Any = response.json() if len(response.content) <= _MAX_BODY_BYTES else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, CredentialError):
        return _error_response(502, "The gateway gives no figure now")
    if response.status_code != 200 or not isinstance(document, dict):
        return _error_response(502, f"The gateway answers {response.status_code}")
    return JSONResponse({"configured": True, "kpi": document.get("kpi")})


def _error_response(status: int, message: str) -> JSONResponse:
    return JSONResponse({"statusCode": status, "statusMessage": message}, status)
