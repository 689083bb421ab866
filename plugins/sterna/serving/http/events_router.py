"""The events' part of the gateway: `/v1/events`, `/v1/tables`, `/v1/tickets`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, WebSocket
from starlette.requests import HTTPConnection
from starlette.responses import Response

from sterna.errors import SternaError
from sterna.notifications.change_log.cursor import Cursor, parse_cursor
from sterna.notifications.subscriptions.filters import EventFilter, EventFilters
from sterna.notifications.subscriptions.poller import BranchPoller
from sterna.notifications.subscriptions.subscription import EventsMessage, Message, ResyncMessage, Subscription
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST, RequestError, unavailable
from sterna.serving.http.events_responses import EVENTS_RESPONSES, TABLES_RESPONSES, TICKETS_RESPONSES, TicketBody
from sterna.serving.http.fanout import Fanout
from sterna.serving.http.socket import serve_socket
from sterna.serving.http.stream import EventStream, count_messages, run_while_connected
from sterna.serving.http.table_list import TablesAnswerCache
from sterna.serving.http.tokens import Reader

Patterns = Annotated[
    list[str], Query(description="Patterns, such as `db.*`; commas between several.", examples=["db.*"])
]
_EVENTS_PARAMETERS = ("tables", "after", "wait", "delivery", "ticket")
_NO_STORE = {"Cache-Control": "no-store"}
_MAX_PATTERNS = 50
_MAX_PATTERN_CHARS = 256
_MAX_TOTAL_CHARS = 1_024  # of all patterns, which are matched against each table's name
_MAX_WAIT_SECONDS = 60
# What polyfills of EventSource (Yaffle's, AmvTek's) add to an address when they come back, or always; `r` is random.
_LAST_ID_PARAMETERS = ("lastEventId", "evs_last_event_id")
_POLYFILL_PARAMETERS = (*_LAST_ID_PARAMETERS, "evs_buffer_size_limit", "evs_preamble", "r")


@dataclass(frozen=True)
class EventsQuery:
    """A validated query.

    Args:
        tables: patterns; none: all tables.
        after: the cursor to begin at; None: at the end of the log.
        wait: seconds of a long poll, None for a stream.
        delivery: what happens when the client falls behind.
    """

    tables: tuple[str, ...] = ()
    after: Cursor | None = None
    wait: int | None = None
    delivery: Literal["newest", "all"] = "newest"


class EventsRouter:
    """The routes of one region's events.

    Args:
        gateway: what all routers share.
        poller: follows the region's branch.
    """

    def __init__(self, gateway: Gateway, poller: BranchPoller) -> None:
        self._gateway = gateway
        self._poller = poller
        self._fanout = Fanout(gateway.metrics)
        poller.on_events = self._fanout.write
        self._filters = EventFilters(gateway.audience)
        self._answers = TablesAnswerCache(poller.source.region, poller.source.branch)
        self.router = APIRouter(tags=["events"])
        self.router.get("/v1/events", responses=EVENTS_RESPONSES)(self.events)
        self.router.get("/v1/tables", responses=TABLES_RESPONSES)(self.tables)
        self.router.post("/v1/tickets", status_code=201, responses=TICKETS_RESPONSES)(self.tickets)
        self.router.websocket("/v1/events")(self.socket)

    async def events(
        self,
        request: Request,
        tables: Patterns = [],  # noqa: B006
        after: str = Query(
            "", description="An event's id, or the cursor of an answer: answer with what came after it."
        ),
        wait: str = Query("", description="Long poll: answer with JSON, after so many seconds at most (0 to 60)."),
        delivery: str = Query("newest", description="When falling behind: `newest` of each table, or `all`."),
        ticket: str = Query("", description="From `POST /v1/tickets`, in the token's place."),
    ) -> Response:
        """Follow the events of this region: a stream of server-sent events, or with `wait` one answer in JSON.

        `Last-Event-ID` goes before `after`. The same address takes a WebSocket.
        """
        query, reader = await self._parse_request(request)
        if query.wait is None:
            return _StreamResponse(self._gateway, self._fanout, self._subscribe(query, reader), query, reader)
        with self._gateway.admit_stream("poll", reader):
            answer = await run_while_connected(request.receive, self._poll(query, reader))
        return Response(status_code=CLIENT_CLOSED_REQUEST) if answer is None else answer

    async def tables(
        self,
        request: Request,
        tables: Patterns = [],  # noqa: B006
    ) -> Response:
        """Return what the tables of this region show now, and the cursor from which to follow them."""
        query = parse_query(request, ("tables",))
        event_filter = self._filter_for(query, await self._gateway.require_reader(request))
        self._require_ready()
        try:
            branch_tables = await self._poller.read_tables()
        except SternaError:
            raise unavailable("the catalog does not answer") from None
        return Response(await self._answers.get(event_filter, branch_tables), 200, _NO_STORE, "application/json")

    async def tickets(self, request: Request) -> Response:
        """Return a ticket for one stream within a minute, for pages whose `EventSource` can't send a token."""
        parse_query(request, ())
        reader = await self._gateway.require_reader(request)
        ticket, seconds = self._gateway.tickets.issue(reader)
        body = TicketBody(ticket=ticket, expires_in=seconds)
        return Response(body.model_dump_json(), 201, _NO_STORE, "application/json")

    async def socket(self, socket: WebSocket) -> None:
        """Follow events over a WebSocket."""
        try:
            query, reader = await self._parse_request(socket)
            if query.wait is not None:
                raise RequestError(400, "wait is for long polls")
            subscription = self._subscribe(query, reader)
            with self._gateway.admit_stream("websocket", reader):
                await serve_socket(self._gateway, socket, subscription, await _start(subscription, query))
        except RequestError as error:
            await socket.send_denial_response(error.response(socket.scope["state"]["request_id"]))

    async def _parse_request(self, request: Request | WebSocket) -> tuple[EventsQuery, Reader]:
        query = parse_query(request, _EVENTS_PARAMETERS)
        reader = await self._gateway.require_reader(request, ticket=True)
        self._require_ready()
        return query, reader

    async def _poll(self, query: EventsQuery, reader: Reader) -> Response:
        subscription = self._subscribe(query, reader)
        cursor = subscription.cursor if query.after is None else str(query.after)
        resync = await _start(subscription, query)
        events = list[str]()
        messages: list[Message] = [resync] if resync else await subscription.next_messages(query.wait or 0)
        count_messages(self._gateway, "poll", messages)
        for message in messages:
            match message:
                case ResyncMessage(restart_cursor, reason):
                    raise RequestError(
                        410, "the cursor is not known here any more", cursor=restart_cursor, reason=reason
                    )
                case EventsMessage(new_events):
                    events += [event.text.decode() for event in new_events]
                    cursor = new_events[-1].id
        cursor = cursor if events else subscription.caught_up_cursor or cursor
        return Response(
            f'{{"cursor":{json.dumps(cursor)},"events":[{",".join(events)}]}}',
            media_type="application/json",
            headers=_NO_STORE,
        )

    def _subscribe(self, query: EventsQuery, reader: Reader) -> Subscription:
        return Subscription(self._poller, self._filter_for(query, reader), query.delivery, reader.expires_at)

    def _filter_for(self, query: EventsQuery, reader: Reader) -> EventFilter:
        return self._filters.filter_for(query.tables, reader.roles)

    def _require_ready(self) -> None:
        if self._poller.buffer is None:
            raise unavailable("the branch has not been read yet")
        if self._poller.stopping:
            raise unavailable("the gateway is ending")


