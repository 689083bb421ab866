"""A batch is kept for as long as something takes that says nothing in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sterna.errors import LeaseLost, SternaError

log = logging.getLogger(__name__)


@contextmanager
def kept(renew: Callable[[], object], every: float) -> Iterator[None]:
    """Renew a lease now and then, from a thread of its own, while the block runs.

    Args:
        renew: renews it.
        every: seconds from one time to the next.

    Raises:
        LeaseLost: somebody else has it by now; raised once the block ends.
    """
    ended, lost = threading.Event(), list[LeaseLost]()

    def run() -> None:
        while not ended.wait(every):
            try:
                renew()
            except LeaseLost as error:
                lost.append(error)
                return
            except SternaError as error:  # there is time for another try, or for several
                log.info("a lease can't be renewed now: %s", error)

    thread = threading.Thread(target=run, name="sterna-ingest-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if lost:
        raise lost[0]
