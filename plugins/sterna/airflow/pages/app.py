"""The pages' app: its routes, each behind Airflow's access view, and the headers of all answers."""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from sterna.airflow.pages import events, ingest, regions, tables, upstream
from sterna.airflow.pages.access import Guards, require_same_origin
from sterna.airflow.pages.shared import ReadFailed, SingleFlightReads
from sterna.airflow.pages.source import FeatureView, Source, configured_parts, feature_views

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_PRELOADED_MODULES = (
    *(
        "sterna.replication.replica.lag",
        "sterna.operations.status.read",
        "sterna.operations.alarms",
    ),
    *("sterna.postgres.term", "sterna.storage.objects", "sterna.config.services_file"),
)
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "md": "text/plain; charset=utf-8",
}
_SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; frame-ancestors 'self'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]
_NO_STORE_HEADERS = {"Cache-Control": "no-store"}
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ReplayRequest(BaseModel):
    """What a person confirmed.

    Args:
        confirmed: how many dead letters were shown.
    """

    confirmed: int = Field(ge=0)


def create_app(source: Source, guards: Guards, client: upstream.ClientFactory = upstream.default_client) -> Any:
    """Return the app, to be mounted.

    Args:
        source: where its facts are from.
        guards: who may see the pages, and who may make changes.
        client: makes clients for other services.
    """
    # Documentation of the routes would be routes of its own, without a guard.
    app = FastAPI(dependencies=[Depends(guards.view)], docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(ReadFailed, _read_failed_response)
    # While the browser loads scripts: the first card would wait for these.
    threading.Thread(target=_preload_modules, name="sterna-pages-imports", daemon=True).start()
    reads = SingleFlightReads()
    _add_static_routes(app)
    _add_views(app, source, reads)
    _add_events(app, source, reads, guards)
    _add_upstreams(app, source, reads, client)
    return SecurityHeadersMiddleware(app)


class SecurityHeadersMiddleware:
    """Adds to each answer what browsers are to be strict about."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_SECURITY_HEADERS]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _preload_modules() -> None:
    for name in _PRELOADED_MODULES:
        import_module(name)


def _read_failed_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, ReadFailed)
    return JSONResponse({"error": error.message}, error.status, _NO_STORE_HEADERS)


def _add_static_routes(app: FastAPI) -> None:
    folder = files("sterna.airflow.pages") / "static"
    # The run book is a link to a page of the documentation, which not every installation has.
    present = (file for file in folder.iterdir() if file.is_file())
    files_by_name = {file.name: file for file in present if file.name.rpartition(".")[2] in _MEDIA_TYPES}

    def file_response(name: str) -> Response:
        if name not in files_by_name:
            raise HTTPException(404, "Not Found")
        media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(files_by_name[name].read_bytes(), media_type=media_type, headers={"Cache-Control": "no-cache"})

    @app.get("/")
    def page() -> Response:
        return file_response("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return file_response(name)


def _add_views(app: FastAPI, source: Source, reads: SingleFlightReads) -> None:
    @app.get("/api/configured")
    async def configured() -> Response:
        return _json_response(await reads.read("configured", lambda: configured_parts(source)))

    @app.get("/api/regions")
    async def names() -> Response:
        return _json_response(await reads.read("regions", lambda: regions.region_names(source)))

    @app.get("/api/regions/{name}")
    async def card(name: str) -> Response:
        return _json_response(await reads.read(("region", name), lambda: regions.region_card(source, name)))

    @app.get("/api/tables/{region}")
    async def table_page(
        region: str,
        search: Annotated[str, Query(max_length=200)] = "",
        sort: Annotated[str, Query(pattern=f"^-?({'|'.join(tables.SORTS)})$")] = "state",
        page: Annotated[int, Query(ge=0, le=100_000)] = 0,
        size: Annotated[int, Query(ge=1, le=tables.MAX_PAGE_SIZE)] = 50,
    ) -> Response:
        query = (region, search, sort, page, size)
        return _json_response(await reads.read(("tables", *query), lambda: tables.table_page(source, *query)))

    @app.get("/api/tables/{region}/one")
    async def one(region: str, key: Annotated[str, Query(min_length=1, max_length=2000)]) -> Response:
        query = (region, key)
        return _json_response(await reads.read(("one", *query), lambda: tables.table_details(source, *query)))

    @app.get("/api/plan")
    async def plan() -> Response:
        return _json_response(await reads.read("plan", lambda: tables.next_sync(source)))

    @app.get("/api/ingest")
    async def ingest_view(
        state: Annotated[str, Query(max_length=20)] = "", tenant: Annotated[str, Query(max_length=100)] = ""
    ) -> Response:
        return _json_response(
            await reads.read(("ingest", state, tenant), lambda: ingest.ingest_view(source, state, tenant))
        )

    @app.get("/api/ingest/find")
    async def find(id: Annotated[str, Query(min_length=1, max_length=300)]) -> Response:
        return _json_response(await reads.read(("find", id), lambda: ingest.find_upload(source, id)))


def _add_events(app: FastAPI, source: Source, reads: SingleFlightReads, guards: Guards) -> None:
    @app.get("/api/events")
    async def stream(last_event_id: Annotated[str, Header(max_length=200)] = "") -> Response:
        frames = events.event_stream(source, reads, last_event_id)
        return StreamingResponse(frames, media_type="text/event-stream", headers=_STREAM_HEADERS)

    @app.get("/api/outlets")
    async def sinks() -> Response:
        return _json_response(await reads.read("outlets", lambda: events.sinks_view(source)))

    @app.get("/api/outlets/{name}/dead")
    async def dead(name: str) -> Response:
        return _json_response(await reads.read(("dead", name), lambda: events.dead_letters_view(source, name)))

    @app.post("/api/outlets/{name}/replay", dependencies=[Depends(guards.change), Depends(require_same_origin)])
    async def replay(name: str, request: ReplayRequest) -> Response:
        return _json_response(await reads.run(lambda: events.replay_dead_letters(source, name, request.confirmed)))


def _add_upstreams(app: FastAPI, source: Source, reads: SingleFlightReads, client: upstream.ClientFactory) -> None:
    def service() -> upstream.FeatureService:
        address, credential = source.setting("feature_service_url"), source.setting("feature_service_credential_id")
        return upstream.FeatureService(address, credential, source.secrets, client)

    async def configured_views() -> list[FeatureView]:
        feature_views_list: list[FeatureView] = await reads.read("views", lambda: feature_views(source))
        return feature_views_list

    @app.get("/api/views")
    async def views() -> Response:
        configured = await configured_views()
        return _json_response([{"name": view.name, "key": view.key, "of_users": view.of_users} for view in configured])

    @app.get("/api/features/{user}")
    async def features(user: str) -> Response:
        return await upstream.user_features(user, service())

    @app.get("/api/features")
    async def features_of(view: str, id: Annotated[list[str], Query()]) -> Response:
        feature_view = next((candidate for candidate in await configured_views() if candidate.name == view), None)
        return await upstream.view_features(feature_view, id, service())

    @app.get("/api/kpi")
    async def figure(at: Annotated[str, Query(min_length=1, max_length=200)]) -> Response:
        address, credential = source.setting("gateway_url"), source.setting("gateway_credential_id")
        return await upstream.kpi_at(at, address, credential, source.secrets, client)


def _json_response(content: Any) -> Response:
    return JSONResponse(content, headers=_NO_STORE_HEADERS)
