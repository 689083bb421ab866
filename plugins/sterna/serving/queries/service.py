"""Answering named queries: from a request's parameters to a status, a body and headers, for any transport."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sterna import errors
from sterna.catalog.model import Key, key_name
from sterna.concurrency.cancellation import Stop
from sterna.concurrency.lookups import Lookups
from sterna.concurrency.single_flight import Flight, SingleFlight
from sterna.config.sections.queries import NamedQueries
from sterna.errors import NotAllowed, QueryFailed, SternaError, UnfitParameters
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.bodies import build_answer_body, build_job, id_text, require_admitted_tables
from sterna.serving.queries.counters import QueryCounts
from sterna.serving.queries.job import PinnedTable, QueryJob
from sterna.serving.queries.request import MomentPin, Question, find_query, parse_request
from sterna.serving.queries.snapshots import SnapshotResolver
from sterna.serving.queries.spark_fallback import SparkFallback
from sterna.serving.queries.sql import check_sql
from sterna.serving.queries.worker_pool import QueryWorkerPool

_LOG = logging.getLogger("sterna.serving.queries")
_R = TypeVar("_R")
Current = tuple[str, dict[str, int | None]]
"""A cursor, and snapshots by table."""


@dataclass(frozen=True)
class AnswerStatus:
    """The response to an error.

    Args:
        code: HTTP's.
        message: replaces the error's own message, unless "".
        retry_after: seconds before a retry; None: no retry.
    """

    code: int
    message: str = ""
    retry_after: int | None = None


_MAX_REPAIR_SECONDS = 2.0  # for which answers wait for a catalog that doesn't answer
_UNAVAILABLE = AnswerStatus(503, "A store or the catalog does not answer", 5)
FAILED = AnswerStatus(500, "Error processing request")
# The nearest base class of an error counts. Only messages about the client's own input are sent.
STATUSES: dict[type[SternaError], AnswerStatus] = {
    errors.BadRequest: AnswerStatus(400),
    errors.UnfitParameters: AnswerStatus(400, "the query can't be answered for these parameters"),
    errors.NotAllowed: AnswerStatus(403),
    errors.NoSuchQuery: AnswerStatus(404),
    errors.NoSuchMoment: AnswerStatus(400),
    errors.NoSuchVersion: AnswerStatus(404),
    errors.StaysBehind: AnswerStatus(404),
    errors.SnapshotGone: AnswerStatus(410),
    errors.ObjectMissing: AnswerStatus(410, "Files of the snapshot are gone"),
    errors.AnswerTooLarge: AnswerStatus(413),
    errors.QueueFull: AnswerStatus(429, retry_after=1),
    errors.OutOfTime: AnswerStatus(504),
    errors.QueryEnded: AnswerStatus(503, "The gateway is ending", 1),
    errors.NotYetHere: AnswerStatus(503, retry_after=1),
    errors.CatalogUnreachable: _UNAVAILABLE,
    errors.DatabaseUnreachable: _UNAVAILABLE,
    errors.StoreUnreachable: _UNAVAILABLE,
    SternaError: FAILED,
}


@dataclass(frozen=True)
class QueryRequest:
    """One request.

    Args:
        params: its parameters, each with all its values.
        may_read: returns whether the reader may read a table.
        etags: those of answers that the client has (`If-None-Match`).
        request_id: the number under which the log has it; "": one is made.
        reader: identifies the reader; places are shared between readers.
    """

    params: Mapping[str, Sequence[str]]
    may_read: Callable[[str], bool]
    etags: frozenset[str] = frozenset()
    request_id: str = ""
    reader: str = ""


@dataclass(frozen=True)
class Answer:
    """What a client gets."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class AnswerCache:
    """The answers that were asked for last, by their question's digest, up to a number of bytes in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._size = max_bytes, 0
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return an answer, or None; it counts as used."""
        if digest in self._answers:
            self._answers.move_to_end(digest)
        return self._answers.get(digest)

    def put(self, digest: str, answer: bytes) -> None:
        """Keep an answer unless it is larger than the cache; the least recently used ones go."""
        if len(answer) > self._max_bytes:
            return
        self._size += len(answer) - len(self._answers.pop(digest, b""))
        self._answers[digest] = answer
        while self._size > self._max_bytes:
            self._size -= len(self._answers.popitem(last=False)[1])


