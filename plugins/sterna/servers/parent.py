"""A child process that ends with its parent, however that one ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
# Becomes the program behind it, under the account, after requesting the signal for the parent's end, which a change of
# user would clear. Python ignores these two signals.
_LAUNCHER_SCRIPT = f"""
import ctypes, os, signal, sys
number, parent, user, group, *command = sys.argv[1:]
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if user:
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
if libc:
    libc.prctl({_PR_SET_PDEATHSIG}, int(number), 0, 0, 0)
if os.getppid() == int(parent):
    os.execvp(command[0], command)
"""


def command_ending_with_parent(
    command: Sequence[str], stop_signal: signal.Signals, account: tuple[int, int] | None = None
) -> list[str]:
    """Return the command of a child that ends with this process, however it ends.

    A program of its own requests that and changes the account: between fork and exec Python may wait for ever for what
    another thread held, and gRPC's handlers of fork, where a Spark Connect client loaded them, crash one child in ten.

    Args:
        command: the program and its arguments.
        stop_signal: the signal that it gets then.
        account: ids of the user and the group that it runs as (root only); None: this process's.
    """
    user, group = account or ("", "")
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER_SCRIPT, str(int(stop_signal)), str(os.getpid())]
    return [*launcher, str(user), str(group), *command]
