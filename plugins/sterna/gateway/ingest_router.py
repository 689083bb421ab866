"""Ingestion's part of the gateway: rows and files come in, and producers ask what became of them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from sterna.errors import SternaError
from sterna.gateway import ingest_examples as examples
from sterna.gateway.gateway import Gateway
from sterna.gateway.ingest_asked import FILES, ROWS, Post, asked_batches, asked_post
from sterna.gateway.ingest_body import Body, received
from sterna.gateway.ingest_limits import TenantGate, check_usage
from sterna.gateway.ingest_replies import refused
from sterna.gateway.ingest_shown import batch_shown, channel_shown, drop_shown
from sterna.gateway.logs import FIELDS
from sterna.gateway.replies import GONE, RefusedRequest
from sterna.ingest.check import check
from sterna.ingest.inbox import Sent
from sterna.ingest.model import Batch, Drop, Format, split_channel
from sterna.ingest.room import IngestRoom
from sterna.ingest.served import served_of

log = logging.getLogger(__name__)
T = TypeVar("T")
Key = Annotated[str, Header(alias="Idempotency-Key", description="The same drop sent again has the same.")]
Channel = Annotated[str, Header(alias="Sterna-Channel", description="The producer's channel; default: `default`.")]
Offset = Annotated[str, Header(alias="Sterna-Offset", description="In the key's place: how far the producer is.")]
Partition = Annotated[str, Header(alias="Sterna-Partition", description="Drops of one partition become one batch.")]
_NO_STORE = {"Cache-Control": "no-store"}
_ID = re.compile(r"[0-9a-f]{32}")
_SEES_ALL = "admin"
_ASKERS = 4


class IngestRouter:
    """The routes of one region's ingestion.

    Args:
        gateway: what all rooms share.
        room: takes drops.
    """

    def __init__(self, gateway: Gateway, room: IngestRoom) -> None:
        self._gateway, self._room = gateway, room
        self._settings, self._region = room.ingest.settings, room.ingest.name
        self._gates = {name: TenantGate(name, tenant.limits) for name, tenant in self._settings.tenants.items()}
        self._askers = ThreadPoolExecutor(_ASKERS, thread_name_prefix="sterna-ingest-asked")
        self.router = APIRouter(tags=["ingest"])
        self.router.post("/v1/tables/{table}/rows", status_code=201, responses=examples.POST)(self.rows)
        self.router.post("/v1/tables/{table}/files", status_code=201, responses=examples.POST)(self.files)
        self.router.get("/v1/drops/{id}", responses=examples.DROP)(self.drop)
        self.router.get("/v1/batches", responses=examples.BATCHES)(self.batches)
        self.router.get("/v1/channels/{channel}", responses=examples.CHANNEL)(self.channel)

    async def rows(
        self, request: Request, table: str, key: Key = "", channel: Channel = "", offset: Offset = "",
        partition: Partition = "",
    ) -> Response:  # fmt: skip
        """Send rows: JSON lines, or an Arrow stream. Answered once they are durable in this region."""
        return await self._answered(request, partial(self._post, request, table, ROWS))

    async def files(
        self, request: Request, table: str, key: Key = "", channel: Channel = "", offset: Offset = "",
        partition: Partition = "",
    ) -> Response:  # fmt: skip
        """Send a Parquet file. Answered once it is durable in this region."""
        return await self._answered(request, partial(self._post, request, table, FILES))

    async def drop(self, request: Request, id: str) -> Response:
        """Say what became of a drop."""
        return await self._answered(request, partial(self._drop, request, id))

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
        return await self._answered(request, partial(self._batches, request))

    async def channel(self, request: Request, channel: str) -> Response:
        """Return the last offsets of a channel, at each table: what was taken, and what is settled."""
        return await self._answered(request, partial(self._channel, request, channel))

    async def _post(self, request: Request, table: str, kinds: Mapping[str, Format]) -> Response:
        post = asked_post(request, table, self._region, self._settings, await self._tenants(request), kinds)
        if self._room.ingest.table(table) is None:
            raise RefusedRequest(404, "no table of that name takes rows")
        if self._room.ingest.refusal(table):
            raise RefusedRequest(403, "a residency rule keeps the table out of this region")
        gate = self._gates[post.lane.tenant]
        with gate.place(post), self._counted():
            usage = await gate.run(partial(self._room.usage, post.lane.tenant))
            check_usage(post, usage, gate.limits)
            async with received(request, post, gate) as body:
                drop, new = await gate.run(partial(self._take, post, body, gate))
        log.info("a drop", extra={FIELDS: {"drop": drop.id, "table": table, "bytes": drop.bytes, "new": new}})
        shown = {**drop_shown(drop, None), "repeated": not new}
        return _json(shown, 201 if new else 200, {"Location": f"/v1/drops/{drop.id}"})

    def _take(self, post: Post, body: Body, gate: TenantGate) -> tuple[Drop, bool]:
        rows = check(post.format, body.path, gate.limits)
        sent = Sent(post.lane, post.key, post.offset, post.format, body.path, body.size, rows, body.digest)
        return self._room.take(sent)

    async def _drop(self, request: Request, id: str) -> Response:
        tenants = await self._tenants(request, looking=True)
        found = await self._ask(partial(self._find_drop, id)) if _ID.fullmatch(id) else None
        if found is None or found[0].lane.tenant not in tenants:
            raise RefusedRequest(404, "there is no such drop")
        return _json(drop_shown(*found))

    def _find_drop(self, id: str) -> tuple[Drop, Batch | None, Mapping[str, datetime | None]] | None:
        ingest = self._room.ingest
        drop = ingest.tracker.drop(id)
        if drop is None or not drop.batch:
            return None if drop is None else (drop, None, {})
        return drop, ingest.tracker.batch(drop.batch), served_of(ingest, drop.batch, drop.lane.table)

    async def _batches(self, request: Request) -> Response:
        wish = asked_batches(request, await self._tenants(request, looking=True))
        tracker, tenants = self._room.ingest.tracker, sorted(wish.tenants)
        found = await self._ask(lambda: tracker.batches(tenants, wish.table, wish.state, wish.since, wish.most))
        return _json({"region": self._region, "batches": [batch_shown(batch) for batch in found]})

    async def _channel(self, request: Request, channel: str) -> Response:
        tenants = await self._tenants(request, looking=True)
        parts = split_channel(channel)
        if parts is None or parts[0] != self._region or parts[1] not in tenants:
            raise RefusedRequest(404, "there is no such channel in this region")
        return _json(channel_shown(channel, await self._ask(lambda: self._room.ingest.tracker.channel(channel))))

    async def _tenants(self, request: Request, *, looking: bool = False) -> Collection[str]:
        caller = await self._gateway.caller(request)
        every = self._settings.tenants
        if self._gateway.verify is None or (looking and _SEES_ALL in caller.roles):
            return every.keys()
        found = [name for name in every if caller.roles & self._settings.roles_of(name)]
        if not found:
            raise RefusedRequest(403, "the token is of no tenant")
        if looking:
            self._gates[found[0]].ask()
        return found

    async def _answered(self, request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
        try:
            return await work()
        except ClientDisconnect:
            return Response(status_code=GONE)
        except SternaError as error:
            answer = refused(error, request.scope["state"]["request_id"])
            if answer is None:
                raise
            self._room.counts.refused[str(answer.status)] += 1
            raise answer from None
        except RefusedRequest as answer:
            self._room.counts.refused[str(answer.status)] += 1
            raise

    async def _ask(self, question: Callable[[], T]) -> T:
        def ask() -> T:
            self._room.prepare()
            return question()

        return await asyncio.get_running_loop().run_in_executor(self._askers, ask)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._room.under_way += 1
        try:
            yield
        finally:
            self._room.under_way -= 1


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content), status, {**_NO_STORE, **(headers or {})}, "application/json")
