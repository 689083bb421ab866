"""The REST catalog's routes for clients that have no keys for the region's stores.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sterna.catalog.model import Key
from sterna.serving.http.catalog_route import path_version
from sterna.serving.http.catalog_write_routes import WRITER_ROLES
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import unavailable
from sterna.serving.rest_catalog.names import parse_identifier
from sterna.serving.rest_catalog.reader import Readable
from sterna.serving.rest_catalog.signing import REMOTE_SIGNING, RequestSigner

_SIGN = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/sign"
_DELEGATION = "x-iceberg-access-delegation"
_CACHE_CONTROL = b"Cache-Control"  # in this case of letters alone Java's client keeps the signature, for 30 seconds
_REPEATABLE = ("GET", "HEAD")
_MAX_CONCURRENCY = 32  # requests that are signed at once: for some the store is asked
_MAX_WAITING = 1024  # requests whose bodies wait in memory for one of those to end
_RETRY_AFTER_SECONDS = 1


class CatalogAccessRoutes:
    """The routes of one region's catalog that give access to its stores.

    Args:
        gateway: what all routers share.
        signer: signs requests to the region's stores; None: none is signed.
    """

    def __init__(self, gateway: Gateway, signer: RequestSigner | None) -> None:
        self._gateway = gateway
        self._signer = signer
        self._limiter = CapacityLimiter(_MAX_CONCURRENCY)

    def add_to(self, add: Callable[[str, str, Callable[..., Any]], None]) -> None:
        """Add the routes to a router.

        Args:
            add: takes a route's method, its path as the specification has it, and what answers it.
        """
        if self._signer is not None:
            add("POST", _SIGN, self.sign_request)

    def config(self, request: Request, key: Key) -> Mapping[str, str]:
        """Return the properties that a client gets with a table, by the ways of access that it supports.

        Args:
            request: by which it loads or makes the table.
            key: the table's.
        """
        ways = {way.strip().lower() for way in request.headers.get(_DELEGATION, "").split(",")}
        if self._signer is None or REMOTE_SIGNING not in ways:
            return {}
        return self._signer.config(key, path_version(request))

    async def sign_request(self, request: Request) -> Response:
        """Return the headers by which a store takes a client's request."""
        assert self._signer is not None
        reader = await self._gateway.require_reader(request)
        if self._limiter.statistics().tasks_waiting >= _MAX_WAITING:
            raise unavailable("too many requests to sign wait", _RETRY_AFTER_SECONDS)
        key = parse_identifier(request.path_params["namespace"], request.path_params["table"])
        document = await self._gateway.bodies.read_object(request, reader.name)
        may_write = self._gateway.verify is None or bool(reader.roles & WRITER_ROLES)
        readable = Readable(self._gateway.audience, reader.roles)
        arguments = readable, key, may_write, document, path_version(request)
        signed = await to_thread.run_sync(self._signer.sign, *arguments, limiter=self._limiter)
        response = JSONResponse(signed)
        may_keep = document.get("method") in _REPEATABLE
        response.raw_headers.append((_CACHE_CONTROL, b"private" if may_keep else b"no-cache"))
        return response
