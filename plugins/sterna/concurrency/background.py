"""Work in a daemon thread: one that hangs doesn't keep the process from ending."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

R = TypeVar("R")


def run_in_background(work: Callable[[], R], name: str) -> Future[R]:
    """Start work in a thread and return its future; an executor's threads would delay the process' end.

    Args:
        work: what it raises is raised by the future's `result`.
    """
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by the future's result
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
