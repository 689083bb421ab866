"""The processor's priority of work that nobody waits for."""

from __future__ import annotations

import os

_NICENESS = 10


def lower_process_priority() -> None:
    """Let other processes of this machine have the processors first, for as long as this one runs.

    The processes that it starts inherit that: rclone, Java, Python workers. A bulk run calls it, so that the small
    syncs beside it take as long as without it.
    """
    os.nice(max(0, _NICENESS - os.nice(0)))
