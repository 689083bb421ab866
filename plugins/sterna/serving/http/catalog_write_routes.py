"""The writing routes of the REST catalog: the roles that may use them, their bodies, and their responses.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sterna.catalog.model import Key, key_name
from sterna.errors import BadUpdate, Busy, Forbidden, RestCatalogError, SternaError, TableError
from sterna.serving.http.catalog_errors import NO_STORE
from sterna.serving.http.catalog_route import NAMESPACE, NAMESPACES, TABLE, TABLES, VIEW, VIEWS
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import RequestError
from sterna.serving.http.json_body import ParseLimits
from sterna.serving.http.tokens import Reader
from sterna.serving.rest_catalog.model import LoadedTable
from sterna.serving.rest_catalog.name_errors import missing_table
from sterna.serving.rest_catalog.names import (
    parse_identifier,
    parse_namespace_segment,
    read_identifier,
    read_namespace,
)
from sterna.serving.rest_catalog.reader import served_body
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.write_service import CatalogWriteService

WRITER_ROLES = frozenset({"writer", "admin"})
"""Roles that may write."""
_MAINTENANCE_ROLE = "admin"
# A schema of ten thousand columns, or of types nested as deep as `schemas.MAX_DEPTH` allows, with three levels each.
_PARSE_LIMITS = ParseLimits(max_values=500_000, max_depth=320)
_RETRY_AFTER_SECONDS = 2
_MAX_CONCURRENCY = 32  # requests that are carried out at once; `Turns` lets fewer wait for their table
_MAX_WAITING = 64  # requests whose bodies wait in memory for one of those to end


class CatalogWriteRoutes:
    """The writing routes of one region's catalog.

    Args:
        gateway: what all routers share.
        service: carries requests out.
        result: returns what a client gets with a table that it made.
    """

    def __init__(
        self,
        gateway: Gateway,
        service: CatalogWriteService,
        result: Callable[[Request, Collection[str], Key, LoadedTable], Awaitable[dict[str, Any]]],
    ) -> None:
        self._gateway = gateway
        self._service = service
        self._result = result
        self._limiter = CapacityLimiter(_MAX_CONCURRENCY)

    def add_to(self, add: Callable[[str, str, Callable[..., Any]], None]) -> None:
        """Add the routes to a router.

        Args:
            add: takes a route's method, its path as the specification has it, and what answers it.
        """
        add("POST", NAMESPACES, self.create_namespace)
        add("DELETE", NAMESPACE, self.drop_namespace)
        add("POST", f"{NAMESPACE}/properties", self.update_namespace)
        add("POST", TABLES, self.create_table)
        add("POST", f"{NAMESPACE}/register", self.register_table)
        add("POST", TABLE, self.commit_table)
        add("DELETE", TABLE, self.drop_table)
        add("POST", "/v1/{prefix}/tables/rename", self.rename_table)
        add("POST", "/v1/{prefix}/transactions/commit", self.commit_transaction)
        add("POST", VIEWS, self.create_view)
        add("POST", VIEW, self.replace_view)
        add("DELETE", VIEW, self.drop_view)
        add("POST", "/v1/{prefix}/views/rename", self.rename_view)

    async def create_namespace(self, request: Request) -> Response:
        """Make a namespace."""
        writer = await self._writer(request)
        body = await self._body(request, writer)
        namespace = read_namespace(body.get("namespace"))
        self._require_visible(writer, namespace)
        return await self._json(request, self._service.create_namespace, namespace, body.get("properties") or {})

    async def drop_namespace(self, request: Request) -> Response:
        """Drop an empty namespace."""
        writer, namespace = await self._writer(request), _namespace(request)
        self._require_visible(writer, namespace)
        return await self._done(request, self._service.drop_namespace, namespace)

    async def update_namespace(self, request: Request) -> Response:
        """Change a namespace's properties."""
        writer, namespace = await self._writer(request), _namespace(request)
        self._require_visible(writer, namespace)
        return await self._json(request, self._service.update_namespace, namespace, await self._body(request, writer))

    async def create_table(self, request: Request) -> Response:
        """Make or stage a table."""
        return await self._created(request, self._service.create_table)

    async def register_table(self, request: Request) -> Response:
        """Put a table on `main` that a metadata.json describes."""
        return await self._created(request, self._service.register_table, has_rights=True)

    async def create_view(self, request: Request) -> Response:
        """Make a view."""
        return await self._created(request, self._service.create_view)

    async def commit_table(self, request: Request) -> Response:
        """Commit to a table."""
        writer, key = await self._writer(request), _identifier(request, "table")
        self._require_visible(writer, key)
        return await self._loaded(
            request, self._service.commit_table, key, await self._body(request, writer), self._rights(writer)
        )

    async def replace_view(self, request: Request) -> Response:
        """Commit to a view."""
        writer, key = await self._writer(request), _identifier(request, "view")
        self._require_visible(writer, key)
        return await self._loaded(request, self._service.replace_view, key, await self._body(request, writer))

    async def drop_table(self, request: Request) -> Response:
        """Drop a table: a purge is a request, and its files stay."""
        writer, key = await self._writer(request), _identifier(request, "table")
        self._require_visible(writer, key)
        return await self._done(request, self._service.drop_table, key)

    async def drop_view(self, request: Request) -> Response:
        """Drop a view."""
        writer, key = await self._writer(request), _identifier(request, "view")
        self._require_visible(writer, key)
        return await self._done(request, self._service.drop_view, key)

    async def rename_table(self, request: Request) -> Response:
        """Give a table another name."""
        return await self._renamed(request, self._service.rename_table)

    async def rename_view(self, request: Request) -> Response:
        """Give a view another name."""
        return await self._renamed(request, self._service.rename_view)

    async def commit_transaction(self, request: Request) -> Response:
        """Commit to several tables at once."""
        writer = await self._writer(request)
        body = await self._body(request, writer)
        changes = body.get("table-changes")
        for change in changes if isinstance(changes, list) else ():
            identifier = change.get("identifier") if isinstance(change, dict) else None
            self._require_visible(writer, read_identifier(identifier))
        return await self._done(request, self._service.commit_transaction, body, self._rights(writer))

    async def _created(self, request: Request, create: Callable[..., Any], *, has_rights: bool = False) -> Response:
        writer, namespace = await self._writer(request), _namespace(request)
        body = await self._body(request, writer)
        if isinstance(name := body.get("name"), str):
            self._require_visible(writer, (*namespace, name))
        arguments = (namespace, body, self._rights(writer)) if has_rights else (namespace, body)
        loaded = await self._carry_out(request, create, *arguments)
        if create == self._service.create_view:
            return _loaded(loaded.body())
        key = (*namespace, str(body.get("name")))
        return _loaded(await self._result(request, writer.roles, key, loaded))

    async def _renamed(self, request: Request, rename: Callable[..., Any]) -> Response:
        writer = await self._writer(request)
        body = await self._body(request, writer)
        source, destination = read_identifier(body.get("source")), read_identifier(body.get("destination"))
        self._require_visible(writer, source)
        self._require_visible(writer, destination)
        return await self._done(request, rename, source, destination)

    async def _writer(self, request: Request) -> Reader:
        """Return the client of a request that may write.

        Raises:
            RequestError: the token is missing or not good; or too many requests wait.
            Forbidden: its roles may not write.
        """
        reader = await self._gateway.require_reader(request)
        if self._gateway.verify is not None and not reader.roles & WRITER_ROLES:
            raise Forbidden("the token's roles may not write")
        if self._limiter.statistics().tasks_waiting >= _MAX_WAITING:
            raise _busy("too many commits wait")
        return reader

    def _rights(self, writer: Reader) -> Rights:
        maintains = self._gateway.verify is not None and _MAINTENANCE_ROLE in writer.roles
        return Rights(expire=maintains, compact=maintains)

    def _require_visible(self, writer: Reader, key: Key) -> None:
        """See that rules don't hide a name from a client.

        Raises:
            NoSuchTable: they do, as they do for readers.
        """
        if not self._gateway.audience.rules_allow(key_name(key), writer.roles):
            raise missing_table(key)

    async def _body(self, request: Request, writer: Reader) -> dict[str, Any]:
        return await self._gateway.bodies.read_object(request, writer.name, _PARSE_LIMITS)

    async def _loaded(self, request: Request, write: Callable[..., Any], *arguments: Any) -> Response:
        return _loaded((await self._carry_out(request, write, *arguments)).body())

    async def _json(self, request: Request, write: Callable[..., Any], *arguments: Any) -> Response:
        return JSONResponse(await self._carry_out(request, write, *arguments), headers=NO_STORE)

    async def _done(self, request: Request, write: Callable[..., Any], *arguments: Any) -> Response:
        await self._carry_out(request, write, *arguments)
        return Response(status_code=204, headers=NO_STORE)

    async def _carry_out(self, request: Request, write: Callable[..., Any], *arguments: Any) -> Any:
        return await _carry_out(self._limiter, write, *arguments, _idempotency_key(request, arguments))


