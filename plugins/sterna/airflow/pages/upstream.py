"""What the pages ask of others for the browser: one entity's features, and the figure of a named query."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.responses import JSONResponse, Response

from sterna.airflow.pages.source import FeatureView
from sterna.edges.secrets import Secrets
from sterna.errors import CredentialError, printable

FEATURE_SECONDS = 5.0
_KPI_SECONDS = 15.0
_USER = re.compile(r"[0-9]+")
_LARGEST = 2**63 - 1
_MOST_BYTES = 1 << 20
_LONGEST_ID = 1_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_FEATURES = 200  # that the gateway takes at once
Client = Callable[[float], httpx.AsyncClient]


def default_client(seconds: float) -> httpx.AsyncClient:
    """Return a client that gives up after a while, and goes where it is sent to and nowhere else."""
    return httpx.AsyncClient(timeout=seconds, follow_redirects=False, trust_env=False)


@dataclass(frozen=True)
class FeatureService:
    """Where features are asked for.

    Args:
        address: of the service; "": nobody said.
        credential: id of the credential whose password is a token of the service's; "": none is sent.
        secrets: finds it.
        client: makes a client.
    """

    address: str
    credential: str
    secrets: Secrets
    client: Client = default_client


async def user_features(user: str, service: FeatureService) -> Response:
    """Return a user's features as the feature service answers them.

    Args:
        user: the user's id as it was typed.
        service: where they are asked for.
    """
    if not _USER.fullmatch(user) or int(user[:20]) > _LARGEST or len(user.lstrip("0")) > len(str(_LARGEST)):
        return _refused(400, "Invalid user ID format")
    found = await _asked(service, "GET", f"features/user/{user}", f"user {user}")
    return found if isinstance(found, Response) else JSONResponse(found)


async def view_features(view: FeatureView | None, ids: Sequence[str], service: FeatureService) -> Response:
    """Return an entity's features as the gateway tells them.

    They are asked for by `POST /v1/features`: a path doesn't carry each id, as `..` is one.

    Args:
        view: the view of features; None: the services file has none of that name.
        ids: the values of its key's columns as they were typed; spaces of any kind are part of them.
        service: where they are asked for.
    """
    if view is None:
        return _refused(404, "There is no such view")
    if len(ids) != len(view.key) or not all(1 <= len(id) <= _LONGEST_ID and not _CONTROL.search(id) for id in ids):
        return _refused(400, "Invalid ID format")
    whose, told = printable(", ".join(ids)), dict[str, Any]()
    entity = dict(zip(view.key, ids, strict=True))
    for start in range(0, len(view.features), _MOST_FEATURES):
        names = [f"{view.name}.{name}" for name in view.features[start : start + _MOST_FEATURES]]
        found = await _asked(service, "POST", "v1/features", whose, {"features": names, "entities": [entity]})
        if isinstance(found, Response):
            return found
        match found:
            case {"rows": [dict() as row], "found": [True]}:
                told |= {name.removeprefix(f"{view.name}."): value for name, value in row.items()}
            case {"found": [False]}:
                return _refused(404, _failed(whose))
            case _:
                return _refused(500, _failed(whose))
    return JSONResponse(told)


async def _asked(
    service: FeatureService, method: str, path: str, whose: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any] | Response:
    if not service.address:
        return _refused(500, "Feature service URL is not configured")
    try:
        headers = {"Accept": "application/json", **await _token(service.credential, service.secrets)}
        async with asyncio.timeout(FEATURE_SECONDS), service.client(FEATURE_SECONDS) as http:
            answer = await http.request(method, f"{service.address.rstrip('/')}/{path}", headers=headers, json=body)
            found = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, CredentialError):
        return _refused(500, _failed(whose))
    if not isinstance(found, dict):
        return _refused(answer.status_code if answer.status_code >= 400 else 500, _failed(whose))
    return found


def _failed(whose: str) -> str:
    return f"Failed to fetch features for {whose}."


async def _token(credential: str, secrets: Secrets) -> dict[str, str]:
    # A connection may be asked of Airflow's database, or of a vault: the others are answered meanwhile.
    token = (await asyncio.to_thread(secrets, credential)).password if credential else ""
    return {"Authorization": f"Bearer {token}"} if token else {}


async def figure(at: str, address: str, credential: str, secrets: Secrets, client: Client = default_client) -> Response:
    """Return the figure of the gateway's default query, as of an event.

    Args:
        at: an event's id.
        address: where the gateway is; "": nobody said, and there is no figure.
        credential: id of the credential whose password is a token of the gateway's; "": none is sent.
        secrets: finds it.
        client: makes a client.
    """
    if not address:
        return JSONResponse({"configured": False})
    try:
        headers = await _token(credential, secrets)
        async with asyncio.timeout(_KPI_SECONDS), client(_KPI_SECONDS) as http:
            answer = await http.get(f"{address.rstrip('/')}/kpi", params={"at": at}, headers=headers)
            found: Any = answer.json() if len(answer.content) <= _MOST_BYTES else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, CredentialError):
        return _refused(502, "The gateway gives no figure now")
    if answer.status_code != 200 or not isinstance(found, dict):
        return _refused(502, f"The gateway answers {answer.status_code}")
    return JSONResponse({"configured": True, "kpi": found.get("kpi")})


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"statusCode": status, "statusMessage": message}, status)
