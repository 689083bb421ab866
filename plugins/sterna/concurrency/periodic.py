"""Something is done again and again, from a thread of its own, while a block runs that may take long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_periodically(
    function: Callable[[], object], interval_seconds: float, name: str, join_timeout: float | None = None
) -> Iterator[None]:
    """Call a function now and then while the block runs.

    Args:
        function: is called; what it raises ends the repetition.
        interval_seconds: seconds until the first time, and from one to the next.
        join_timeout: seconds that the block's end waits for a call under way; None: as long as it takes.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(interval_seconds):
            function()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(join_timeout)
