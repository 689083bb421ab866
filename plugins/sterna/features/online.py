"""Answers at once: from the store, and from the replica where the store hasn't got them or doesn't answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from sterna.edges.secrets import Secrets
from sterna.edges.valkey.store import open_async_store, telling
from sterna.errors import CredentialError, FeaturesError, FeatureStoreUnreachable, Remedy, SternaError
from sterna.features import scripts
from sterna.features.codec import row_bytes
from sterna.features.model import (
    FIELDS,
    UNREADABLE,
    State,
    Value,
    read_state,
    read_value,
    state_key,
    too_old,
    value_head,
    value_key,
    view_digest,
)
from sterna.features.store import mark_of
from sterna.flights import Flight, Flights
from sterna.services.features import Features, Online, View

_DARK_SECONDS = 1.0  # for which a store that didn't answer isn't asked again
_SOURCE_AT_ONCE = 4
_SOURCE_MOST = 200  # questions that run or wait; those beyond would be answered when nobody waits any more
_TRIES, _PAUSE = 3, 2.0
_T = TypeVar("_T")


class How(StrEnum):
    """Where an answer comes from."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"


@dataclass(frozen=True)
class SourceRows:
    """Rows of a table at a snapshot.

    Args:
        snapshot: the snapshot; None for a table that had none then.
        at: its commit time, in milliseconds since 1970.
        rows: by id; an id without a row is absent.
        line: the snapshot and its ancestors.
    """

    snapshot: int | None
    at: int
    rows: Mapping[str, list[Any]]
    line: frozenset[int] = frozenset()


@dataclass(frozen=True)
class AsOf:
    """A time in the past: a snapshot, or the moment, in milliseconds since 1970, at which one was current."""

    snapshot: int | None = None
    moment: int | None = None


@dataclass(frozen=True)
class Turn:
    """A question's turn to read rows.

    Args:
        reader: who asks.
        place: waits for one of the places to read, and has it while the block runs.
    """

    reader: str
    place: Callable[[], AbstractAsyncContextManager[None]]


class Source(Protocol):
    """The region's replica, for single rows."""

    async def rows(self, view: View, ids: Sequence[str], as_of: AsOf | None, turn: Turn) -> SourceRows:
        """Return rows at a time, by default as the replica shows them now; cancelled, it ends what it reads.

        What is looked up before takes no place of those who read.
        """
        ...


async def _to_the_end(work: Coroutine[Any, Any, SourceRows]) -> SourceRows:
    return await work


@dataclass(frozen=True)
class Asker:
    """Who asks.

    Args:
        name: the reader; places for the replica are shared between readers.
        waits: waits for the replica's answer, which takes its time, and cancels it when the asker goes.
    """

    name: str = ""
    waits: Callable[[Coroutine[Any, Any, SourceRows]], Awaitable[SourceRows]] = _to_the_end


_ANYBODY = Asker()


@dataclass
class FeatureCounts:
    """What was told, by view and where it came from; and what went wrong."""

    told: dict[tuple[str, str], int] = field(default_factory=dict)
    dark: int = 0
    refused_fills: int = 0
    failed_fills: int = 0
    source: int = 0


class Status(StrEnum):
    """What there is of a value."""

    PRESENT = "present"
    NULL = "null"
    NOT_FOUND = "not_found"
    TOO_OLD = "too_old"


@dataclass(frozen=True)
class Told:
    """An answer for some ids of one view.

    Args:
        rows: by id, the values by column; None where there is no row, or one that is too old.
        snapshot: the oldest snapshot that it stands for; None: none.
        at: that one's commit time, in milliseconds since 1970.
        how: where it comes from.
        times: by id, the event time of each row that there is, too old ones included; None: the row says none.
    """

    rows: Mapping[str, Mapping[str, Any] | None]
    snapshot: int | None
    at: int
    how: How
    times: Mapping[str, str | None] = field(default_factory=dict)

    def status(self, id: str, column: str) -> Status:
        """Return what there is of a value."""
        row = self.rows[id]
        if row is None:
            return Status.TOO_OLD if id in self.times else Status.NOT_FOUND
        return Status.NULL if row[column] is None else Status.PRESENT


