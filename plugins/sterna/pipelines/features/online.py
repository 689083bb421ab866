"""Answers at once: from the store, and from the replica where the store hasn't got them or doesn't answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from sterna.concurrency.single_flight import Flight, SingleFlight
from sterna.config.secrets import Secrets
from sterna.config.sections.features import Features, FeatureView, OnlineConfig
from sterna.errors import CredentialError, FeaturesError, FeatureStoreUnreachable, Remedy, SternaError
from sterna.pipelines.features import scripts
from sterna.pipelines.features.codec import row_bytes
from sterna.pipelines.features.model import (
    FIELDS,
    UNREADABLE,
    State,
    Value,
    is_too_old,
    read_state,
    read_value,
    state_key,
    value_head,
    value_key,
    view_digest,
)
from sterna.pipelines.features.store import parse_server_id
from sterna.pipelines.features.valkey import open_async_store, translate_errors

_UNAVAILABLE_SECONDS = 1.0  # the pause after a failed read of the store
_MAX_SOURCE_READS = 4
_MAX_SOURCE_QUESTIONS = 200  # reads that run or wait; further ones would be answered too late
_MAX_ATTEMPTS, _RETRY_SECONDS = 3, 2.0
_T = TypeVar("_T")


class CacheStatus(StrEnum):
    """Where an answer comes from."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"


@dataclass(frozen=True)
class SourceRows:
    """Rows of a table at a snapshot.

    Args:
        snapshot: the snapshot; None for a table that had none then.
        committed_ms: its commit time, in milliseconds since 1970.
        rows: by id; an id without a row is absent.
        lineage: the snapshot and its ancestors.
    """

    snapshot: int | None
    committed_ms: int
    rows: Mapping[str, list[Any]]
    lineage: frozenset[int] = frozenset()


@dataclass(frozen=True)
class AsOf:
    """A time in the past: a snapshot, or the moment, in milliseconds since 1970, at which one was current."""

    snapshot: int | None = None
    moment: int | None = None


@dataclass(frozen=True)
class ReadSlot:
    """A question's turn to read rows.

    Args:
        requester: the reader, for the sharing of places.
        acquire: waits for one of the places to read, and has it while the block runs.
    """

    requester: str
    acquire: Callable[[], AbstractAsyncContextManager[None]]


class Source(Protocol):
    """The region's replica, for single rows."""

    async def rows(self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, slot: ReadSlot) -> SourceRows:
        """Return rows at a time, by default as the replica shows them now; cancelled, it ends what it reads.

        What is looked up before takes no place of a reader.
        """


async def _run_to_end(work: Coroutine[Any, Any, SourceRows]) -> SourceRows:
    return await work


@dataclass(frozen=True)
class Requester:
    """The origin of a request.

    Args:
        name: the reader; places for the replica are shared between readers.
        wait_for: waits for the replica's answer, which takes its time, and cancels it when the asker goes.
    """

    name: str = ""
    wait_for: Callable[[Coroutine[Any, Any, SourceRows]], Awaitable[SourceRows]] = _run_to_end


_ANONYMOUS = Requester()


@dataclass
class FeatureCounts:
    """Counters of answers, by view and source, and of failures."""

    answers: dict[tuple[str, str], int] = field(default_factory=dict)
    unavailable: int = 0
    refused_fills: int = 0
    failed_fills: int = 0
    source_reads: int = 0


class Status(StrEnum):
    """What there is of a value."""

    PRESENT = "present"
    NULL = "null"
    NOT_FOUND = "not_found"
    TOO_OLD = "too_old"


@dataclass(frozen=True)
class FeatureAnswer:
    """An answer for some ids of one view.

    Args:
        rows: by id, the values by column; None where there is no row, or one that is too old.
        snapshot: the oldest snapshot of its rows; None: none.
        committed_ms: that one's commit time, in milliseconds since 1970.
        cache_status: where it comes from.
        times: by id, the event time of each row that there is, too old ones included; None: the row says none.
    """

    rows: Mapping[str, Mapping[str, Any] | None]
    snapshot: int | None
    committed_ms: int
    cache_status: CacheStatus
    times: Mapping[str, str | None] = field(default_factory=dict)

    def status(self, id: str, column: str) -> Status:
        """Return what there is of a value."""
        row = self.rows[id]
        if row is None:
            return Status.TOO_OLD if id in self.times else Status.NOT_FOUND
        return Status.NULL if row[column] is None else Status.PRESENT