def _loaded(result: Mapping[str, Any]) -> Response:
    body = served_body(result)
    return Response(body.content, media_type="application/json", headers={**NO_STORE, "ETag": body.etag})


def _busy(reason: str) -> RequestError:
    """Return the answer that has all versions of Java's client come again, and delete none of its files.

    Those that were refused together come again at different times.
    """
    seconds = random.randint(_RETRY_AFTER_SECONDS, 3 * _RETRY_AFTER_SECONDS)  # noqa: S311 - a pause
    return RequestError(429, f"nothing was committed: {reason}", {"Retry-After": str(seconds)})


async def _carry_out(limiter: CapacityLimiter, write: Callable[..., Any], *arguments: Any) -> Any:
    """Carry a request out; it goes on when the client disconnects.

    Args:
        limiter: of threads: commits may wait for one another, and reads have threads of their own.

    Raises:
        RestCatalogError: as the service has it.
        BadUpdate: something of the table can't be read as it is; nothing was committed.
        RequestError: 429: too many commits wait; 503: a store or the catalog can't be used. Nothing was committed.
    """
    try:
        return await to_thread.run_sync(write, *arguments, limiter=limiter)
    except RestCatalogError:
        raise
    except TableError as error:
        raise BadUpdate(error.message, table=error.table, file=error.file) from error
    except Busy as error:
        raise _busy(error.message) from error
    except SternaError as error:
        message = f"nothing was committed: {type(error).__name__}"
        raise RequestError(503, message, {"Retry-After": str(_RETRY_AFTER_SECONDS)}) from error


def _idempotency_key(request: Request, arguments: Sequence[Any]) -> str:
    """Return what identifies a request that is sent again: its `Idempotency-Key` with the request that it is for.

    The same key with another request is another one: a client that always sends one loses no commit. "": no key.

    Args:
        arguments: what the request says.
    """
    key = request.headers.get("idempotency-key", "")
    if not key:
        return ""
    text = json.dumps([key, request.method, request.url.path, *arguments], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _namespace(request: Request) -> Key:
    return parse_namespace_segment(request.path_params["namespace"])


def _identifier(request: Request, parameter: str) -> Key:
    return parse_identifier(request.path_params["namespace"], request.path_params[parameter])
