"""The events' part of the gateway: `/v1/events`, `/v1/tables`, `/v1/tickets`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, WebSocket
from starlette.responses import Response

from sterna.errors import SternaError
from sterna.events.subscription import BeginAnew, Message, Send, Subscription
from sterna.events.tail import BranchTail
from sterna.events.views import View, Views
from sterna.gateway import examples
from sterna.gateway.asked import Asked, asked
from sterna.gateway.gateway import Gateway
from sterna.gateway.replies import GONE, RefusedRequest, later
from sterna.gateway.shown import TablesAnswers
from sterna.gateway.socket import talk
from sterna.gateway.stream import EventStream, counted, while_there
from sterna.gateway.tokens import Reader

Patterns = Annotated[
    list[str], Query(description="Patterns, such as `db.*`; commas between several.", examples=["db.*"])
]
_EVENTS_TAKE = ("tables", "after", "wait", "delivery", "ticket")
_NO_STORE = {"Cache-Control": "no-store"}


class EventsRoom:
    """The routes of one region's events.

    Args:
        gateway: what all rooms share.
        tail: follows the region's branch.
    """

    def __init__(self, gateway: Gateway, tail: BranchTail) -> None:
        self._gateway = gateway
        self._tail = tail
        self._views = Views(gateway.audience)
        self._answers = TablesAnswers(tail.source.region, tail.source.branch)
        self.router = APIRouter(tags=["events"])
        self.router.get("/v1/events", responses=examples.EVENTS)(self.events)
        self.router.get("/v1/tables", responses=examples.TABLES)(self.tables)
        self.router.post("/v1/tickets", responses=examples.TICKETS)(self.tickets)
        self.router.websocket("/v1/events")(self.socket)

    async def events(
        self,
        request: Request,
        tables: Patterns = [],  # noqa: B006
        after: str = Query("", description="An event's id, or the cursor of an answer: tell what came after it."),
        wait: str = Query("", description="Long poll: answer with JSON, after so many seconds at most (0 to 60)."),
        delivery: str = Query("newest", description="When falling behind: `newest` of each table, or `all`."),
        ticket: str = Query("", description="From `POST /v1/tickets`, in the token's place."),
    ) -> Response:
        """Follow the events of this region: a stream of server-sent events, or with `wait` one answer in JSON.

        `Last-Event-ID` goes before `after`. The same address takes a WebSocket.
        """
        wish, reader = await self._wish(request)
        if wish.wait is None:
            return _Held(self._gateway, self._subscription(wish, reader), wish, reader)
        with self._gateway.stream("poll", reader):
            answer = await while_there(request.receive, self._poll(wish, reader))
        return Response(status_code=GONE) if answer is None else answer

    async def tables(
        self,
        request: Request,
        tables: Patterns = [],  # noqa: B006
    ) -> Response:
        """Return what the tables of this region show now, and the cursor from which to follow them."""
        wish = asked(request, ("tables",))
        view = self._view(wish, await self._gateway.reader(request))
        self._ready()
        try:
            found = await self._tail.shown()
        except SternaError:
            raise later("the catalog does not answer") from None
        return Response(await self._answers.of(view, found), 200, _NO_STORE, "application/json")

    async def tickets(self, request: Request) -> Response:
        """Return a ticket for one stream within a minute, for pages whose `EventSource` can't send a token."""
        asked(request, ())
        reader = await self._gateway.reader(request)
        ticket, seconds = self._gateway.tickets.give(reader)
        return _json({"ticket": ticket, "expires_in": seconds}, 201)

    async def socket(self, socket: WebSocket) -> None:
        """Follow events over a WebSocket."""
        try:
            wish, reader = await self._wish(socket)
            if wish.wait is not None:
                raise RefusedRequest(400, "wait is for long polls")
            subscription = self._subscription(wish, reader)
            with self._gateway.stream("websocket", reader):
                await talk(self._gateway, socket, subscription, await _started(subscription, wish))
        except RefusedRequest as error:
            await socket.send_denial_response(error.reply(socket.scope["state"]["request_id"]))

    async def _wish(self, request: Request | WebSocket) -> tuple[Asked, Reader]:
        wish = asked(request, _EVENTS_TAKE)
        reader = await self._gateway.reader(request, ticket=True)
        self._ready()
        return wish, reader

    async def _poll(self, wish: Asked, reader: Reader) -> Response:
        subscription = self._subscription(wish, reader)
        cursor = subscription.cursor if wish.after is None else str(wish.after)
        first = await _started(subscription, wish)
        events = list[str]()
        messages: list[Message] = [first] if first else await subscription.next(wish.wait or 0)
        counted(self._gateway, "poll", messages)
        for message in messages:
            match message:
                case BeginAnew(begin, reason):
                    raise RefusedRequest(410, "the cursor is not known here any more", cursor=begin, reason=reason)
                case Send(sent):
                    events += [each.text.decode() for each in sent]
                    cursor = sent[-1].id
        cursor = cursor if events else subscription.passed or cursor
        return Response(
            f'{{"cursor":{json.dumps(cursor)},"events":[{",".join(events)}]}}',
            media_type="application/json",
            headers=_NO_STORE,
        )

    def _subscription(self, wish: Asked, reader: Reader) -> Subscription:
        return Subscription(self._tail, self._view(wish, reader), wish.delivery, reader.ends)

    def _view(self, wish: Asked, reader: Reader) -> View:
        return self._views.of(wish.tables, reader.roles)

    def _ready(self) -> None:
        if self._tail.ring is None:
            raise later("the branch has not been read yet")
        if self._tail.stopping:
            raise later("the gateway is ending")


class _Held(Response):
    """A stream that has one of the places as long as it lasts."""

    def __init__(self, gateway: Gateway, subscription: Subscription, wish: Asked, reader: Reader) -> None:
        self._gateway, self._subscription, self._wish, self._reader = gateway, subscription, wish, reader
        self.background = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send until the client goes, or is sent away."""
        with self._gateway.stream("sse", self._reader):
            first = await _started(self._subscription, self._wish)
            await EventStream(self._gateway, self._subscription, first)(scope, receive, send)


async def _started(subscription: Subscription, wish: Asked) -> BeginAnew | None:
    try:
        return await subscription.start(wish.after)
    except SternaError:
        raise later("the catalog does not answer") from None


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, _NO_STORE, "application/json")