class OnlineStore:
    """A region's store within one event loop."""

    def __init__(self, online: OnlineConfig, secrets: Secrets) -> None:
        self._url = online.url
        self._client: Any = open_async_store(online.url, online.credential_id, secrets)
        self._unavailable_until = 0.0

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def read(self, view: str, ids: Sequence[str]) -> tuple[State, list[Value | None]]:
        """Return a view's state and the values of some ids, read in one step; `UNREADABLE`: not decodable."""

        async def read_pipeline() -> Any:
            pipeline = self._client.pipeline(transaction=True)  # the state, and values of that state
            pipeline.hmget(state_key(view), list(FIELDS))
            pipeline.mget([value_key(view, id) for id in ids])
            return await pipeline.execute()

        fields, values = await self.call(read_pipeline)
        return read_state(fields), [None if data is None else read_value(data) or UNREADABLE for data in values]

    async def server_id(self) -> str:
        """Return the server's id; see `FeatureStore.server_id`."""
        return parse_server_id(await self.call(lambda: self._client.info()))

    async def fill(self, view: str, id: str, value: bytes, expected_state: State, seconds: int) -> bool:
        """Keep a row that was read from the replica; return whether it was taken.

        Args:
            value: what is kept.
            expected_state: the state that the row is no older than.
        """
        keys = [state_key(view), value_key(view, id)]
        arguments = [expected_state.generation, expected_state.snapshot, value, seconds * 1000, expected_state.digest]
        return bool(await self.call(lambda: self._client.eval(scripts.FILL, 2, *keys, *arguments)))

    async def call(self, operation: Callable[[], Any]) -> Any:
        """Return what the server answers, unless it was dark a moment ago.

        Raises:
            FeatureStoreUnreachable, CredentialError: it doesn't answer.
        """
        if time.monotonic() < self._unavailable_until:
            raise FeatureStoreUnreachable("the store of features did not answer a moment ago")
        try:
            with translate_errors(self._url):
                return await operation()
        except (FeatureStoreUnreachable, CredentialError):
            self._unavailable_until = time.monotonic() + _UNAVAILABLE_SECONDS
            raise


