"""Lines that tell how far something is."""

from __future__ import annotations

import time
from typing import Self

from sterna.replica.region import Progress

LOG_SECONDS = 10.0
"""Between two such lines of a log."""


class HowFar(str):
    """A line that tells how far something is: where people see it move, it takes the place of the one before.

    Attributes:
        share: how much of it is done, from 0 to 1.
        step: a part of it is done: no log leaves that out.
    """

    __slots__ = ("share", "step")
    share: float
    step: bool

    def __new__(cls, line: str, share: float, *, step: bool = False) -> Self:
        """Make one of a line, a share, and whether a part is done."""
        made = super().__new__(cls, line)
        made.share, made.step = share, step
        return made


def seldom(show: Progress, seconds: float = LOG_SECONDS) -> Progress:
    """Return what shows lines in a log: of those that tell how far something is, one in so many seconds."""
    due = time.monotonic() + seconds

    def told(line: str) -> None:
        nonlocal due
        if isinstance(line, HowFar):
            if time.monotonic() < due and not line.step:
                return
            due = time.monotonic() + seconds
        show(line)

    return told
