"""The app: a router a room, what all of them need around them, `/health` and `/metrics`."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sterna.gateway.events_router import EventsRoom
from sterna.gateway.features_router import FEATURE_HEADERS, FeaturesRouter
from sterna.gateway.gateway import Gateway
from sterna.gateway.ingest_router import IngestRouter
from sterna.gateway.logs import FIELDS
from sterna.gateway.metrics import metrics_text
from sterna.gateway.queries_router import QueriesRoom
from sterna.gateway.replies import RefusedRequest
from sterna.gateway.rooms import Rooms

log = logging.getLogger(__name__)
_MOST_HEADERS = 16 * 1024


def create_app(gateway: Gateway, rooms: Rooms) -> FastAPI:
    """Return the app of a gateway.

    Args:
        gateway: what all rooms share.
        rooms: what is served. It runs as long as the app does.
    """
    # The page at /docs loads its scripts from here: a region that is cut off has it, too.
    app = FastAPIOffline(
        title="sterna",
        description="A region's gateway.",
        redoc_url=None,
        lifespan=_lifespan(rooms),
    )
    if rooms.tail is not None:
        app.include_router(EventsRoom(gateway, rooms.tail).router)
    if rooms.queries is not None:
        app.include_router(QueriesRoom(gateway, rooms.queries).router)
    if rooms.ingest is not None:
        app.include_router(IngestRouter(gateway, rooms.ingest).router)
    if rooms.features is not None:
        app.include_router(FeaturesRouter(gateway, rooms.features).router)
    _add_operation(app, gateway, rooms)
    app.add_exception_handler(RefusedRequest, _refused)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(RequestValidationError, _not_understood)
    if gateway.options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=gateway.options.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Cache-Control", "If-None-Match", "Last-Event-ID", "X-Requested-With"),
            expose_headers=("ETag", "Retry-After", "X-Request-Id", *FEATURE_HEADERS),
        )
    app.add_middleware(Around, gateway=gateway)
    return app


def _add_operation(app: FastAPI, gateway: Gateway, rooms: Rooms) -> None:
    tail, queries = rooms.tail, rooms.queries

    @app.get("/health", tags=["operation"])
    async def health() -> Response:
        """Say whether requests can be answered: 503 until all rooms are ready for the first time, and at the end."""
        if (tail is not None and tail.stopping) or (queries is not None and queries.ending):
            return JSONResponse({"status": "ending"}, 503)
        if (tail is not None and tail.ring is None) or (queries is not None and not queries.ready):
            return JSONResponse({"status": "starting"}, 503)
        problems = {"catalog": tail.problem if tail is not None else ""}
        if rooms.ingest is not None:
            problems["ingest"] = rooms.ingest.problem
        return JSONResponse({"status": "ok", **{name: "dark" if each else "ok" for name, each in problems.items()}})

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return numbers as Prometheus reads them."""
        return Response(metrics_text(gateway.metrics, rooms), media_type="text/plain; version=0.0.4")


class Around:
    """What happens around each request: a number for it, a line in the log, and no way out for what is internal."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id, status, started = secrets.token_hex(8), 0, time.monotonic()
        scope.setdefault("state", {})["request_id"] = request_id

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "websocket.accept":
                status = 101
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope.get("query_string", b""))
        try:
            if size > _MOST_HEADERS:
                await RefusedRequest(431, "the headers are too large").reply(request_id)(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except Exception:
            log.exception("a request failed", extra={FIELDS: {"request_id": request_id}})
            if not status:
                await _failed(request_id)(scope, receive, sending)
        self._say(scope, request_id, status, time.monotonic() - started)

    def _say(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # The route's own path and never the client's: that one may be anything, and endless in number.
        route = getattr(scope.get("route"), "path", None) or "other"
        self._gateway.metrics.requests[(route, status)] += 1
        fields = {"request_id": request_id, "path": route, "status": status, "seconds": round(seconds, 3)}
        client = (scope.get("client") or ("",))[0]
        log.info("request", extra={FIELDS: {**fields, "method": scope.get("method", "WS"), "client": client}})


def _lifespan(rooms: Rooms) -> Any:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        tail, queries = rooms.tail, rooms.queries
        threads = [room for room in (rooms.outlets, rooms.ingest) if room is not None]
        works = [tail.run()] if tail is not None else []
        works += [queries.warm()] if queries is not None else []
        tasks = [asyncio.create_task(work) for work in works]
        for room in threads:
            room.start()
        yield
        for room in threads:
            await asyncio.to_thread(room.stop)
        if tail is not None:
            tail.stop()
        if queries is not None:
            queries.close()
        if rooms.features is not None:
            await rooms.features.close()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    return run


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedRequest)
    return error.reply(request.scope["state"]["request_id"])


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "there is nothing at this path", 405: "this path takes another method"}
    refused = RefusedRequest(error.status_code, said.get(error.status_code, "the request can't be answered"))
    return refused.reply(request.scope["state"]["request_id"])


async def _not_understood(request: Request, error: Exception) -> Response:
    return RefusedRequest(400, "the request can't be understood").reply(request.scope["state"]["request_id"])


def _failed(request_id: str) -> Response:
    return RefusedRequest(500, "Error processing request").reply(request_id)
