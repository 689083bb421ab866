"""Progress lines, and throttling them in logs."""

from __future__ import annotations

import time
from typing import Self

from sterna.replication.replica.region import Progress

LOG_INTERVAL_SECONDS = 10.0
"""Between two such lines of a log."""


class ProgressLine(str):
    """A line of progress: on a terminal it replaces the one before.

    Attributes:
        fraction: how much is done, from 0 to 1.
        is_step: a step is complete: logs never leave that out.
        batch_bytes: how much is here of the batch that this process copies.
    """

    __slots__ = ("batch_bytes", "fraction", "is_step")
    fraction: float
    is_step: bool
    batch_bytes: int

    def __new__(cls, line: str, fraction: float, *, is_step: bool = False, batch_bytes: int = 0) -> Self:
        """Make one of a line, a share, whether a part is done, and the bytes of the process's own batch."""
        progress_line = super().__new__(cls, line)
        progress_line.fraction, progress_line.is_step, progress_line.batch_bytes = fraction, is_step, batch_bytes
        return progress_line


def throttled(show: Progress, seconds: float = LOG_INTERVAL_SECONDS) -> Progress:
    """Return a function that shows lines in a log, and at most one progress line in so many seconds."""
    due = time.monotonic() + seconds

    def show_throttled(line: str) -> None:
        nonlocal due
        if isinstance(line, ProgressLine):
            if time.monotonic() < due and not line.is_step:
                return
            due = time.monotonic() + seconds
        show(line)

    return show_throttled
