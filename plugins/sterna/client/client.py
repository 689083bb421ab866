"""The client itself: connects, reads, comes back, and hands on each event once."""

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

from sterna.client.figures import Figures, parse_figures
from sterna.client.memory import Memory
from sterna.client.messages import ClientMessage, Reset, Skipped, TableEvent, TableState, parse_event
from sterna.client.sse import BlockReader, SseBlock

Token = str | Callable[[], str] | Callable[[], Awaitable[str]] | None
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_SILENCE = 45.0  # seconds: three signs of life that did not come
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_TOKEN_TRIES = 2
_ASKED_AGAIN = frozenset({429, 502, 503})  # 504 is none: a query that runs too long does so again


class State(StrEnum):
    """What a client is doing, as people are shown it."""

    DISCONNECTED = "Disconnected"
    CONNECTING = "Connecting..."
    CONNECTED = "Connected"
    LISTENING = "Listening for messages..."
    FAILED = "Failed"


class ClientFailed(Exception):
    """The gateway refuses what is asked for: asking again would be refused again.

    Args:
        status: the HTTP status.
        error: what the gateway says.
        whole: the answer as it came; at 410 of a query its `current` has what is shown now.
    """

    def __init__(self, status: int, error: str, whole: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error
        self.whole = dict(whole or {})


class _Left(Exception):
    """The stream ended, and another try may go well."""

    def __init__(self, pause: float | None = None) -> None:
        super().__init__()
        self.pause = pause


class EventClient:
    """Follows the events of a region; iterate over it.

    An event counts as handled once the next one is asked for. So one during which the process died comes again, and
    one that was handled doesn't.

    Args:
        url: the gateway's, such as `https://eu.example:8080`.
        tables: patterns; none: all tables that the token may read.
        token: the token, or what gives one before each connection.
        memory: what was handled, and where the client is; default: as long as the object lives.
        after: where to begin without a memory of it; default: with what comes from now on.
        delivery: `newest`: when falling behind, the newest of each table; `all`: every event.
        on_state: called with each state that the client enters.
        silence: seconds without a sign of life after which a connection is taken for dead.
        http: the HTTP client to use, which stays open; default: one of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        tables: Sequence[str] = (),
        token: Token = None,
        memory: Memory | None = None,
        after: str = "",
        delivery: str = "newest",
        on_state: Callable[[State], None] = lambda state: None,
        silence: float = _SILENCE,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._tables = tuple(tables)
        self._token = token
        self._memory = memory if memory is not None else Memory()
        self._delivery = delivery
        self._on_state = on_state
        self._silence = silence
        self._own = http is None
        self._http = http or httpx.AsyncClient()
        self._retry = _FIRST_PAUSE
        self._pause = 0.0
        self._refused = 0  # connections that were refused, one after the other
        self.state = State.DISCONNECTED
        if after and not self._memory.cursor:
            self._memory.moved(after)

    @property
    def cursor(self) -> str:
        """Where the client is; "" before the first connection."""
        return self._memory.cursor

    async def __aenter__(self) -> EventClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enter(State.FAILED if isinstance(error, ClientFailed) else State.DISCONNECTED)
        if self._own:
            await self._http.aclose()

    async def __aiter__(self) -> AsyncIterator[ClientMessage]:
        """Yield what the gateway tells, for ever; connections that end are made anew.

        Raises:
            ClientFailed: the gateway refuses what is asked for.
        """
        while True:
            try:
                async for message in self._connection():
                    yield message
            except ClientFailed as error:
                self._refused += 1
                # A token may have ended on the way: a fresh one has one try.
                if error.status != 401 or self._refused >= _TOKEN_TRIES or not callable(self._token):
                    self._enter(State.FAILED)
                    raise
            except _Left as left:
                self._enter(State.DISCONNECTED)
                await asyncio.sleep(self._next_pause(left.pause))

    async def tables(self) -> list[TableState]:
        """Return what the tables show now. Ask after a `Reset`, or for a first picture; events go on from there.

        Without a cursor the client begins at what this shows, so that nothing is missed between the two.

        Raises:
            ClientFailed: the gateway refuses.
            httpx.HTTPError: it does not answer.
        """
        params = {"tables": ",".join(self._tables)} if self._tables else {}
        answer = await self._http.get(f"{self._url}/v1/tables", params=params, headers=await self._headers())
        if answer.status_code != 200:
            raise _failed(answer.status_code, answer.content)
        said = answer.json()
        if not self._memory.cursor:
            self._memory.moved(said["cursor"])
        return [TableState(each["table_identifier"], each["snapshot_id"]) for each in said["tables"]]

    async def kpi(
        self,
        name: str = "",
        *,
        snapshot_id: int | None = None,
        at: str = "",
        params: Mapping[str, object] | None = None,
        patience: float = 60.0,
    ) -> Figures:
        """Return what a named query answers at exactly one version of its tables.

        Where the gateway says "later" it is asked again, as it wishes.

        Args:
            name: the query; "": the default, or the only one.
            snapshot_id: the snapshot of its one table, such as an event's `new_snapshot_id`.
            at: or a cursor, such as an event's `id`: all its tables as that commit shows them.
            params: the query's own parameters.
            patience: seconds after which it is given up.

        Raises:
            ClientFailed: the gateway gives no figures.
            httpx.HTTPError: it does not answer.
        """
        given = {"name": name, "snapshotId": "" if snapshot_id is None else str(snapshot_id), "at": at}
        wish = {key: text for key, text in given.items() if text}
        wish |= {key: parameter_text(value) for key, value in (params or {}).items()}
        until, pause = time.monotonic() + patience, _FIRST_PAUSE
        while True:
            answer = await self._http.get(
                f"{self._url}/kpi", params=wish, headers=await self._headers(), timeout=httpx.Timeout(10, read=patience)
            )
            if answer.status_code == 200:
                return parse_figures(answer.content)
            pause = max(pause, _seconds(answer.headers.get("retry-after", "")) or 0) * random.uniform(1.0, 1.3)  # noqa: S311 - no secret
            if answer.status_code not in _ASKED_AGAIN or time.monotonic() + pause > until:
                raise _failed(answer.status_code, answer.content)
            await asyncio.sleep(pause)

    async def _connection(self) -> AsyncIterator[ClientMessage]:
        self._enter(State.CONNECTING)
        try:
            headers = await self._headers()
        except (httpx.HTTPError, OSError):  # whoever gives tokens doesn't answer
            raise _Left from None
        try:
            async with self._http.stream(
                "GET",
                f"{self._url}/v1/events",
                params=self._params(),
                headers={"Accept": "text/event-stream", **headers},
                timeout=httpx.Timeout(10.0, read=self._silence),
            ) as answer:
                if answer.status_code != 200:
                    _refuse(answer.status_code, await answer.aread(), answer.headers.get("retry-after", ""))
                self._enter(State.CONNECTED)
                self._refused = 0
                async for message in self._messages(answer):
                    yield message
        except (httpx.HTTPError, ValueError):
            raise _Left from None
        raise _Left(self._retry)

    async def _messages(self, answer: httpx.Response) -> AsyncIterator[ClientMessage]:
        reader = BlockReader()
        async for text in answer.aiter_text():
            for block in reader.feed(text):
                self._enter(State.LISTENING)
                self._pause = 0.0
                if block.retry is not None:
                    self._retry = block.retry / 1000
                message = self._understood(block)
                if message is not None:
                    yield message
                if isinstance(message, TableEvent):
                    self._memory.handled(message.id)
                elif block.id and block.id != self._memory.cursor:
                    self._memory.moved(block.id)
                if block.event == "bye":
                    raise _Left(self._retry)

    def _understood(self, block: SseBlock) -> ClientMessage | None:
        if not block.data or block.event not in ("message", "reset", "skipped"):
            return None
        if block.event == "message":
            event = parse_event(block.data)
            return None if self._memory.knows(event.id) else event
        said: dict[str, Any] = json.loads(block.data)
        if block.event == "skipped":
            return Skipped(int(said["count"]))
        return Reset(str(said["cursor"]), str(said["reason"]))

    def _params(self) -> dict[str, str]:
        found = {"tables": ",".join(self._tables), "after": self._memory.cursor}
        found |= {"delivery": self._delivery} if self._delivery != "newest" else {}
        return {name: value for name, value in found.items() if value}

    async def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _next_pause(self, asked: float | None) -> float:
        """Return how long to wait: as the gateway asks, else twice as long each time; never all clients at once."""
        if asked is not None:
            return asked * random.uniform(1.0, 1.3)  # noqa: S311 - no secret
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or self._retry)
        return random.uniform(0.3, 1.0) * self._pause  # noqa: S311 - no secret

    def _enter(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._on_state(state)


def _refuse(status: int, body: bytes, retry_after: str) -> None:
    if status in _LATER:
        raise _Left(_seconds(retry_after))
    raise _failed(status, body)


def _seconds(retry_after: str) -> float | None:
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


def parameter_text(value: object) -> str:
    """Return a parameter of a query as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _failed(status: int, body: bytes) -> ClientFailed:
    try:
        whole = json.loads(body)
        return ClientFailed(status, str(whole["error"])[:500], whole)
    except (ValueError, KeyError, TypeError):
        return ClientFailed(status, "no answer of a gateway")
