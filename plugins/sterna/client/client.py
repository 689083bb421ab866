"""The client itself: connects, reads, reconnects, and yields each event once."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import date
from enum import StrEnum
from types import TracebackType
from typing import Any

import httpx
from httpx_sse import ServerSentEvent

from sterna.client.figures import QueryAnswer, parse_query_answer
from sterna.client.memory import CursorStore
from sterna.client.messages import ClientMessage, Reset, Skipped, TableEvent, TableState, parse_event
from sterna.client.sse import read_events

Token = str | Callable[[], str] | Callable[[], Awaitable[str]] | None
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 1.0, 60.0
_IDLE_TIMEOUT_SECONDS = 45.0  # three heartbeats missed
_RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_TOKEN_ATTEMPTS = 2
_RETRYABLE_QUERY_STATUSES = frozenset({429, 502, 503})  # not 504: a query that runs too long would again


class State(StrEnum):
    """What a client is doing, as people are shown it."""

    DISCONNECTED = "Disconnected"
    CONNECTING = "Connecting..."
    CONNECTED = "Connected"
    LISTENING = "Listening for messages..."
    FAILED = "Failed"


class ClientFailed(Exception):
    """The gateway rejected a request permanently: repeating it would not help.

    Args:
        status: the HTTP status.
        error: the gateway's message.
        document: the whole response body; for a query's 410, `current` has the current snapshots.
    """

    def __init__(self, status: int, error: str, document: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error
        self.document = dict(document or {})


class _Disconnected(Exception):
    """The stream ended; a new connection may succeed."""

    def __init__(self, pause: float | None = None) -> None:
        super().__init__()
        self.pause = pause


class EventClient:
    """Follows the events of a region; iterate over it.

    An event counts as handled once the next one is requested: after a crash the one in progress is delivered again.

    Args:
        url: the gateway's, such as `https://eu.example:8080`.
        tables: patterns; none: all tables that the token may read.
        token: the bearer token, or a function that returns one before each connection.
        cursor_store: the cursor and the ids that were handled; default: in memory only.
        after: the cursor to begin at while the store has none; default: the present end of the log.
        delivery: `newest`: a client that falls behind gets the newest event of each table; `all`: every event.
        on_state: called with each state that the client enters.
        idle_timeout: seconds without any bytes after which a connection counts as dead.
        http: an HTTP client, which the caller closes; default: a new one.
    """

    def __init__(
        self,
        url: str,
        *,
        tables: Sequence[str] = (),
        token: Token = None,
        cursor_store: CursorStore | None = None,
        after: str = "",
        delivery: str = "newest",
        on_state: Callable[[State], None] = lambda state: None,
        idle_timeout: float = _IDLE_TIMEOUT_SECONDS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._tables = tuple(tables)
        self._token = token
        self._cursor_store = cursor_store if cursor_store is not None else CursorStore()
        self._delivery = delivery
        self._on_state = on_state
        self._idle_timeout = idle_timeout
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient()
        self._retry_seconds = _MIN_BACKOFF_SECONDS
        self._backoff = 0.0
        self._rejected_connections = 0  # consecutive
        self.state = State.DISCONNECTED
        if after and not self._cursor_store.cursor:
            self._cursor_store.set_cursor(after)

    @property
    def cursor(self) -> str:
        """The position in the log; "" before the first connection."""
        return self._cursor_store.cursor

    async def __aenter__(self) -> EventClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._set_state(State.FAILED if isinstance(error, ClientFailed) else State.DISCONNECTED)
        if self._owns_http:
            await self._http.aclose()

    async def __aiter__(self) -> AsyncIterator[ClientMessage]:
        """Yield messages for ever; reconnects when a connection ends.

        Raises:
            ClientFailed: the gateway refuses the subscription.
        """
        while True:
            try:
                async for message in self._stream_once():
                    yield message
            except ClientFailed as error:
                self._rejected_connections += 1
                # The token may have expired in flight: a fresh one gets one attempt.
                if (
                    error.status != 401
                    or self._rejected_connections >= _MAX_TOKEN_ATTEMPTS
                    or not callable(self._token)
                ):
                    self._set_state(State.FAILED)
                    raise
            except _Disconnected as disconnected:
                self._set_state(State.DISCONNECTED)
                await asyncio.sleep(self._next_backoff(disconnected.pause))

    async def tables(self) -> list[TableState]:
        """Return the current snapshot of each table: for a first state, or after a `Reset`.

        A client without a cursor follows the events from this state on, so that none is missed.

        Raises:
            ClientFailed: the gateway refuses.
            httpx.HTTPError: the gateway does not answer.
        """
        params = {"tables": ",".join(self._tables)} if self._tables else {}
        response = await self._http.get(f"{self._url}/v1/tables", params=params, headers=await self._headers())
        if response.status_code != 200:
            raise _client_error(response.status_code, response.content)
        body = response.json()
        if not self._cursor_store.cursor:
            self._cursor_store.set_cursor(body["cursor"])
        return [TableState(table["table_identifier"], table["snapshot_id"]) for table in body["tables"]]

    async def kpi(
        self,
        name: str = "",
        *,
        snapshot_id: int | None = None,
        at: str = "",
        params: Mapping[str, object] | None = None,
        max_wait: float = 60.0,
    ) -> QueryAnswer:
        """Return a named query's answer at exactly one version of its tables.

        Retries on 429, 502 and 503, after the pause that the gateway requests.

        Args:
            name: the query; "": the default, or the only one.
            snapshot_id: the snapshot of its one table, such as an event's `new_snapshot_id`.
            at: or a cursor, such as an event's `id`: all tables as of that commit.
            params: the query's own parameters.
            max_wait: seconds after which no further attempt is made.

        Raises:
            ClientFailed: the gateway gives no answer to this query.
            httpx.HTTPError: the gateway does not answer.
        """
        arguments = {"name": name, "snapshotId": "" if snapshot_id is None else str(snapshot_id), "at": at}
        query = {key: text for key, text in arguments.items() if text}
        query |= {key: parameter_text(value) for key, value in (params or {}).items()}
        deadline, pause = time.monotonic() + max_wait, _MIN_BACKOFF_SECONDS
        while True:
            response = await self._http.get(
                f"{self._url}/kpi",
                params=query,
                headers=await self._headers(),
                timeout=httpx.Timeout(10, read=max_wait),
            )
            if response.status_code == 200:
                return parse_query_answer(response.content)
            retry_after = _parse_retry_after(response.headers.get("retry-after", "")) or 0
            pause = max(pause, retry_after) * random.uniform(1.0, 1.3)  # noqa: S311
            if response.status_code not in _RETRYABLE_QUERY_STATUSES or time.monotonic() + pause > deadline:
                raise _client_error(response.status_code, response.content)
            await asyncio.sleep(pause)

    async def _stream_once(self) -> AsyncIterator[ClientMessage]:
        self._set_state(State.CONNECTING)
        try:
            headers = await self._headers()
        except (httpx.HTTPError, OSError):  # the token endpoint does not answer
            raise _Disconnected from None
        try:
            async with self._http.stream(
                "GET",
                f"{self._url}/v1/events",
                params=self._params(),
                headers={"Accept": "text/event-stream", **headers},
                timeout=httpx.Timeout(10.0, read=self._idle_timeout),
            ) as response:
                if response.status_code != 200:
                    _raise_for_status(
                        response.status_code, await response.aread(), response.headers.get("retry-after", "")
                    )
                self._set_state(State.CONNECTED)
                self._rejected_connections = 0
                async for message in self._read_messages(response):
                    yield message
        except (httpx.HTTPError, ValueError):
            raise _Disconnected from None
        raise _Disconnected(self._retry_seconds)

    async def _read_messages(self, response: httpx.Response) -> AsyncIterator[ClientMessage]:
        async for event in read_events(response):
            self._set_state(State.LISTENING)
            self._backoff = 0.0
            if event.retry is not None and event.retry >= 0:
                self._retry_seconds = event.retry / 1000
            message = self._parse_message(event)
            if message is not None:
                yield message
            if isinstance(message, TableEvent):
                self._cursor_store.mark_handled(message.id)
            elif event.id and event.id != self._cursor_store.cursor:
                self._cursor_store.set_cursor(event.id)
            if event.event == "bye":
                raise _Disconnected(self._retry_seconds)

    def _parse_message(self, event: ServerSentEvent) -> ClientMessage | None:
        if not event.data or event.event not in ("message", "reset", "skipped"):
            return None
        if event.event == "message":
            table_event = parse_event(event.data)
            return None if self._cursor_store.is_handled(table_event.id) else table_event
        body: dict[str, Any] = json.loads(event.data)
        if event.event == "skipped":
            return Skipped(int(body["count"]))
        return Reset(str(body["cursor"]), str(body["reason"]))

    def _params(self) -> dict[str, str]:
        params = {"tables": ",".join(self._tables), "after": self._cursor_store.cursor}
        params |= {"delivery": self._delivery} if self._delivery != "newest" else {}
        return {name: value for name, value in params.items() if value}

    async def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _next_backoff(self, requested: float | None) -> float:
        """Return the pause before a reconnect: as requested, else doubled each time; jittered to spread clients out."""
        if requested is not None:
            return requested * random.uniform(1.0, 1.3)  # noqa: S311 - no secret
        self._backoff = min(_MAX_BACKOFF_SECONDS, 2 * self._backoff or self._retry_seconds)
        return random.uniform(0.3, 1.0) * self._backoff  # noqa: S311 - no secret

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._on_state(state)


def _raise_for_status(status: int, body: bytes, retry_after: str) -> None:
    if status in _RETRYABLE_STATUSES:
        raise _Disconnected(_parse_retry_after(retry_after))
    raise _client_error(status, body)


def _parse_retry_after(retry_after: str) -> float | None:
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


def parameter_text(value: object) -> str:
    """Return a parameter of a query as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _client_error(status: int, body: bytes) -> ClientFailed:
    try:
        document = json.loads(body)
        return ClientFailed(status, str(document["error"])[:500], document)
    except (ValueError, KeyError, TypeError):
        return ClientFailed(status, "no answer of a gateway")
