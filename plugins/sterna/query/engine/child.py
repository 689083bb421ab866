"""The process that runs queries, one after another: `python -m sterna.query.engine.child`.

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

from sterna.errors import QueryEnded, QueryFailed, SternaError
from sterna.query.job import Job, SparkWish, error_from_json, error_json
from sterna.stopping import Stop

_LOOKING_SECONDS = 1.0
# Beside what DuckDB counts: what Arrow reads ahead, and the stacks of threads.
_BESIDE = 512 << 20


def main() -> None:
    """Run what standard input says until it ends."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # no library writes between the answers

    from sterna.query.engine.run import run

    inbox = _Inbox()
    threading.Thread(target=inbox.read, daemon=True).start()
    idle = _address_space()
    _say(answers, {"ready": True})

    def ask(wish: SparkWish) -> str:
        _say(answers, {"wish": wish.to_json()})
        told = inbox.reply()
        if "error" in told:
            raise error_from_json(told)
        return str(told["file"])

    while (arrived := inbox.jobs.get()) is not None:
        job, stop = arrived
        _cap(idle + job.memory + _BESIDE)
        _say(answers, _outcome(partial(run, ask=ask, stop=stop), job))
    # Not by returning: DuckDB's clean-up at the end writes pages about itself.
    os._exit(0)


class _Inbox:
    """What comes over standard input, read by a thread of its own: a job can be stopped while it runs."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Job, Stop] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read(self) -> None:
        stop = Stop()
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "stop" in message:
                stop.set()
                self._replies.put(error_json(QueryEnded("the query was stopped")))
            elif "sql" in message:
                stop, self._replies = Stop(), queue.SimpleQueue()
                self.jobs.put((Job.from_json(message), stop))
            else:
                self._replies.put(message)
        self._replies.put(error_json(QueryEnded("the process that asked is gone")))
        self.jobs.put(None)

    def reply(self) -> dict[str, Any]:
        return self._replies.get()


def _end_with(parent: int) -> None:
    # Its input tells between two jobs alone. A signal at the parent's death would come at that of a mere thread of it.
    while os.getppid() == parent:
        time.sleep(_LOOKING_SECONDS)
    os._exit(1)


def _outcome(run: Callable[[Job], dict[str, Any]], job: Job) -> dict[str, Any]:
    try:
        return run(job)
    except SternaError as error:
        told = error
    except MemoryError:
        told = QueryFailed("the query needs more memory than it may have")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's, and the next one may go well
        told = QueryFailed(f"{type(error).__name__}: {error}")
    return error_json(told)


def _say(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _cap(bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
