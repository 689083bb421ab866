"""Ingestion's routes of the gateway: rows and files come in, and producers query their state."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from sterna.errors import SternaError
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.model import Format, Upload, split_channel
from sterna.pipelines.ingest.validate import check
from sterna.pipelines.ingest.visibility import read_visibility
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST, RequestError
from sterna.serving.http.ingest_body import UploadBody, receive_body
from sterna.serving.http.ingest_errors import translate_error
from sterna.serving.http.ingest_limits import TenantGate, validate_usage
from sterna.serving.http.ingest_responses import (
    BATCHES_RESPONSES,
    CHANNEL_RESPONSES,
    UPLOAD_RESPONSES,
    UPLOAD_STATUS_RESPONSES,
    AcceptedBody,
    BatchesBody,
    ChannelBody,
    UploadStatus,
    UploadStatusBody,
)
from sterna.serving.http.ingest_schemas import (
    FILE_FORMATS,
    ROW_FORMATS,
    UploadHeaders,
    parse_batches_query,
    parse_upload_headers,
)
from sterna.serving.http.logs import FIELDS
from sterna.serving.http.responses import ResponseBody

log = logging.getLogger(__name__)
T = TypeVar("T")
Key = Annotated[str, Header(alias="Idempotency-Key", description="The same upload sent again has the same.")]
Channel = Annotated[str, Header(alias="Sterna-Channel", description="The producer's channel; default: `default`.")]
Offset = Annotated[str, Header(alias="Sterna-Offset", description="In the key's place: how far the producer is.")]
Partition = Annotated[str, Header(alias="Sterna-Partition", description="Uploads of one partition become one batch.")]
_NO_STORE = {"Cache-Control": "no-store"}
_ID = re.compile(r"[0-9a-f]{32}")
_ADMIN_ROLE = "admin"
_MAX_QUERY_THREADS = 4


class IngestRouter:
    """The routes of one region's ingestion.

    Args:
        gateway: what all services share.
    """

    def __init__(self, gateway: Gateway, service: IngestService) -> None:
        self._gateway, self._service = gateway, service
        self._settings, self._region = service.ingest.settings, service.ingest.name
        self._gates = {name: TenantGate(name, tenant.limits) for name, tenant in self._settings.tenants.items()}
        self._query_threads = ThreadPoolExecutor(_MAX_QUERY_THREADS, thread_name_prefix="sterna-ingest-asked")
        self.router = APIRouter(tags=["ingest"])
        self.router.post("/v1/tables/{table}/rows", status_code=201, responses=UPLOAD_RESPONSES)(self.rows)
        self.router.post("/v1/tables/{table}/files", status_code=201, responses=UPLOAD_RESPONSES)(self.files)
        self.router.get("/v1/drops/{id}", responses=UPLOAD_STATUS_RESPONSES)(self.drop)
        self.router.get("/v1/batches", responses=BATCHES_RESPONSES)(self.batches)
        self.router.get("/v1/channels/{channel}", responses=CHANNEL_RESPONSES)(self.channel)

    async def rows(
        self, request: Request, table: str, key: Key = "", channel: Channel = "", offset: Offset = "",
        partition: Partition = "",
    ) -> Response:  # fmt: skip
        """Send rows: JSON lines, or an Arrow stream. Answered once they are durable in this region."""
        return await self._answer(request, partial(self._receive_upload, request, table, ROW_FORMATS))

    async def files(
        self, request: Request, table: str, key: Key = "", channel: Channel = "", offset: Offset = "",
        partition: Partition = "",
    ) -> Response:  # fmt: skip
        """Send a Parquet file. Answered once it is durable in this region."""
        return await self._answer(request, partial(self._receive_upload, request, table, FILE_FORMATS))

    async def drop(self, request: Request, id: str) -> Response:
        """Say what became of an upload."""
        return await self._answer(request, partial(self._describe_upload, request, id))

    async def batches(
        self,
        request: Request,
        tenant: Annotated[str, Query(description="Of this tenant; default: all of the token's.")] = "",
        table: Annotated[str, Query(description="Of this table.", examples=["acme.events"])] = "",
        state: Annotated[str, Query(description="`closed`, `staged`, `published` or `rejected`.")] = "",
        since: Annotated[str, Query(description="Closed then or later.", examples=["2026-11-22T10:00:00Z"])] = "",
        limit: Annotated[str, Query(description="At most so many, the newest first.")] = "",
    ) -> Response:
        """Return batches, the newest first."""
        return await self._answer(request, partial(self._list_batches, request))

    async def channel(self, request: Request, channel: str) -> Response:
        """Return the last offsets of a channel, at each table: what was taken, and what is settled."""
        return await self._answer(request, partial(self._describe_channel, request, channel))

    async def _receive_upload(self, request: Request, table: str, formats: Mapping[str, Format]) -> Response:
        headers = parse_upload_headers(
            request, table, self._region, self._settings, await self._require_tenants(request), formats
        )
        if self._service.ingest.table(table) is None:
            raise RequestError(404, "no table of that name takes rows")
        if self._service.ingest.refusal(table):
            raise RequestError(403, "a residency rule keeps the table out of this region")
        gate = self._gates[headers.destination.tenant]
        with gate.admit_upload(headers), self._count_active():
            usage = await gate.run(partial(self._service.read_usage, headers.destination.tenant))
            validate_usage(headers, usage, gate.limits)
            async with receive_body(request, headers, gate) as body:
                upload, is_new = await gate.run(partial(self._store_upload, headers, body, gate))
        log.info("an upload", extra={FIELDS: {"drop": upload.id, "table": table, "bytes": upload.bytes, "new": is_new}})
        accepted = AcceptedBody.model_validate(UploadStatus(upload, repeated=not is_new))
        return _json(accepted, 201 if is_new else 200, {"Location": f"/v1/drops/{upload.id}"})

    def _store_upload(self, headers: UploadHeaders, body: UploadBody, gate: TenantGate) -> tuple[Upload, bool]:
        rows = check(headers.format, body.path, gate.limits)
        new_upload = UploadRequest(
            headers.destination, headers.key, headers.offset, headers.format, body.path, body.size, rows, body.digest
        )
        return self._service.accept(new_upload)

    async def _describe_upload(self, request: Request, id: str) -> Response:
        tenants = await self._require_tenants(request, read_only=True)
        status = await self._query(partial(self._find_upload, id)) if _ID.fullmatch(id) else None
        if status is None or status.upload.destination.tenant not in tenants:
            raise RequestError(404, "there is no such upload")
        return _json(UploadStatusBody.model_validate(status))

    def _find_upload(self, id: str) -> UploadStatus | None:
        ingest = self._service.ingest
        upload = ingest.tracker.upload(id)
        if upload is None or not upload.batch:
            return None if upload is None else UploadStatus(upload)
        visibility = read_visibility(ingest, upload.batch, upload.destination.table)
        return UploadStatus(upload, ingest.tracker.batch(upload.batch), visibility)

    async def _list_batches(self, request: Request) -> Response:
        query = parse_batches_query(request, await self._require_tenants(request, read_only=True))
        tracker, tenants = self._service.ingest.tracker, sorted(query.tenants)
        batches = await self._query(
            lambda: tracker.list_batches(tenants, query.table, query.state, query.since, query.limit)
        )
        return _json(BatchesBody.model_validate({"region": self._region, "batches": batches}))

    async def _describe_channel(self, request: Request, channel: str) -> Response:
        tenants = await self._require_tenants(request, read_only=True)
        parts = split_channel(channel)
        if parts is None or parts[0] != self._region or parts[1] not in tenants:
            raise RequestError(404, "there is no such channel in this region")
        states = await self._query(lambda: self._service.ingest.tracker.list_channel_states(channel))
        return _json(ChannelBody.model_validate({"channel": channel, "tables": states}))

    async def _require_tenants(self, request: Request, *, read_only: bool = False) -> Collection[str]:
        caller = await self._gateway.authenticate(request)
        all_tenants = self._settings.tenants
        if self._gateway.verify is None or (read_only and _ADMIN_ROLE in caller.roles):
            return all_tenants.keys()
        tenants = [name for name in all_tenants if caller.roles & self._settings.roles_of(name)]
        if not tenants:
            raise RequestError(403, "the token is of no tenant")
        if read_only:
            self._gates[tenants[0]].admit_query()
        return tenants

    async def _answer(self, request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
        try:
            return await work()
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except SternaError as error:
            answer = translate_error(error, request.scope["state"]["request_id"])
            if answer is None:
                raise
            self._service.counts.refused[str(answer.status)] += 1
            raise answer from None
        except RequestError as answer:
            self._service.counts.refused[str(answer.status)] += 1
            raise

    async def _query(self, question: Callable[[], T]) -> T:
        def prepare_and_query() -> T:
            self._service.prepare()
            return question()

        return await asyncio.get_running_loop().run_in_executor(self._query_threads, prepare_and_query)

    @contextmanager
    def _count_active(self) -> Iterator[None]:
        self._service.in_flight += 1
        try:
            yield
        finally:
            self._service.in_flight -= 1


def _json(body: ResponseBody, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body.model_dump_json(), status, {**_NO_STORE, **(headers or {})}, "application/json")
