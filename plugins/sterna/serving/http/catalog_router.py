"""The Iceberg REST catalog in the gateway: `/v1/config`, and `/v1/…` with the region as prefix or without one.

With the prefix `main@<hash>` or `main@<time>` it is read as of a commit of `main`, and not written.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from sterna.catalog.model import Key
from sterna.errors import BadUpdate, Forbidden
from sterna.replication.replica.past_replica import PAST_PREFIX
from sterna.serving.http.catalog_access_routes import CatalogAccessRoutes
from sterna.serving.http.catalog_errors import NO_STORE
from sterna.serving.http.catalog_route import (
    NAMESPACE,
    NAMESPACES,
    TABLE,
    TABLES,
    VIEW,
    VIEWS,
    CatalogRoute,
    path_version,
)
from sterna.serving.http.catalog_write_routes import CatalogWriteRoutes
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import RequestError
from sterna.serving.http.responses import parse_etags
from sterna.serving.rest_catalog.byte_cache import ServedBody
from sterna.serving.rest_catalog.model import SnapshotMode
from sterna.serving.rest_catalog.names import parse_identifier, parse_namespace_segment, parse_parents
from sterna.serving.rest_catalog.pages import PageRequest, parse_page
from sterna.serving.rest_catalog.reader import Readable, ReplicaCatalog, with_access
from sterna.serving.rest_catalog.replays import KEY_LIFETIME_ISO
from sterna.serving.rest_catalog.write_service import CatalogWriteService

_METRICS = f"{TABLE}/metrics"
_PAST = f"/{PAST_PREFIX}{{version}}"
_MAX_REPORT_BYTES = 1024 * 1024  # of metrics, which are read and thrown away
T = TypeVar("T")


class CatalogRouter:
    """The routes of one region's catalog.

    Args:
        gateway: what all routers share.
        region: the region's name, which is the prefix of its paths.
        catalog: what is read.
        writes: what is written; None: nothing is.
        access: to the region's stores, for clients without keys; None: there is none.
    """

    def __init__(
        self,
        gateway: Gateway,
        region: str,
        catalog: ReplicaCatalog,
        writes: CatalogWriteService | None = None,
        access: CatalogAccessRoutes | None = None,
    ) -> None:
        self._gateway = gateway
        self._region = region
        self._catalog = catalog
        self.router = APIRouter(tags=["catalog"], route_class=CatalogRoute)
        self.endpoints: list[str] = []
        """What is there, as the specification names it; `/v1/config` itself is not listed."""
        self._past_endpoints: list[str] = []
        self.router.get("/v1/config", include_in_schema=False)(self.config)
        self._add("GET", NAMESPACES, self.list_namespaces)
        self._add("GET", NAMESPACE, self.load_namespace)
        self._add("HEAD", NAMESPACE, self.namespace_exists)
        self._add("GET", TABLES, self.list_tables)
        self._add("GET", TABLE, self.load_table)
        self._add("HEAD", TABLE, self.table_exists)
        self._add("GET", VIEWS, self.list_views)
        self._add("GET", VIEW, self.load_view)
        self._add("HEAD", VIEW, self.view_exists)
        self._add("POST", _METRICS, self.report_metrics)
        self._writes = writes is not None
        self._access = access or CatalogAccessRoutes(gateway)
        if writes is not None:
            CatalogWriteRoutes(gateway, writes, self._access.result).add_to(self._add_write)
        self._access.add_to(self._add)

    def _add(self, method: str, path: str, endpoint: Callable[..., Any]) -> None:
        """Serve a route that reads, with the region or a version of `main` as prefix or without one, and list it."""
        self._serve(method, path, endpoint, ("", f"/{self._region}", _PAST))
        self.endpoints.append(f"{method} {path}")
        self._past_endpoints.append(f"{method} {path}")

    def _add_write(self, method: str, path: str, endpoint: Callable[..., Any]) -> None:
        """Serve a route that writes, with the region as prefix or without one, and list it."""
        self._serve(method, path, endpoint, ("", f"/{self._region}"))
        self._serve(method, path, self.refuse_write, (_PAST,))
        self.endpoints.append(f"{method} {path}")

    def _serve(self, method: str, path: str, endpoint: Callable[..., Any], prefixes: Sequence[str]) -> None:
        for prefix in prefixes:
            own_path = path.replace("/{prefix}", prefix)
            self.router.add_api_route(own_path, endpoint, methods=[method], include_in_schema=False)

    async def config(self, request: Request) -> Response:
        """Return what clients are configured with, and which routes there are."""
        await self._gateway.require_reader(request)
        warehouse = request.query_params.get("warehouse", "")
        if warehouse.startswith(PAST_PREFIX):
            version = warehouse.removeprefix(PAST_PREFIX)
            # The commit itself, so that all that a client reads is of one, however long it goes on.
            main_hash = await run_in_threadpool(self._catalog.past_versions.main_hash, version)
            return _json(self._catalog.config(self._past_endpoints, f"{PAST_PREFIX}{main_hash}"))
        body = self._catalog.config(self.endpoints)
        if self._writes:
            body["idempotency-key-lifetime"] = KEY_LIFETIME_ISO
        return _json(body)

    async def refuse_write(self, request: Request) -> Response:
        """Refuse a change of what the lakehouse was.

        Raises:
            Forbidden: always.
        """
        await self._gateway.require_reader(request)
        raise Forbidden("what was at a commit or time is read alone: write without its prefix")

    async def list_namespaces(self, request: Request) -> Response:
        """Return the namespaces directly in another one, or at the top."""

        def read(catalog: ReplicaCatalog, readable: Readable) -> dict[str, Any]:
            parents = parse_parents(request.query_params.get("parent", ""))
            return catalog.list_namespaces(readable, parents, _page(request))

        return _json(await self._read(request, read))

    async def load_namespace(self, request: Request) -> Response:
        """Return a namespace and its properties."""
        return _json(
            await self._read(request, lambda catalog, readable: catalog.load_namespace(readable, _namespace(request)))
        )

    async def namespace_exists(self, request: Request) -> Response:
        """Return whether there is a namespace."""
        await self.load_namespace(request)
        return Response(status_code=204)

    async def list_tables(self, request: Request) -> Response:
        """Return the tables in a namespace."""

        def read(catalog: ReplicaCatalog, readable: Readable) -> dict[str, Any]:
            return catalog.list_tables(readable, _namespace(request), _page(request))

        return _json(await self._read(request, read))

    async def list_views(self, request: Request) -> Response:
        """Return the views in a namespace."""

        def read(catalog: ReplicaCatalog, readable: Readable) -> dict[str, Any]:
            return catalog.list_views(readable, _namespace(request), _page(request))

        return _json(await self._read(request, read))

    async def load_table(self, request: Request) -> Response:
        """Return a table, or 304 where the client has it already."""
        readable, key, mode = await self._readable(request), _table(request), _snapshot_mode(request)
        config = self._access.config(request, key)
        body = await self._read_as(
            readable, request, lambda catalog, readable: catalog.load_table(readable, key, mode, config)
        )
        if keys := await self._access.vended(request, readable, key):
            return Response(with_access(body, keys), media_type="application/json", headers=NO_STORE)
        return _loaded(request, body)

    async def table_exists(self, request: Request) -> Response:
        """Return whether there is a table."""
        await self._read(request, lambda catalog, readable: catalog.require_table(readable, _table(request)))
        return Response(status_code=204)

    async def load_view(self, request: Request) -> Response:
        """Return a view."""
        body = await self._read(request, lambda catalog, readable: catalog.load_view(readable, _view(request)))
        return _loaded(request, body)

    async def view_exists(self, request: Request) -> Response:
        """Return whether there is a view."""
        await self._read(request, lambda catalog, readable: catalog.require_view(readable, _view(request)))
        return Response(status_code=204)

    async def report_metrics(self, request: Request) -> Response:
        """Take a report of a scan or commit, and keep nothing of it."""
        await self._gateway.require_reader(request)
        await self._discard_body(request)
        await self._read(request, lambda catalog, readable: catalog.require_table(readable, _table(request)))
        return Response(status_code=204)

    async def _read(self, request: Request, read: Callable[[ReplicaCatalog, Readable], T]) -> T:
        """Return what a client of a request reads, of the version that its path names."""
        return await self._read_as(await self._readable(request), request, read)

    async def _readable(self, request: Request) -> Readable:
        reader = await self._gateway.require_reader(request)
        return Readable(self._gateway.audience, reader.roles)

    async def _read_as(self, readable: Readable, request: Request, read: Callable[[ReplicaCatalog, Readable], T]) -> T:
        version = path_version(request)

        def run() -> T:
            catalog = self._catalog if version is None else self._catalog.as_of(version)
            return read(catalog, readable)

        return await run_in_threadpool(run)

    async def _discard_body(self, request: Request) -> None:
        size, seconds = 0, self._gateway.options.body_timeout
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > _MAX_REPORT_BYTES:
                        message = f"the body has more than {_MAX_REPORT_BYTES:,} bytes"
                        raise RequestError(413, message, {"Connection": "close"})
        except TimeoutError:
            raise RequestError(408, f"the body was not here within {seconds:g} s", {"Connection": "close"}) from None


def _json(body: dict[str, Any]) -> Response:
    return JSONResponse(body, headers=NO_STORE)


def _loaded(request: Request, body: ServedBody) -> Response:
    # Caches may keep it, and have to ask each time whether it is still so.
    headers = {"ETag": body.etag, "Cache-Control": "private, no-cache"}
    if body.etag in parse_etags(request):
        return Response(status_code=304, headers=headers)
    return Response(body.content, media_type="application/json", headers=headers)


def _namespace(request: Request) -> Key:
    return parse_namespace_segment(request.path_params["namespace"])


def _table(request: Request) -> Key:
    return parse_identifier(request.path_params["namespace"], request.path_params["table"])


def _view(request: Request) -> Key:
    return parse_identifier(request.path_params["namespace"], request.path_params["view"])


def _page(request: Request) -> PageRequest | None:
    return parse_page(request.query_params.get("pageToken"), request.query_params.get("pageSize"))


def _snapshot_mode(request: Request) -> SnapshotMode:
    try:
        return SnapshotMode(request.query_params.get("snapshots", SnapshotMode.ALL.value))
    except ValueError:
        raise BadUpdate("snapshots is all or refs") from None
