"""Processes that run queries: kept warm, one query at a time each, ended where one doesn't keep its limits."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import sterna
from sterna import errors
from sterna.errors import OutOfTime, QueryFailed, SternaError
from sterna.query.job import Job

_STARTING_SECONDS = 60.0
_GRACE_SECONDS = 2.0  # a child ends a query by itself; only one that can't is ended from here
_JOBS = 500  # after that a child is replaced: libraries keep a little of what they took


class QueryChildren:
    """A few processes that run queries; used from threads, no more at a time than there are.

    Args:
        count: how many there may be.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._idle: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._closed = False

    def run(self, job: Job) -> dict[str, Any]:
        """Run a query; waits for a process to be free.

        Returns:
            `types` and `rows`, as `sterna.query.engine.run.run` does.

        Raises:
            QueryError, StoreError, TableError: as that does.
            QueryFailed: the process died.
        """
        child = self._idle.get()
        try:
            child = child or _Child()
            answer = child.ask(job)
        except BaseException:
            if child is not None:
                child.end()
            child = None
            raise
        finally:
            if child is not None and (child.jobs >= _JOBS or self._closed):
                child.end()
                child = None
            self._idle.put(child)
        if "error" in answer:
            raise _error(answer)
        return answer

    def warm(self) -> None:
        """Start all processes, so that no query waits for that.

        Raises:
            QueryFailed: one doesn't start.
        """
        taken = [self._idle.get() for _ in range(self._count)]
        try:
            for at, child in enumerate(taken):
                taken[at] = child or _Child()
        finally:
            for child in taken:
                self._idle.put(child)

    def close(self) -> None:
        """End all processes that are idle; those at work end with their query."""
        self._closed = True
        for _ in range(self._idle.qsize()):
            child = self._idle.get()
            if child is not None:
                child.end()
            self._idle.put(None)


class _Child:
    def __init__(self) -> None:
        self.jobs = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sterna.query.engine.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="sterna-query-child").start()
        try:
            self._line(_STARTING_SECONDS)
        except OutOfTime:
            self.end()
            raise QueryFailed(f"the process that runs queries didn't start within {_STARTING_SECONDS:g} s") from None
        except BaseException:
            self.end()
            raise

    def ask(self, job: Job) -> dict[str, Any]:
        self.jobs += 1
        stdin = cast(IO[bytes], self._process.stdin)
        try:
            stdin.write(json.dumps(job.to_json()).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise QueryFailed("the process that runs queries died") from None
        return json.loads(self._line(job.seconds + _GRACE_SECONDS))  # type: ignore[no-any-return]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _read(self) -> None:
        with suppress(ValueError):  # closed meanwhile
            for line in cast(IO[bytes], self._process.stdout):
                self._lines.put(line)
        self._lines.put(b"")

    def _line(self, seconds: float) -> bytes:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise OutOfTime(f"the query ran for more than {seconds - _GRACE_SECONDS:g} s") from None
        if not line.endswith(b"\n"):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
            raise QueryFailed(f"the process that runs queries died: {self._process.returncode}")
        return line


def _environment() -> dict[str, str]:
    """Return a child's environment: no credential of another's, and memory that is given back."""
    here = str(Path(sterna.__file__).parents[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    return {**kept, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _error(answer: Mapping[str, Any]) -> SternaError:
    kind = getattr(errors, str(answer["error"]), QueryFailed)
    known = isinstance(kind, type) and issubclass(kind, SternaError)
    return (kind if known else QueryFailed)(answer["message"], table=answer["table"], file=answer["file"])