class OnlineStore:
    """A region's store within one event loop.

    Args:
        online: where it is.
        secrets: finds its credential.
    """

    def __init__(self, online: Online, secrets: Secrets) -> None:
        self._url = online.url
        self._client: Any = open_async_store(online.url, online.credential_id, secrets)
        self._dark_until = 0.0

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def read(self, view: str, ids: Sequence[str]) -> tuple[State, list[Value | None]]:
        """Return a view's state and what is there under some ids, asked for at once; `UNREADABLE`: it is no value."""

        async def asked() -> Any:
            pipeline = self._client.pipeline(transaction=True)  # the state, and values of that state
            pipeline.hmget(state_key(view), list(FIELDS))
            pipeline.mget([value_key(view, id) for id in ids])
            return await pipeline.execute()

        fields, values = await self.ask(asked)
        return read_state(fields), [None if data is None else read_value(data) or UNREADABLE for data in values]

    async def mark(self) -> str:
        """Return the server's mark; see `FeatureStore.mark`."""
        return mark_of(await self.ask(lambda: self._client.info()))

    async def fill(self, view: str, id: str, value: bytes, seen: State, seconds: int) -> bool:
        """Keep a row that was read from the replica; return whether it was taken.

        Args:
            view: the view.
            id: the id.
            value: what is kept.
            seen: the state that the row is no older than.
            seconds: for how long.
        """
        keys = [state_key(view), value_key(view, id)]
        given = [seen.epoch, seen.snapshot, value, seconds * 1000, seen.digest]
        return bool(await self.ask(lambda: self._client.eval(scripts.FILL, 2, *keys, *given)))

    async def ask(self, question: Callable[[], Any]) -> Any:
        """Return what the server answers, unless it was dark a moment ago.

        Raises:
            FeatureStoreUnreachable, CredentialError: it doesn't answer.
        """
        if time.monotonic() < self._dark_until:
            raise FeatureStoreUnreachable("the store of features did not answer a moment ago")
        try:
            with telling(self._url):
                return await question()
        except (FeatureStoreUnreachable, CredentialError):
            self._dark_until = time.monotonic() + _DARK_SECONDS
            raise


