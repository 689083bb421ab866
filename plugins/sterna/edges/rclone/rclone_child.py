"""The process that runs rclone for `sterna.edges.rclone.transfer`: started as a script, it imports nothing of sterna.

It reads one line of JSON from its standard input, {"source", "target", "args"}, and writes lines of JSON to its
standard output: {"bytes", "files"} as the copy goes on, then {"errors"} when it ended. The input stays open as long as
the parent lives: its end, or the parent's, ends this process's whole group, rclone included.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Copy what standard input says."""
    _end_with_parent()
    line = _read_line()
    # rclone must not hold the parent's end of life.
    watched = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    job = json.loads(line)

    from rclone_python import rclone, utils

    rclone.set_log_level(100)  # its log repeats what is reported here
    last: dict[str, int] = {}

    def listen(update: dict[str, Any]) -> None:
        stats = update["rclone_output"]
        now = {"bytes": int(stats.get("bytes", 0)), "files": int(stats.get("transfers", 0))}
        if now != last:
            last.update(now)
            _say(now)

    errors = ""
    try:
        rclone.copy(job["source"], job["target"], show_progress=False, listener=listen, args=job["args"])
    except utils.RcloneException as error:
        errors = error.error_msg or "rclone failed and said nothing"
    _say({"errors": errors})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _read_line() -> bytes:
    # Unbuffered, so that nothing after the line is taken from the watch.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    _end_group()


def _end_with_parent() -> None:
    signal.signal(signal.SIGTERM, lambda *_: _end_group())
    if sys.platform == "linux":
        # Beside the watch: a process that the parent forked may hold the other end of the pipe open.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _end_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("start this in a session of its own: it ends its whole process group")
    main()
