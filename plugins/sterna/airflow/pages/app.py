"""The pages' app: its routes, each behind Airflow's access view, and the headers of all answers."""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from sterna.airflow.pages import events, ingest, one_table, regions, tables, upstream
from sterna.airflow.pages.access import Guards, refuse_other_sites
from sterna.airflow.pages.shared import LookFailed, Looks
from sterna.airflow.pages.source import FeatureView, Source, feature_views

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_IMPORTED = (
    *("sterna.replica.lag", "sterna.status.gather", "sterna.status.alarms", "sterna.status.lag_day"),
    *("sterna.edges.postgres.epoch", "sterna.edges.stores.objects", "sterna.edges.services_file"),
)
_KINDS = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; frame-ancestors 'self'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]
_FRESH = {"Cache-Control": "no-store"}
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Replay(BaseModel):
    """What a person confirmed.

    Args:
        confirmed: how many dead letters were shown.
    """

    confirmed: int = Field(ge=0)


def create_app(source: Source, guards: Guards, client: upstream.Client = upstream.default_client) -> Any:
    """Return the app, to be mounted.

    Args:
        source: where its facts are from.
        guards: who may see it, and change something.
        client: makes clients for other services.
    """
    # Documentation of the routes would be routes of its own, which nobody guards.
    app = FastAPI(dependencies=[Depends(guards.view)], docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(LookFailed, _failed)
    # While the browser loads scripts: the first card would wait for these.
    threading.Thread(target=_import_views, name="sterna-pages-imports", daemon=True).start()
    looks = Looks()
    _add_files(app)
    _add_views(app, source, looks)
    _add_events(app, source, looks, guards)
    _add_upstreams(app, source, looks, client)
    return WithHeaders(app)


class WithHeaders:
    """Adds to each answer what browsers are to be strict about.

    Args:
        app: answers.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        await self.app(scope, receive, sent)


def _import_views() -> None:
    for name in _IMPORTED:
        import_module(name)


def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, LookFailed)
    return JSONResponse({"error": error.what}, error.status, _FRESH)


def _add_files(app: FastAPI) -> None:
    folder = files("sterna.airflow.pages") / "static"
    known = {each.name: each for each in folder.iterdir() if each.name.rpartition(".")[2] in _KINDS}

    def answer(name: str) -> Response:
        if name not in known:
            raise HTTPException(404, "Not Found")
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(known[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/")
    def page() -> Response:
        return answer("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return answer(name)


def _add_views(app: FastAPI, source: Source, looks: Looks) -> None:
    @app.get("/api/regions")
    async def names() -> Response:
        return _fresh(await looks.look("regions", lambda: regions.region_names(source)))

    @app.get("/api/regions/{name}")
    async def card(name: str) -> Response:
        return _fresh(await looks.look(("region", name), lambda: regions.region_card(source, name)))

    @app.get("/api/tables/{region}")
    async def table_page(
        region: str,
        search: Annotated[str, Query(max_length=200)] = "",
        sort: Annotated[str, Query(pattern=f"^-?({'|'.join(tables.SORTS)})$")] = "state",
        page: Annotated[int, Query(ge=0, le=100_000)] = 0,
        size: Annotated[int, Query(ge=1, le=tables.MOST)] = 50,
    ) -> Response:
        asked = (region, search, sort, page, size)
        return _fresh(await looks.look(("tables", *asked), lambda: tables.table_page(source, *asked)))

    @app.get("/api/tables/{region}/one")
    async def one(region: str, key: Annotated[str, Query(min_length=1, max_length=2000)]) -> Response:
        asked = (region, key)
        return _fresh(await looks.look(("one", *asked), lambda: one_table.one_table(source, *asked)))

    @app.get("/api/plan")
    async def plan() -> Response:
        return _fresh(await looks.look("plan", lambda: tables.next_sync(source)))

    @app.get("/api/ingest")
    async def ingest_view(
        state: Annotated[str, Query(max_length=20)] = "", tenant: Annotated[str, Query(max_length=100)] = ""
    ) -> Response:
        return _fresh(await looks.look(("ingest", state, tenant), lambda: ingest.ingest_view(source, state, tenant)))

    @app.get("/api/ingest/find")
    async def find(id: Annotated[str, Query(min_length=1, max_length=300)]) -> Response:
        return _fresh(await looks.look(("find", id), lambda: ingest.find_upload(source, id)))


def _add_events(app: FastAPI, source: Source, looks: Looks, guards: Guards) -> None:
    @app.get("/api/events")
    async def stream(last_event_id: Annotated[str, Header(max_length=200)] = "") -> Response:
        told = events.event_stream(source, looks, last_event_id)
        return StreamingResponse(told, media_type="text/event-stream", headers=_STREAM)

    @app.get("/api/outlets")
    async def outlets() -> Response:
        return _fresh(await looks.look("outlets", lambda: events.outlets_view(source)))

    @app.get("/api/outlets/{name}/dead")
    async def dead(name: str) -> Response:
        return _fresh(await looks.look(("dead", name), lambda: events.dead_view(source, name)))

    @app.post("/api/outlets/{name}/replay", dependencies=[Depends(guards.change), Depends(refuse_other_sites)])
    async def replay(name: str, said: Replay) -> Response:
        return _fresh(await looks.once(lambda: events.replay_letters(source, name, said.confirmed)))


def _add_upstreams(app: FastAPI, source: Source, looks: Looks, client: upstream.Client) -> None:
    def service() -> upstream.FeatureService:
        address, credential = source.setting("feature_service_url"), source.setting("feature_service_credential_id")
        return upstream.FeatureService(address, credential, source.secrets, client)

    async def known() -> list[FeatureView]:
        found: list[FeatureView] = await looks.look("views", lambda: feature_views(source))
        return found

    @app.get("/api/views")
    async def views() -> Response:
        return _fresh([{"name": view.name, "key": view.key} for view in await known()])

    @app.get("/api/features/{user}")
    async def features(user: str) -> Response:
        return await upstream.user_features(user, service())

    @app.get("/api/features")
    async def features_of(view: str, id: Annotated[list[str], Query()]) -> Response:
        named = next((each for each in await known() if each.name == view), None)
        return await upstream.view_features(named, id, service())

    @app.get("/api/kpi")
    async def figure(at: Annotated[str, Query(min_length=1, max_length=200)]) -> Response:
        address, credential = source.setting("gateway_url"), source.setting("gateway_credential_id")
        return await upstream.figure(at, address, credential, source.secrets, client)


def _fresh(found: Any) -> Response:
    return JSONResponse(found, headers=_FRESH)
