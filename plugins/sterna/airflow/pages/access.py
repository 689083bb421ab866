"""Who may see the pages, and who may change something there: Airflow mounts plugins' apps without asking anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request


@dataclass(frozen=True)
class Guards:
    """What routes depend on.

    Args:
        view: refuses who may not see plugins' pages; of every route.
        change: refuses who may not send dead letters again.
    """

    view: Callable[..., Any]
    change: Callable[..., Any]


def airflow_guards() -> Guards:
    """Return the guards that check with Airflow's auth manager.

    To change something needs the right to edit connections: who has it decides anyhow what is sent, and as whom.
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
