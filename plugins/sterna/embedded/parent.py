"""A child process that ends with its parent, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

_PR_SET_PDEATHSIG = 1
# Becomes the program behind it, after asking for the signal that tells of the parent's end; Python ignores these two
# signals.
_END_WITH_PARENT = f"""
import ctypes, os, signal, sys
number, parent, *command = sys.argv[1:]
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(number), 0, 0, 0)
if os.getppid() == int(parent):
    os.execvp(command[0], command)
"""
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def ending_with_parent(
    words: list[str], stop_signal: signal.Signals, user: int | None
) -> tuple[list[str], Callable[[], None] | None]:
    """Return the command of a child that ends with this process, and what it calls before its program is run.

    Args:
        words: the program and its arguments.
        stop_signal: the signal that it gets then.
        user: the user id it runs as; None: this process's.
    """
    if user is None:
        # By a program of its own: Python code between fork and exec may wait for ever for what another thread held.
        asking = [sys.executable, "-I", "-S", "-c", _END_WITH_PARENT, str(int(stop_signal)), str(os.getpid())]
        return [*asking, *words], None
    # Another account may not be able to run this Python; a change of user would clear what stands before it.
    return words, partial(_ask_for_signal, stop_signal)


def _ask_for_signal(number: signal.Signals) -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
