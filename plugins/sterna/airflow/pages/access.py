"""Authorization of the pages: Airflow mounts plugins' apps without checks of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request


@dataclass(frozen=True)
class Guards:
    """Dependencies of the routes.

    Args:
        view: rejects users that may not see plugins' pages; on every route.
        change: rejects users that may not replay dead letters.
    """

    view: Callable[..., Any]
    change: Callable[..., Any]


def airflow_guards() -> Guards:
    """Return the guards that check with Airflow's auth manager.

    Changes need the permission to edit connections, which already determines what is sent, and by which login.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import get_user, requires_access_view
    from fastapi import Depends

    def change(user: Any = Depends(get_user)) -> None:  # noqa: B008 - how FastAPI takes dependencies
        if not get_auth_manager().is_authorized_connection(method="PUT", user=user):
            raise HTTPException(403, "needs the right to edit connections")

    return Guards(requires_access_view(AccessView.PLUGINS), change)


def require_same_origin(request: Request) -> None:
    """Refuse a request that another site's page may have made the browser send, with the user's cookie.

    Raises:
        HTTPException: 403; it has no bearer token, and its origin isn't this one.
    """
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # no browser adds that by itself
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if not origin or urlsplit(origin).netloc != host or site != "same-origin":
        raise HTTPException(403, "the request comes from another site")
