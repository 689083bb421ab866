"""Work in a thread that nobody has to wait for: where it hangs, it ends by itself or with the process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

R = TypeVar("R")


def run_in_background(work: Callable[[], R], name: str) -> Future[R]:
    """Begin some work, and return what its result is asked of; an executor's threads would hold up the process' end.

    Args:
        work: what it raises is raised where the result is asked for.
        name: of the thread.
    """
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