class _StreamResponse(Response):
    """A stream that has one of the places as long as it lasts."""

    def __init__(
        self, gateway: Gateway, fanout: Fanout, subscription: Subscription, query: EventsQuery, reader: Reader
    ) -> None:
        self._gateway, self._fanout = gateway, fanout
        self._subscription, self._query, self._reader = subscription, query, reader
        self.background = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send until the client goes, or is sent away."""
        with self._gateway.admit_stream("sse", self._reader):
            resync = await _start(self._subscription, self._query)
            await EventStream(self._gateway, self._fanout, self._subscription, resync)(scope, receive, send)


async def _start(subscription: Subscription, query: EventsQuery) -> ResyncMessage | None:
    try:
        return await subscription.start(query.after)
    except SternaError:
        raise unavailable("the catalog does not answer") from None


def parse_query(request: HTTPConnection, allowed: Collection[str]) -> EventsQuery:
    """Return a request's query. An unknown parameter is an error, since a misspelt one would be ignored.

    Args:
        allowed: the parameters that it may have.

    Raises:
        RequestError: 400, with the parameter's name.
    """
    params = request.query_params
    for name in params:
        if name not in allowed and not ("after" in allowed and name in _POLYFILL_PARAMETERS):
            raise RequestError(
                400, f"unknown parameter: {_printable_name(name)}; there are: {', '.join(sorted(allowed))}"
            )
        if name != "tables" and len(params.getlist(name)) > 1:
            raise RequestError(400, f"{name} stands twice")
    return EventsQuery(
        _parse_patterns(params.getlist("tables")),
        _parse_after(params.get("after"), _last_event_id(request) if "after" in allowed else None),
        _parse_wait(params.get("wait")),
        _parse_delivery(params.get("delivery", "newest")),
    )


def _parse_patterns(texts: list[str]) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(part for text in texts for part in text.split(",")))
    if len(patterns) > _MAX_PATTERNS:
        raise RequestError(400, f"tables: at most {_MAX_PATTERNS} patterns")
    for pattern in patterns:
        if not pattern or len(pattern) > _MAX_PATTERN_CHARS or not pattern.isprintable():
            raise RequestError(400, f"tables: a pattern has 1 to {_MAX_PATTERN_CHARS} printable letters")
    if sum(map(len, patterns)) > _MAX_TOTAL_CHARS:
        raise RequestError(400, f"tables: all patterns together have at most {_MAX_TOTAL_CHARS:,} letters")
    return patterns


def _last_event_id(request: HTTPConnection) -> str | None:
    candidates = [
        request.headers.get("last-event-id"),
        *(request.query_params.get(name) for name in _LAST_ID_PARAMETERS),
    ]
    return next((event_id for event_id in candidates if event_id), None)


def _parse_after(after: str | None, last_event_id: str | None) -> Cursor | None:
    # A browser that reconnects repeats its first address: what it saw last is the newer of the two.
    text = last_event_id or after
    if text is None:
        return None
    cursor = parse_cursor(text)
    if cursor is None:
        raise RequestError(400, "after: this is no cursor: expected an event's id, or the cursor of an answer")
    return cursor


def _parse_wait(seconds: str | None) -> int | None:
    if seconds is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}", seconds) or int(seconds) > _MAX_WAIT_SECONDS:
        raise RequestError(400, f"wait: expected 0 to {_MAX_WAIT_SECONDS} seconds")
    return int(seconds)


def _parse_delivery(delivery: str) -> Literal["newest", "all"]:
    if delivery == "all":
        return "all"
    if delivery == "newest":
        return "newest"
    raise RequestError(400, "delivery: expected newest or all")


def _printable_name(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", text) else "(a name that isn't shown)"
