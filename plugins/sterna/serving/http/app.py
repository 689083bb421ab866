"""The app: a router for each service, shared middleware, `/health` and `/metrics`."""

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

from sterna.serving.http.catalog_access_routes import CatalogAccessRoutes
from sterna.serving.http.catalog_errors import error_response, is_catalog_path
from sterna.serving.http.catalog_router import CatalogRouter
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import RequestError
from sterna.serving.http.events_router import EventsRouter
from sterna.serving.http.features_responses import FEATURE_HEADERS
from sterna.serving.http.features_router import FeaturesRouter
from sterna.serving.http.ingest_router import IngestRouter
from sterna.serving.http.logs import FIELDS
from sterna.serving.http.metrics import metrics_text
from sterna.serving.http.queries_router import QueriesRouter
from sterna.serving.http.services import GatewayServices
from sterna.tracing.span import Span, open_span, own_attributes

log = logging.getLogger(__name__)
_MAX_HEADER_BYTES = 16 * 1024


def create_app(gateway: Gateway, services: GatewayServices) -> FastAPI:
    """Return the app of a gateway.

    Args:
        gateway: what all routers share.
        services: what is served. It runs as long as the app does.
    """
    # The page at /docs loads its scripts from here: a region that is cut off has it, too.
    app = FastAPIOffline(
        title="sterna",
        description="A region's gateway.",
        redoc_url=None,
        lifespan=_lifespan(services),
    )
    if services.poller is not None:
        app.include_router(EventsRouter(gateway, services.poller).router)
    if services.queries is not None:
        app.include_router(QueriesRouter(gateway, services.queries).router)
    if services.ingest is not None:
        app.include_router(IngestRouter(gateway, services.ingest).router)
    if services.features is not None:
        app.include_router(FeaturesRouter(gateway, services.features).router)
    if services.catalog is not None:
        app.include_router(
            CatalogRouter(
                gateway,
                gateway.audience.region,
                services.catalog,
                services.catalog_writes,
                CatalogAccessRoutes(gateway, services.catalog_signer, services.catalog_vendor),
            ).router
        )
    _add_operation_routes(app, gateway, services)
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    if gateway.options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=gateway.options.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Cache-Control", "If-None-Match", "Last-Event-ID", "X-Requested-With"),
            expose_headers=("ETag", "Retry-After", "X-Request-Id", *FEATURE_HEADERS),
        )
    app.add_middleware(RequestMiddleware, gateway=gateway)
    return app


def _add_operation_routes(app: FastAPI, gateway: Gateway, services: GatewayServices) -> None:
    poller, queries = services.poller, services.queries

    @app.get("/health", tags=["operation"], responses={503: {"description": "It is starting, or ending."}})
    async def health() -> Response:
        """Return whether requests can be answered: 503 until all services have become ready once, and at shutdown."""
        if (poller is not None and poller.stopping) or (queries is not None and queries.closing):
            return JSONResponse({"status": "ending"}, 503)
        if (poller is not None and poller.buffer is None) or (queries is not None and not queries.ready):
            return JSONResponse({"status": "starting"}, 503)
        problems = {"catalog": poller.problem if poller is not None else ""}
        if services.ingest is not None:
            problems["ingest"] = services.ingest.problem
        return JSONResponse(
            {"status": "ok", **{name: "dark" if problem else "ok" for name, problem in problems.items()}}
        )

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return numbers as Prometheus reads them."""
        return Response(metrics_text(gateway.metrics, services), media_type="text/plain; version=0.0.4")


class RequestMiddleware:
    """What happens around each request: a number, a span and a line in the log, and no way out for what is internal."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id, started = secrets.token_hex(8), time.monotonic()
        scope.setdefault("state", {})["request_id"] = request_id
        attributes = own_attributes(region=self._gateway.audience.region, request_id=request_id)
        with open_span("request", attributes, scope["headers"]) as span:
            status = await self._answer(scope, receive, send, request_id)
            # The route's own path and never the client's: that one may be anything, and endless in number.
            route = getattr(scope.get("route"), "path", None) or "other"
            _describe_request(span, scope.get("method", "GET"), route, status)
        self._log_request(scope, request_id, route, status, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> int:
        """Answer one request, and return the status; 0 where nothing was sent."""
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "websocket.accept":
                status = 101
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope.get("query_string", b""))
        try:
            if size > _MAX_HEADER_BYTES:
                refused = RequestError(431, "the headers are too large")
                await _error_response(scope, refused)(scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("a request failed", extra={FIELDS: {"request_id": request_id}})
            if not status:
                failed = RequestError(500, "Error processing request")
                await _error_response(scope, failed)(scope, receive, send_with_id)
        return status

    def _log_request(self, scope: Scope, request_id: str, route: str, status: int, seconds: float) -> None:
        self._gateway.metrics.requests[(route, status)] += 1
        fields = {"request_id": request_id, "path": route, "status": status, "seconds": round(seconds, 3)}
        client = (scope.get("client") or ("",))[0]
        log.info("request", extra={FIELDS: {**fields, "method": scope.get("method", "WS"), "client": client}})


def _describe_request(span: Span, method: str, route: str, status: int) -> None:
    span.rename(f"{method} {route}")
    span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.fail(str(status))


def _lifespan(services: GatewayServices) -> Any:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        poller, queries = services.poller, services.queries
        started = (services.sinks, services.ingest, services.status, services.traces)
        threads = [service for service in started if service is not None]
        coroutines = [poller.run()] if poller is not None else []
        coroutines += [queries.warm()] if queries is not None else []
        tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        for service in threads:
            service.start()
        yield
        for service in threads:
            await asyncio.to_thread(service.stop)
        if poller is not None:
            poller.stop()
        if queries is not None:
            queries.close()
        if services.features is not None:
            await services.features.close()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    return run


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error_response(request.scope, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "there is nothing at this path", 405: "this path takes another method"}
    message = messages.get(error.status_code, "the request can't be answered")
    return _error_response(request.scope, RequestError(error.status_code, message))


async def _validation_error(request: Request, error: Exception) -> Response:
    return _error_response(request.scope, RequestError(400, "the request can't be understood"))


def _error_response(scope: Scope, error: RequestError) -> Response:
    if is_catalog_path(scope["path"]):
        return error_response(error)
    return error.response(scope["state"]["request_id"])