class FeatureReader:
    """Tells features of a region, within one event loop.

    Args:
        features: the section of the services file.
        store: the region's; None: it has none, and the replica answers.
        source: the region's replica.
        pause: seconds between two tries of the source.
        clock: tells the time in seconds since 1970.
    """

    def __init__(
        self,
        features: Features,
        store: OnlineStore | None,
        source: Source,
        pause: float = _PAUSE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._source = store, source
        self._digests = {view.name: view_digest(view, features.entity_of(view)) for view in features.views}
        self.pause, self._clock = pause, clock
        self._flights = Flights[SourceRows](_SOURCE_AT_ONCE, _SOURCE_MOST - _SOURCE_AT_ONCE)
        self.counts = FeatureCounts()

    async def close(self) -> None:
        """End what the replica is asked, tell all who wait, and close the store's connections."""
        self._flights.close()
        if self._store is not None:
            await self._store.close()

    async def read(
        self, view: View, ids: Sequence[str], as_of: AsOf | None = None, asker: Asker = _ANYBODY
    ) -> Told | None:
        """Return the rows of some ids; None where the view's table is refused here.

        Args:
            view: the view.
            ids: as keys spell them, each once.
            as_of: a time in the past.
            asker: who asks.

        Raises:
            QueueFull: too many questions wait for the replica, or the place was needed for another reader.
            QueryEnded: `close` was called.
            SternaError: the replica doesn't say, at the last of three tries.
        """
        told = await self._past(view, ids, as_of, asker) if as_of else await self._now(view, ids, asker)
        if told is not None:
            self.counts.told[view.name, told.how] = self.counts.told.get((view.name, told.how), 0) + len(ids)
        return told

    async def _past(self, view: View, ids: Sequence[str], as_of: AsOf, asker: Asker) -> Told:
        found = await self._from_source(view, ids, as_of, asker)
        then = found.at if as_of.moment is None else as_of.moment
        return self._made(view, {id: found.rows.get(id) for id in ids}, (found.snapshot, found.at), How.BYPASS, then)

    async def _now(self, view: View, ids: Sequence[str], asker: Asker) -> Told | None:
        now = int(self._clock() * 1000)
        try:
            if self._store is None:
                raise FeatureStoreUnreachable("the region has no store of features")
            state, values = await self._store.read(view.name, ids)
            if state.refused:
                return None
            known = self._known(view, state, dict(zip(ids, values, strict=True)))
            # What can't be read may be a row: of a complete view, too, the replica knows.
            told = UNREADABLE not in values
            whole = told and len(known) < len(ids) and await self._whole(view, state)
        except (FeaturesError, CredentialError):
            self.counts.dark += 1
            state, known, whole = State(), {}, False
        missing = [id for id in ids if id not in known]
        stands = (state.snapshot, state.at)
        if whole or not missing:
            how = How.HIT if any(row is not None for row in known.values()) else How.MISS
            return self._made(view, {id: known.get(id) for id in ids}, stands, how, now)
        found = await self._from_source(view, missing, None, asker)
        # Of another services file's columns, a row would be read as if it had this one's.
        cache = view.kept is not None and state.snapshot is not None and self._usable(view, state)
        if cache:
            await self._fill(view, state, found)
        rows = {id: known[id] if id in known else found.rows.get(id) for id in ids}
        oldest = stands if known and state.snapshot is not None else (found.snapshot, found.at)
        return self._made(view, rows, oldest, How.MISS if cache else How.BYPASS, now)

    def _known(self, view: View, state: State, values: Mapping[str, Value | None]) -> dict[str, list[Any] | None]:
        """Return what the store says for certain: rows, and of a complete view what was deleted."""
        if not self._usable(view, state):
            return {}
        good = {id: value for id, value in values.items() if value is not None and value.epoch == state.epoch}
        return {id: value.row for id, value in good.items() if value.row is not None or view.serve == "complete"}

    def _usable(self, view: View, state: State) -> bool:
        return state.digest.partition("/")[0] == self._digests[view.name]

    async def _whole(self, view: View, state: State) -> bool:
        """Say whether what isn't in the store isn't in the table: asked after the look at the keys."""
        if self._store is None or view.serve != "complete" or not state.ready or not self._usable(view, state):
            return False
        return await self._store.mark() == state.ready

    async def _from_source(self, view: View, ids: Sequence[str], as_of: AsOf | None, asker: Asker) -> SourceRows:
        question = repr((view.name, tuple(ids), as_of))
        return await asker.waits(
            self._flights.join(question, lambda flight: self._asked(view, ids, as_of, flight), asker.name)
        )

    async def _asked(
        self, view: View, ids: Sequence[str], as_of: AsOf | None, flight: Flight[SourceRows]
    ) -> SourceRows:
        @asynccontextmanager
        async def place() -> AsyncIterator[None]:
            async with self._flights.slot(flight):
                self.counts.source += 1
                yield

        turn = Turn(flight.owner, place)
        return await tried(lambda: self._source.rows(view, ids, as_of, turn), self.pause)

    async def _fill(self, view: View, state: State, found: SourceRows) -> None:
        if self._store is None or found.snapshot is None or state.snapshot not in found.line:
            return  # the replica shows less than the store has been told of
        head = value_head(state.epoch, state.done, found.snapshot, found.at, gone=False)
        for id, row in found.rows.items():
            try:
                taken = await self._store.fill(view.name, id, head + row_bytes(row), state, view.kept or 0)
                self.counts.refused_fills += not taken
            except (FeaturesError, CredentialError):
                self.counts.failed_fills += 1
                return

    def _made(
        self,
        view: View,
        rows: Mapping[str, list[Any] | None],
        stands: tuple[int | None, int],
        how: How,
        now: int,
    ) -> Told:
        made: dict[str, Mapping[str, Any] | None] = {}
        times: dict[str, str | None] = {}
        for id, row in rows.items():
            named = None if row is None else dict(zip(view.columns, row, strict=True))
            if named is not None:
                times[id] = named[view.event_time] if view.event_time else None
            fresh = named is not None and not too_old(named, view, now)
            made[id] = {name: named[name] for name in view.features} if named is not None and fresh else None
        return Told(made, *stands, how, times)


async def tried(once: Callable[[], Awaitable[_T]], pause: float, tries: int = _TRIES) -> _T:
    """Return what something gives; what fails by an error that passes is tried again.

    Args:
        once: does it.
        pause: seconds between two tries.
        tries: how many there are.

    Raises:
        SternaError: the last try's.
    """
    for left in reversed(range(tries)):
        try:
            return await once()
        except SternaError as error:
            if error.remedy is not Remedy.RETRY or not left:
                raise
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")
