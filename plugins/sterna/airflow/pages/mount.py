"""Registration of the pages with Airflow; imports nothing heavy, since every process of Airflow's loads plugins."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/sterna"
NAME = "sterna"


class LazyApp:
    """The app, built at its first request: only API servers get any."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._app
        if app is None:
            app = await asyncio.to_thread(self._load)
        await app(scope, receive, send)

    def _load(self) -> ASGIApp:
        with self._lock:
            if self._app is None:
                from sterna.airflow.pages.access import airflow_guards
                from sterna.airflow.pages.app import create_app
                from sterna.airflow.pages.source import airflow_source

                self._app = create_app(airflow_source(), airflow_guards())
            return self._app


def fastapi_apps() -> list[dict[str, Any]]:
    """Return the app as Airflow's plugins name theirs."""
    return [{"app": LazyApp(), "url_prefix": PREFIX, "name": NAME}]


def external_views() -> list[dict[str, Any]]:
    """Return the entry in Airflow's navigation."""
    return [{"name": NAME, "href": f"{PREFIX}/", "destination": "nav", "url_route": NAME}]
