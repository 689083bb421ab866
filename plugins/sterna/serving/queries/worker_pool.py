"""Processes that run queries: kept warm, one query at a time each, ended where one doesn't keep its limits."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import sterna
from sterna.concurrency.cancellation import Stop
from sterna.errors import NeedsSpark, OutOfTime, QueryEnded, QueryFailed, SternaError
from sterna.serving.queries.job import QueryJob, SparkRequest, error_from_json, error_to_json

_MAX_JOBS_PER_WORKER = 500  # after that a child is replaced: libraries keep a little of what they took

_STOPPED_LINE = b"stopped"

Fetch = Callable[[QueryJob, SparkRequest, Path, float, Stop], str]
"""Reads with Spark what a job's process requests, into a file of a folder, within some seconds; returns its name."""


def refuse_spark(job: QueryJob, request: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
    """Reject the request: the `Fetch` of a region without Spark.

    Raises:
        NeedsSpark: always.
    """
    raise NeedsSpark(request.reason, table=job.tables[request.table].name)


class QueryWorkerPool:
    """A few processes that run queries; used from threads, no more at a time than there are.

    Args:
        count: how many there may be.
        fetch: reads what they don't read exactly.
        starting_seconds: until a process has to be ready.
        grace_seconds: a process ends a query by itself; one that is so late is ended from here.
    """

    def __init__(
        self, count: int, fetch: Fetch = refuse_spark, *, starting_seconds: float = 60.0, grace_seconds: float = 2.0
    ) -> None:
        self._count, self.fetch = count, fetch
        self.starting_seconds, self.grace_seconds = starting_seconds, grace_seconds
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._alive: set[_Worker] = set()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def idle(self) -> int:
        """How many more queries could run now."""
        return self._idle.qsize()

    @property
    def pids(self) -> frozenset[int]:
        """The processes that live."""
        with self._lock:
            return frozenset(worker.pid for worker in self._alive)

    def run(self, job: QueryJob, stop: Stop | None = None) -> dict[str, Any]:
        """Run a query; waits for a process to be free.

        Args:
            stop: ends it, from another thread.

        Returns:
            `types` and `rows`, as `sterna.serving.queries.engine.run.run_query` does.

        Raises:
            QueryError, StoreError, TableError: as that does.
            QueryFailed: the process died.
            QueryEnded: `close` was called, or it was stopped.
        """
        worker = self._idle.get()
        try:
            worker = worker or self._start_worker()
            answer = worker.run(job, self.fetch, stop or Stop(), self.grace_seconds)
        except BaseException:
            self._end_worker(worker)
            worker = None
            raise
        finally:
            if worker is not None and (worker.jobs >= _MAX_JOBS_PER_WORKER or self._closed):
                self._end_worker(worker)
                worker = None
            self._idle.put(worker)
        if "error" in answer:
            raise error_from_json(answer)
        return answer

    def warm(self) -> None:
        """Start all processes, so that no query waits for that.

        Raises:
            QueryFailed: one doesn't start.
            QueryEnded: `close` was called.
        """
        acquired = [self._idle.get() for _ in range(self._count)]
        try:
            for index, worker in enumerate(acquired):
                acquired[index] = worker or self._start_worker()
        finally:
            for worker in acquired:
                self._idle.put(worker)

    def close(self) -> None:
        """End all processes, those at work with their query, too; no other is started."""
        with self._lock:
            self._closed = True
            for worker in self._alive:
                worker.kill()  # no more than that: a thread may be using its pipes
        for _ in range(self._count):
            with suppress(queue.Empty):
                self._end_worker(self._idle.get_nowait())
                self._idle.put(None)

    def _start_worker(self) -> _Worker:
        self._require_open()
        worker = _Worker(self.starting_seconds)
        with self._lock:
            self._alive.add(worker)
        try:
            self._require_open()  # it may have been closed while the process started
        except QueryEnded:
            self._end_worker(worker)
            raise
        return worker

    def _require_open(self) -> None:
        if self._closed:
            raise QueryEnded("queries are not run any more: the process is ending")

    def _end_worker(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.end()
            with self._lock:
                self._alive.discard(worker)


class _Worker:
    def __init__(self, seconds: float) -> None:
        self.jobs, self._grace = 0, 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sterna.serving.queries.engine.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read_lines, daemon=True, name="sterna-query-child").start()
        try:
            self._next_line(seconds)
        except OutOfTime:
            self.end()
            raise QueryFailed(f"the process that runs queries didn't start within {seconds:g} s") from None
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, job: QueryJob, fetch: Fetch, stop: Stop, grace: float) -> dict[str, Any]:
        self._grace = grace
        if stop.is_set:
            return error_to_json(_stopped_error())
        self.jobs += 1
        deadline = time.monotonic() + job.seconds
        self._send(job.to_json())
        with tempfile.TemporaryDirectory(prefix="sterna-query-") as folder:
            answer = self._read_answer(job, deadline, stop)
            while "wish" in answer:
                self._send(
                    _fetch_reply(job, SparkRequest.from_json(answer["wish"]), fetch, Path(folder), deadline, stop)
                )
                answer = self._read_answer(job, deadline, stop)
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        stdin = cast(IO[bytes], self._process.stdin)
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise QueryFailed("the process that runs queries died") from None

    def _read_answer(self, job: QueryJob, deadline: float, stop: Stop) -> dict[str, Any]:
        try:
            with stop.on_set(lambda: self._lines.put(_STOPPED_LINE)):
                line = self._next_line(max(0.0, deadline - time.monotonic()) + self._grace)
                while line == _STOPPED_LINE and not stop.is_set:  # an earlier query's, which ended at the same moment
                    line = self._next_line(max(0.0, deadline - time.monotonic()) + self._grace)
            if stop.is_set:
                return self._stop(line)
        except OutOfTime:
            raise OutOfTime(f"the query ran for more than {job.seconds:g} s") from None
        return json.loads(line)  # type: ignore[no-any-return]

    def _stop(self, line: bytes) -> dict[str, Any]:
        """Have the process end its query, so that it is there for the next one; what it answers is of no interest."""
        self._send({"stop": True})
        while line == _STOPPED_LINE or "wish" in json.loads(line):
            line = self._next_line(self._grace)
        return error_to_json(_stopped_error())

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _read_lines(self) -> None:
        with suppress(ValueError):  # closed meanwhile
            for line in cast(IO[bytes], self._process.stdout):
                self._lines.put(line)
        self._lines.put(b"")

    def _next_line(self, seconds: float) -> bytes:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise OutOfTime(f"no answer within {seconds:g} s") from None
        if not line.endswith(b"\n") and line != _STOPPED_LINE:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self._grace)
            raise QueryFailed(f"the process that runs queries died: {self._process.returncode}")
        return line


def _environment() -> dict[str, str]:
    """Return a child's environment: no credential of another's, and memory that is given back."""
    package_root = str(Path(sterna.__file__).parents[1])
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_CONN_", "OTEL_"))}
    paths = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH", ""))))
    return {**variables, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _stopped_error() -> QueryEnded:
    return QueryEnded("no client waits for the query any more")


def _fetch_reply(
    job: QueryJob, request: SparkRequest, fetch: Fetch, folder: Path, deadline: float, stop: Stop
) -> dict[str, Any]:
    try:
        return {"file": fetch(job, request, folder, deadline - time.monotonic(), stop)}
    except SternaError as error:
        return error_to_json(error)
