"""The REST catalog's routes for clients that have no keys for the region's stores.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sterna.catalog.model import Key
from sterna.errors import SternaError
from sterna.serving.http.catalog_errors import NO_STORE
from sterna.serving.http.catalog_route import TABLE, path_version
from sterna.serving.http.catalog_write_routes import WRITER_ROLES
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import unavailable
from sterna.serving.rest_catalog.model import LoadedTable
from sterna.serving.rest_catalog.names import parse_identifier
from sterna.serving.rest_catalog.reader import Readable
from sterna.serving.rest_catalog.signing import REMOTE_SIGNING, RequestSigner
from sterna.serving.rest_catalog.vended_keys import VENDED_CREDENTIALS, KeyVendor

log = logging.getLogger(__name__)
_SIGN, _CREDENTIALS = f"{TABLE}/sign", f"{TABLE}/credentials"
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
        vendor: vends keys for them; None: there are none.
    """

    def __init__(self, gateway: Gateway, signer: RequestSigner | None = None, vendor: KeyVendor | None = None) -> None:
        self._gateway = gateway
        self._signer = signer
        self._vendor = vendor
        self._limiter = CapacityLimiter(_MAX_CONCURRENCY)

    def add_to(self, add: Callable[[str, str, Callable[..., Any]], None]) -> None:
        """Add the routes to a router.

        Args:
            add: takes a route's method, its path as the specification has it, and what answers it.
        """
        if self._signer is not None:
            add("POST", _SIGN, self.sign_request)
        if self._vendor is not None:
            add("GET", _CREDENTIALS, self.load_credentials)

    def config(self, request: Request, key: Key) -> Mapping[str, str]:
        """Return the properties that a client gets with a table for requests that are signed; none where it has keys.

        Args:
            request: by which it loads or makes the table.
            key: the table's.
        """
        if self._signer is None or self._is_vended(request) or REMOTE_SIGNING not in _ways(request):
            return {}
        return self._signer.config(key, path_version(request))

    async def vended(
        self, request: Request, readable: Readable, key: Key, loaded: LoadedTable | None = None
    ) -> dict[str, Any]:
        """Return what a client gets with a table where keys are vended, {} where they aren't.

        Args:
            request: by which it loads or makes the table.
            readable: what the client may see.
            key: the table's.
            loaded: a table that was made just now, or is staged.
        """
        if self._vendor is None or not self._is_vended(request):
            return {}
        arguments = readable, key, self._may_write(readable.roles), loaded, path_version(request)
        return await to_thread.run_sync(self._vendor.result, *arguments, limiter=self._limiter)

    async def result(self, request: Request, roles: Collection[str], key: Key, loaded: LoadedTable) -> dict[str, Any]:
        """Return the LoadTableResult of a table that a client made or staged.

        Args:
            request: by which it did.
            roles: the client's.
            key: the table's.
            loaded: as it is here now.
        """
        readable = Readable(self._gateway.audience, roles)
        body = replace(loaded, config=self.config(request, key)).body()
        try:
            return body | await self.vended(request, readable, key, loaded)
        except SternaError as error:
            # The table is made: a failure would let the client delete what it wrote.
            log.warning("a table was made, and no keys were vended for it: %s", error)
            return body

    def _is_vended(self, request: Request) -> bool:
        return self._vendor is not None and VENDED_CREDENTIALS in _ways(request)

    def _may_write(self, roles: Collection[str]) -> bool:
        return self._gateway.verify is None or bool(WRITER_ROLES.intersection(roles))

    async def load_credentials(self, request: Request) -> Response:
        """Return keys for a table."""
        assert self._vendor is not None
        reader = await self._gateway.require_reader(request)
        key = parse_identifier(request.path_params["namespace"], request.path_params["table"])
        readable, may_write = Readable(self._gateway.audience, reader.roles), self._may_write(reader.roles)
        arguments = readable, key, may_write, path_version(request)
        keys = await to_thread.run_sync(self._vendor.credentials, *arguments, limiter=self._limiter)
        return JSONResponse(keys, headers=NO_STORE)

    async def sign_request(self, request: Request) -> Response:
        """Return the headers by which a store takes a client's request."""
        assert self._signer is not None
        reader = await self._gateway.require_reader(request)
        if self._limiter.statistics().tasks_waiting >= _MAX_WAITING:
            raise unavailable("too many requests to sign wait", _RETRY_AFTER_SECONDS)
        key = parse_identifier(request.path_params["namespace"], request.path_params["table"])
        document = await self._gateway.bodies.read_object(request, reader.name)
        readable, may_write = Readable(self._gateway.audience, reader.roles), self._may_write(reader.roles)
        arguments = readable, key, may_write, document, path_version(request)
        signed = await to_thread.run_sync(self._signer.sign, *arguments, limiter=self._limiter)
        response = JSONResponse(signed)
        may_keep = document.get("method") in _REPEATABLE
        response.raw_headers.append((_CACHE_CONTROL, b"private" if may_keep else b"no-cache"))
        return response


def _ways(request: Request) -> set[str]:
    """Return the ways of access that a client supports."""
    return {way.strip().lower() for way in request.headers.get(_DELEGATION, "").split(",")}