class QueryService:
    """Answers requests for a region's named queries, within one event loop.

    Args:
        context: the region; the primary is not used.
        queries: those of the services file, whose SQL was checked.
        run: runs a job; default: in processes of its own.
        current_seconds: how long the current snapshots in a 410 are reused.
        repair_seconds: how long it is believed that no repair has overwritten files.

    Attributes:
        workers: the processes of its own.
        spark: reads what they don't read exactly.
        snapshots: finds which snapshot a question is about.
    """

    def __init__(
        self,
        context: RegionContext,
        queries: NamedQueries,
        run: Callable[[QueryJob], dict[str, Any]] | None = None,
        *,
        current_seconds: float = 1.0,
        repair_seconds: float = 5.0,
    ) -> None:
        limits = queries.limits
        self.context, self._queries = context, queries
        self.spark = SparkFallback(context)
        self.workers = QueryWorkerPool(0 if run else limits.max_concurrency, self.spark.fetch)
        self._run: Callable[[QueryJob, Stop], dict[str, Any]] = (
            (lambda job, stop: run(job)) if run else self.workers.run
        )
        self.counts = QueryCounts()
        self.ready = self.closing = False
        self.snapshots = SnapshotResolver(context)
        self._current_seconds, self._repair_seconds = current_seconds, repair_seconds
        self._repair: str | None = None
        self._repair_expires_at = 0.0
        self._current_lookups: dict[tuple[Key, ...], tuple[float, asyncio.Future[Current]]] = {}
        self._answer_cache = AnswerCache(limits.cache)
        self._flights = SingleFlight[bytes](limits.max_concurrency, limits.queue)
        self._runs = ThreadPoolExecutor(limits.max_concurrency, thread_name_prefix="sterna-queries")
        self._lookups = Lookups[Any]("sterna-pins", limits.max_concurrency + limits.queue)

    async def answer(self, request: QueryRequest) -> Answer:
        """Answer a request; whatever goes wrong is an answer, too.

        A cancelled call ends the run unless other calls wait for the same answer.
        """
        answer = await self._answer_or_error(request, request.request_id or uuid.uuid4().hex)
        if answer.status >= 400:
            self.counts.errors[answer.status] += 1
        return answer

    async def warm(self) -> None:
        """Start the worker processes, so that the first requests don't wait for that; then the service is `ready`.

        It is ready even if a process doesn't start: the cause is logged, and each run tries again.
        """
        try:
            await self._run_in(self._runs, self._warm)
        except (SternaError, ValueError) as error:
            _LOG.warning("no process that runs queries starts: %s", error)
        self.ready = True

    @property
    def active_count(self) -> int:
        """Questions that are worked on now, or wait for that."""
        return self._flights.in_flight_count

    def close(self) -> None:
        """End all runs and their waiting calls, for good; called from the service's own loop, or after it."""
        self.closing = True
        self._flights.close()
        self._runs.shutdown(wait=False, cancel_futures=True)
        self._lookups.close()
        self.workers.close()
        self.spark.close()

    def _warm(self) -> None:
        for query in self._queries.by_name.values():
            check_sql(query.sql)
        with suppress(SternaError):  # the first request tries again
            self._repair = self.snapshots.read_repair()
        self.workers.warm()

    async def _answer_or_error(self, request: QueryRequest, request_id: str) -> Answer:
        question: Question | None = None
        try:
            self._require_access(request)
            question = parse_request(self._queries, request.params)
            require_admitted_tables(self.context, question)
            if isinstance(question.pin, MomentPin):
                question = await self._fix(question, request.reader)
            question = replace(question, repair=await self._read_repair(request.reader))
            return await self._answer_question(question, request.etags, request.reader)
        except SternaError as error:
            if (
                isinstance(error, UnfitParameters)
                and question
                and not question.query.params.keys() & request.params.keys()
            ):
                error = QueryFailed(error.message)  # they are all the file's own
            return await self._error_answer(error, question, request_id)
        except Exception:  # noqa: BLE001 - a client gets no details
            _LOG.exception("request %s failed", request_id)
            return _json_answer(FAILED, {"error": FAILED.message, "request_id": request_id})

    def _require_access(self, request: QueryRequest) -> None:
        """Authorize before anything else: a reader learns nothing of a query whose tables it may not read."""
        name, query = find_query(self._queries, request.params)
        for table in map(key_name, check_sql(query.sql).tables):
            if not request.may_read(table):
                _LOG.info("a rule keeps table %s, of query %s, from the client", table, name)
                raise NotAllowed("a rule keeps a table of this query from you", table=table)

    async def _answer_question(self, question: Question, etags: frozenset[str], reader: str) -> Answer:
        digest = question.digest
        headers = {"ETag": f'"{digest}"', "Cache-Control": "private, no-cache"}
        if headers["ETag"] in etags:
            self.counts.unchanged += 1
            return Answer(304, b"", headers)
        body = self._answer_cache.get(digest)
        if body is not None:
            self.counts.cached += 1
        else:
            self.counts.shared += digest in self._flights
            body = await self._flights.join(digest, lambda flight: self._execute(question, flight), reader)
        return Answer(200, body, {**headers, "Content-Type": "application/json"})

    async def _execute(self, question: Question, flight: Flight[bytes]) -> bytes:
        # Outside of the slots: a catalog or store that hangs for one table holds up no query of others.
        tables: tuple[PinnedTable, ...] = await self._look_up(
            question, repr(question.pin), lambda: self.snapshots.resolve(question.tables, question.pin), flight.owner
        )
        async with self._flights.slot(flight):
            started, stop = time.monotonic(), Stop()
            try:
                body = await self._run_in(self._runs, lambda: self._run_question(question, tables, stop))
            except asyncio.CancelledError:
                stop.set()  # the thread would go on
                raise
            finally:
                self.counts.record_run(time.monotonic() - started)
        self._answer_cache.put(question.digest, body)
        return body

    def _run_question(self, question: Question, tables: tuple[PinnedTable, ...], stop: Stop) -> bytes:
        output = self._run(build_job(self.context, self._queries.limits, question, tables), stop)
        body = build_answer_body(question, tables, output)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    async def _error_answer(self, error: SternaError, question: Question | None, request_id: str) -> Answer:
        status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
        level = logging.ERROR if status.code == FAILED.code else logging.INFO
        # A client's input is not logged; the response says what is wrong with it.
        client_sees_reason = status.code in (400, 404) and not status.message
        reason = "" if client_sees_reason else f": {error}" + (f" ({error.hint})" if error.hint else "")
        _LOG.log(level, "request %s: %d %s%s", request_id, status.code, type(error).__name__, reason)
        body: dict[str, Any] = {"error": status.message or error.message, "request_id": request_id}
        if status.code == 410 and question is not None:
            with suppress(SternaError, RuntimeError):  # the latter: the service was closed meanwhile
                body["current"] = await self._read_current(question)
        return _json_answer(status, body)

    async def _read_current(self, question: Question) -> dict[str, Any]:
        expires_at, lookup = self._current_lookups.get(question.tables, (0.0, None))
        if lookup is None or expires_at <= time.monotonic():
            lookup = asyncio.ensure_future(
                self._look_up(question, "current", lambda: self.snapshots.read_current(question.tables))
            )
            self._current_lookups[question.tables] = time.monotonic() + self._current_seconds, lookup
        cursor, snapshots = await asyncio.shield(lookup)  # others wait for the very same
        return {"cursor": cursor, "snapshots": {name: id_text(snapshot) for name, snapshot in snapshots.items()}}

    async def _read_repair(self, reader: str) -> str:
        """Return the last repair, as it was some seconds ago at most; while the catalog is dark, as it was last known.

        Raises:
            CatalogError: the catalog doesn't answer, and never has.
        """
        known, started = self._repair, time.monotonic()
        if known is not None and started < self._repair_expires_at:
            return known
        lookup = self._lookups.run("", "repair", self.snapshots.read_repair, reader)
        try:
            repair: str = await asyncio.wait_for(lookup, None if known is None else _MAX_REPAIR_SECONDS)
        except (SternaError, TimeoutError):
            if known is None:
                raise
            return known
        self._repair, self._repair_expires_at = repair, started + self._repair_seconds
        return repair

    async def _fix(self, question: Question, reader: str) -> Question:
        """Find the commit that a moment leads to, once for all that name it in the same moment."""
        fixed: Question = await self._look_up(
            question, repr(question.pin), lambda: self.snapshots.fix(question), reader
        )
        return replace(question, pin=fixed.pin)

    async def _look_up(self, question: Question, topic: str, read: Callable[[], _R], reader: str = "") -> _R:
        """Look up a question's tables in catalog and store."""
        answer: _R = await self._lookups.run(" ".join(map(key_name, question.tables)), topic, read, reader)
        return answer

    @staticmethod
    async def _run_in(pool: ThreadPoolExecutor, work: Callable[[], _R]) -> _R:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _json_answer(status: AnswerStatus, body: Mapping[str, Any]) -> Answer:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    if status.retry_after is not None:
        headers["Retry-After"] = str(status.retry_after)
    return Answer(status.code, json.dumps(body, ensure_ascii=False).encode(), headers)
