"""The process that runs queries, one after another: `python -m sterna.serving.queries.engine.child`.

It reads jobs from its standard input, a line of JSON each, and writes a line of JSON for each to its standard output.
Before that it may write what it wishes Spark to read, and gets a line that names the file in which that was put.
A line `{"stop": true}` ends the job that came before it. The end of its input, or of its parent, is its own.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sterna.concurrency.cancellation import Stop
from sterna.errors import QueryEnded, QueryFailed, SternaError
from sterna.serving.queries.job import QueryJob, SparkRequest, error_from_json, error_to_json

_PARENT_POLL_SECONDS = 1.0
# Beside what DuckDB counts: what Arrow reads ahead, and the stacks of threads.
_OVERHEAD_BYTES = 512 << 20


def main() -> None:
    """Run the jobs from standard input until it ends."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # no library writes between the answers

    from sterna.serving.queries.engine.run import run_query

    inbox = _Inbox()
    threading.Thread(target=inbox.read, daemon=True).start()
    idle_bytes = _read_address_space()
    _send(answers, {"ready": True})

    def request_spark(request: SparkRequest) -> str:
        _send(answers, {"wish": request.to_json()})
        reply = inbox.reply()
        if "error" in reply:
            raise error_from_json(reply)
        return str(reply["file"])

    while (received := inbox.jobs.get()) is not None:
        job, stop = received
        _limit_address_space(idle_bytes + job.memory + _OVERHEAD_BYTES)
        _send(answers, _run_job(partial(run_query, request_spark=request_spark, stop=stop), job))
    # Not by returning: DuckDB's clean-up at the end writes pages about itself.
    os._exit(0)


class _Inbox:
    """What comes over standard input, read by a thread of its own: a job can be stopped while it runs."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[QueryJob, Stop] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read(self) -> None:
        stop = Stop()
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "stop" in message:
                stop.set()
                self._replies.put(error_to_json(QueryEnded("the query was stopped")))
            elif "sql" in message:
                stop, self._replies = Stop(), queue.SimpleQueue()
                self.jobs.put((QueryJob.from_json(message), stop))
            else:
                self._replies.put(message)
        self._replies.put(error_to_json(QueryEnded("the process that asked is gone")))
        self.jobs.put(None)

    def reply(self) -> dict[str, Any]:
        return self._replies.get()


def _exit_with_parent(parent: int) -> None:
    # Its input shows that between two jobs alone. A signal at the parent's death would come at that of a mere thread of
    # it.
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


def _run_job(run: Callable[[QueryJob], dict[str, Any]], job: QueryJob) -> dict[str, Any]:
    try:
        return run(job)
    except SternaError as error:
        failure = error
    except MemoryError:
        failure = QueryFailed("the query needs more memory than it may have")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's, and the next one may go well
        failure = QueryFailed(f"{type(error).__name__}: {error}")
    return error_to_json(failure)


def _send(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _read_address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit_address_space(bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
