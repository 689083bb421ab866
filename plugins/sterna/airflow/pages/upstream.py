"""What the pages ask of others for the browser: one user's features, and the figure of a named query."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httpx
from starlette.responses import JSONResponse, Response

from sterna.edges.secrets import Secrets
from sterna.errors import CredentialError

FEATURE_SECONDS = 5.0
_KPI_SECONDS = 15.0
_USER = re.compile(r"[0-9]+")
_LARGEST = 2**63 - 1
_MOST_BYTES = 1 << 20
Client = Callable[[float], httpx.AsyncClient]


def default_client(seconds: float) -> httpx.AsyncClient:
    """Return a client that gives up after a while, and goes where it is sent to and nowhere else."""
    return httpx.AsyncClient(timeout=seconds, follow_redirects=False, trust_env=False)


async def features(user: str, address: str, client: Client = default_client) -> Response:
    """Return a user's features as the feature service answers them.

    Args:
        user: the user's id as it was typed.
        address: where the feature service is; "": nobody said.
        client: makes a client.
    """
    if not _USER.fullmatch(user) or int(user[:20]) > _LARGEST or len(user.lstrip("0")) > len(str(_LARGEST)):
        return _refused(400, "Invalid user ID format")
    if not address:
        return _refused(500, "Feature service URL is not configured")
    url = f"{address.rstrip('/')}/features/user/{user}"
    try:
        async with asyncio.timeout(FEATURE_SECONDS), client(FEATURE_SECONDS) as http:
            answer = await http.get(url, headers={"Accept": "application/json"})
            found = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError):
        return _refused(500, f"Failed to fetch features for user {user}.")
    if not isinstance(found, dict):
        status = answer.status_code if answer.status_code >= 400 else 500
        return _refused(status, f"Failed to fetch features for user {user}.")
    return JSONResponse(found)


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
        # A connection may be asked of Airflow's database, or of a vault: the others are answered meanwhile.
        token = (await asyncio.to_thread(secrets, credential)).password if credential else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
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
