"""A batch is kept for as long as something takes that says nothing in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sterna.errors import LeaseLost, SternaError
from sterna.repeating import repeated

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
    lost: list[LeaseLost] = []

    def try_to_renew() -> None:
        if lost:
            return
        try:
            renew()
        except LeaseLost as error:
            lost.append(error)
        except SternaError as error:  # there is time for another try, or for several
            log.info("a lease can't be renewed now: %s", error)

    with repeated(try_to_renew, every, "sterna-ingest-lease"):
        yield
    if lost:
        raise lost[0]
