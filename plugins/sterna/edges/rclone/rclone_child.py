"""The process that runs rclone for `sterna.edges.rclone.transfer`: started as a script, it imports nothing of sterna.

It reads one line of JSON from its standard input, {"source", "target", "args", "throttle"}, and writes lines of JSON to
its standard output: {"bytes", "files"} as the copy goes on, then {"errors"} when it ended. The input stays open as long
as the parent lives: its end, or the parent's, ends this process's whole group, rclone included.

Where bandwidth is shared, "throttle" and the lines that follow are {"rate", "cautious", "seconds"}: rclone is set to
that rate, and to the cautious one where no other line comes within so many seconds. {"rate"} on standard output
confirms a rate that is in force.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_SOCKET = "rc.sock"  # in the working folder, which nobody else may enter
_AGAIN_SECONDS = 0.5
_RC_SECONDS = 60.0  # a rate is changed once what was admitted at the one before is through


def main() -> None:
    """Copy what standard input says."""
    _end_with_parent()
    line = _read_line()
    # rclone must not hold the parent's end of life.
    watched = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    job = json.loads(line)
    threading.Thread(target=watch, args=(watched, job.get("throttle")), daemon=True).start()

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
    # One write, since more than one thread says something.
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _read_line() -> bytes:
    # Unbuffered, so that nothing after the line is taken from the watch.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


def watch(
    descriptor: int,
    wanted: dict[str, Any] | None,
    want: Callable[[int | None], None] | None = None,
    end: Callable[[], object] | None = None,
) -> None:
    """Do what the parent says on a pipe: set rates, each for its time, and end with the pipe's end.

    Args:
        descriptor: of the pipe.
        wanted: the first rate, and for how long; None: no limit.
        want: sets a rate soon; None: rclone's.
        end: ends this process; None: with all that it started.
    """
    rest, seconds = b"", wanted["seconds"] if wanted else None
    want = want or _Throttle(wanted["rate"] if wanted else None).want
    while True:
        # A time below zero would end this thread, and with it the watch for the parent's end.
        if not select.select([descriptor], [], [], None if seconds is None else max(0.0, seconds))[0]:
            want(wanted["cautious"] if wanted else None)
            seconds = None
            continue
        data = os.read(descriptor, 4096)
        if not data:
            (end or _end_group)()
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            wanted = json.loads(lines[-1])
            seconds = wanted["seconds"]
            want(wanted["rate"])


class _Throttle:
    """Sets rclone's rate from a thread of its own: rclone may take long to answer.

    Args:
        rate: that it starts with.
    """

    def __init__(self, rate: int | None) -> None:
        self._changed = threading.Event()
        self._there = self._wanted = rate
        self._thread: threading.Thread | None = None

    def want(self, rate: int | None) -> None:
        """Set a rate soon; only the last one that is wanted counts."""
        self._wanted = rate
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._changed.wait():
            self._changed.clear()
            wanted = self._wanted
            try:
                if wanted != self._there:  # each change empties what rclone may send at once
                    _set_rate(wanted)
                    self._there = wanted
            except (OSError, http.client.HTTPException):
                self._changed.set()  # not started yet, or over
                time.sleep(_AGAIN_SECONDS)
                continue
            _say({"rate": wanted})


def _set_rate(rate: int | None) -> None:
    connection = http.client.HTTPConnection("localhost", timeout=_RC_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(_RC_SECONDS)
        connection.sock.connect(_SOCKET)
        body = json.dumps({"rate": "off" if rate is None else f"{rate}B"})
        connection.request("POST", "/core/bwlimit", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise http.client.HTTPException(answer.reason)
        answer.read()
    finally:
        connection.close()


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