class FeatureReader:
    """Reads features of a region, within one event loop.

    Args:
        features: the section of the services file.
        store: the region's; None: it has none, and the replica answers.
        source: the region's replica.
        retry_seconds: seconds between two tries of the source.
        clock: returns the Unix time.
    """

    def __init__(
        self,
        features: Features,
        store: OnlineStore | None,
        source: Source,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._source = store, source
        self._digests = {view.name: view_digest(view, features.entity_of(view)) for view in features.views}
        self.retry_seconds, self._clock = retry_seconds, clock
        self._flights = SingleFlight[SourceRows](_MAX_SOURCE_READS, _MAX_SOURCE_QUESTIONS - _MAX_SOURCE_READS)
        self.counts = FeatureCounts()

    async def close(self) -> None:
        """Cancel reads of the replica, end waiting requests, and close the store's connections."""
        self._flights.close()
        if self._store is not None:
            await self._store.close()

    async def read(
        self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None = None, requester: Requester = _ANONYMOUS
    ) -> FeatureAnswer | None:
        """Return the rows of some ids; None where the view's table is refused here.

        Args:
            ids: as keys spell them, each once.
            as_of: a time in the past.
            requester: the reader, for the sharing of places.

        Raises:
            QueueFull: too many questions wait for the replica, or the place was needed for another reader.
            QueryEnded: `close` was called.
            SternaError: the replica could not be read in three attempts.
        """
        answer = (
            await self._read_past(view, ids, as_of, requester)
            if as_of
            else await self._read_current(view, ids, requester)
        )
        if answer is not None:
            self.counts.answers[view.name, answer.cache_status] = self.counts.answers.get(
                (view.name, answer.cache_status), 0
            ) + len(ids)
        return answer

    async def _read_past(
        self, view: FeatureView, ids: Sequence[str], as_of: AsOf, requester: Requester
    ) -> FeatureAnswer:
        source_rows = await self._read_source(view, ids, as_of, requester)
        as_of_ms = source_rows.committed_ms if as_of.moment is None else as_of.moment
        return self._build_answer(
            view,
            {id: source_rows.rows.get(id) for id in ids},
            (source_rows.snapshot, source_rows.committed_ms),
            CacheStatus.BYPASS,
            as_of_ms,
        )

    async def _read_current(self, view: FeatureView, ids: Sequence[str], requester: Requester) -> FeatureAnswer | None:
        now = int(self._clock() * 1000)
        try:
            if self._store is None:
                raise FeatureStoreUnreachable("the region has no store of features")
            state, values = await self._store.read(view.name, ids)
            if state.exclusion:
                return None
            stored = self._stored_rows(view, state, dict(zip(ids, values, strict=True)))
            # What can't be read may be a row: of a complete view, too, the replica decides.
            readable = UNREADABLE not in values
            complete = readable and len(stored) < len(ids) and await self._is_complete(view, state)
        except (FeaturesError, CredentialError):
            self.counts.unavailable += 1
            state, stored, complete = State(), {}, False
        missing = [id for id in ids if id not in stored]
        position = (state.snapshot, state.committed_ms)
        if complete or not missing:
            cache_status = CacheStatus.HIT if any(row is not None for row in stored.values()) else CacheStatus.MISS
            return self._build_answer(view, {id: stored.get(id) for id in ids}, position, cache_status, now)
        source_rows = await self._read_source(view, missing, None, requester)
        # Of another services file's columns, a row would be read as if it had this one's.
        cacheable = (
            view.retention_seconds is not None and state.snapshot is not None and self._has_current_digest(view, state)
        )
        if cacheable:
            await self._fill_store(view, state, source_rows)
        rows = {id: stored[id] if id in stored else source_rows.rows.get(id) for id in ids}
        oldest = position if stored and state.snapshot is not None else (source_rows.snapshot, source_rows.committed_ms)
        return self._build_answer(view, rows, oldest, CacheStatus.MISS if cacheable else CacheStatus.BYPASS, now)

    def _stored_rows(
        self, view: FeatureView, state: State, values: Mapping[str, Value | None]
    ) -> dict[str, list[Any] | None]:
        """Return what the store proves: rows and, for a complete view, deletions."""
        if not self._has_current_digest(view, state):
            return {}
        current = {
            id: value for id, value in values.items() if value is not None and value.generation == state.generation
        }
        return {id: value.row for id, value in current.items() if value.row is not None or view.serve == "complete"}

    def _has_current_digest(self, view: FeatureView, state: State) -> bool:
        return state.digest.partition("/")[0] == self._digests[view.name]

    async def _is_complete(self, view: FeatureView, state: State) -> bool:
        """Return whether ids missing in the store are missing in the table; to be called after the keys were read."""
        if (
            self._store is None
            or view.serve != "complete"
            or not state.complete_server
            or not self._has_current_digest(view, state)
        ):
            return False
        return await self._store.server_id() == state.complete_server

    async def _read_source(
        self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, requester: Requester
    ) -> SourceRows:
        question = repr((view.name, tuple(ids), as_of))
        return await requester.wait_for(
            self._flights.join(question, lambda flight: self._read_flight(view, ids, as_of, flight), requester.name)
        )

    async def _read_flight(
        self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, flight: Flight[SourceRows]
    ) -> SourceRows:
        @asynccontextmanager
        async def acquire() -> AsyncIterator[None]:
            async with self._flights.slot(flight):
                self.counts.source_reads += 1
                yield

        slot = ReadSlot(flight.owner, acquire)
        return await retry(lambda: self._source.rows(view, ids, as_of, slot), self.retry_seconds)

    async def _fill_store(self, view: FeatureView, state: State, source_rows: SourceRows) -> None:
        if self._store is None or source_rows.snapshot is None or state.snapshot not in source_rows.lineage:
            return  # the replica is behind the store
        head = value_head(
            state.generation, state.finished_run, source_rows.snapshot, source_rows.committed_ms, gone=False
        )
        for id, row in source_rows.rows.items():
            try:
                taken = await self._store.fill(view.name, id, head + row_bytes(row), state, view.retention_seconds or 0)
                self.counts.refused_fills += not taken
            except (FeaturesError, CredentialError):
                self.counts.failed_fills += 1
                return

    def _build_answer(
        self,
        view: FeatureView,
        rows: Mapping[str, list[Any] | None],
        position: tuple[int | None, int],
        cache_status: CacheStatus,
        now: int,
    ) -> FeatureAnswer:
        visible: dict[str, Mapping[str, Any] | None] = {}
        times: dict[str, str | None] = {}
        for id, row in rows.items():
            by_column = None if row is None else dict(zip(view.columns, row, strict=True))
            if by_column is not None:
                times[id] = by_column[view.event_time] if view.event_time else None
            is_fresh = by_column is not None and not is_too_old(by_column, view, now)
            visible[id] = (
                {name: by_column[name] for name in view.features} if by_column is not None and is_fresh else None
            )
        return FeatureAnswer(visible, *position, cache_status, times)


async def retry(operation: Callable[[], Awaitable[_T]], retry_seconds: float, attempts: int = _MAX_ATTEMPTS) -> _T:
    """Return what something gives; what fails by an error that passes is tried again.

    Args:
        retry_seconds: seconds between two tries.
        attempts: how many there are.

    Raises:
        SternaError: the last try's.
    """
    for remaining in reversed(range(attempts)):
        try:
            return await operation()
        except SternaError as error:
            if error.remedy is not Remedy.RETRY or not remaining:
                raise
        await asyncio.sleep(retry_seconds)
    raise AssertionError("unreachable")
