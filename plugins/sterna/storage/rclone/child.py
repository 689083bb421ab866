"""The process that runs rclone for `sterna.storage.rclone.transfer`: started as a script, it imports nothing of sterna.

It reads one line of JSON from its standard input, {"source", "target", "args", "throttle"}, and writes lines of JSON to
its standard output: {"bytes", "files"} during the copy, then {"errors"} when it ended. The input stays open as long
as the parent lives: its end, or the parent's, ends this process's whole group, rclone included.

Where bandwidth is shared, "throttle" and the lines that follow are {"rate", "cautious", "seconds"}: rclone is set to
that rate, and to the cautious one where no other line comes within so many seconds. {"rate"} on standard output
confirms a rate that is in force.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
_SOCKET = "rc.sock"  # in the working folder, which no other user may enter
_RETRY_SECONDS = 0.5
_RC_SECONDS = 60.0  # a rate is changed once what was admitted at the one before is through


def main() -> None:
    """Run the copy that standard input describes."""
    _exit_with_parent()
    line = _read_line()
    # rclone must not hold the parent's end of life.
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    job = json.loads(line)
    threading.Thread(target=follow_parent, args=(control, job.get("throttle")), daemon=True).start()

    rclone, utils = _import_rclone_python()
    rclone.set_log_level(100)  # its log repeats what is reported here
    last_progress: dict[str, int] = {}

    def listen(update: dict[str, Any]) -> None:
        stats = update["rclone_output"]
        progress = {"bytes": int(stats.get("bytes", 0)), "files": int(stats.get("transfers", 0))}
        if progress != last_progress:
            last_progress.update(progress)
            _write_message(progress)

    errors = ""
    try:
        rclone.copy(job["source"], job["target"], show_progress=False, listener=listen, args=job["args"])
    except utils.RcloneException as error:
        errors = error.error_msg or "rclone failed without a message"
    _write_message({"errors": errors})


def _import_rclone_python() -> tuple[Any, Any]:
    """Import rclone-python without rich, which takes longer to import than all else here, and only shows people a
    progress bar.
    """
    progress, log_handlers = ModuleType("rich.progress"), ModuleType("rich.logging")
    vars(progress)["__getattr__"] = lambda name: type(name, (), {})
    vars(log_handlers)["RichHandler"] = logging.NullHandler
    substitutes = {module.__name__: module for module in (ModuleType("rich"), progress, log_handlers)}
    sys.modules |= substitutes
    try:
        return import_module("rclone_python.rclone"), import_module("rclone_python.utils")
    except ImportError:  # a version that takes more of rich
        for name in [name for name in sys.modules if name in substitutes or name.startswith("rclone_python")]:
            del sys.modules[name]
        return import_module("rclone_python.rclone"), import_module("rclone_python.utils")


def _write_message(message: dict[str, Any]) -> None:
    # One write, since several threads write lines.
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


def follow_parent(
    descriptor: int,
    throttle: dict[str, Any] | None,
    set_rate: Callable[[int | None], None] | None = None,
    terminate: Callable[[], object] | None = None,
) -> None:
    """Follow the parent's lines on a pipe: set rates, each for its time, and end with the pipe's end.

    Args:
        descriptor: of the pipe.
        throttle: the first rate, and for how long; None: no limit.
        set_rate: sets a rate soon; None: rclone's.
        terminate: ends this process; None: with all that it started.
    """
    buffer, seconds = b"", throttle["seconds"] if throttle else None
    set_rate = set_rate or _Throttle(throttle["rate"] if throttle else None).set_rate
    while True:
        # A time below zero would end this thread, and with it the watch for the parent's end.
        if not select.select([descriptor], [], [], None if seconds is None else max(0.0, seconds))[0]:
            set_rate(throttle["cautious"] if throttle else None)
            seconds = None
            continue
        chunk = os.read(descriptor, 4096)
        if not chunk:
            (terminate or _kill_group)()
        *lines, buffer = (buffer + chunk).split(b"\n")
        if lines:
            throttle = json.loads(lines[-1])
            seconds = throttle["seconds"]
            set_rate(throttle["rate"])


class _Throttle:
    """Sets rclone's rate from a thread of its own: rclone may take long to answer.

    Args:
        rate: that it starts with.
    """

    def __init__(self, rate: int | None) -> None:
        self._changed = threading.Event()
        self._current = self._requested = rate
        self._thread: threading.Thread | None = None

    def set_rate(self, rate: int | None) -> None:
        """Set a rate soon; only the last one that is wanted counts."""
        self._requested = rate
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._changed.wait():
            self._changed.clear()
            rate = self._requested
            try:
                if rate != self._current:  # each change empties what rclone may send at once
                    _set_rate(rate)
                    self._current = rate
            except OSError:
                self._changed.set()  # not started yet, or over
                time.sleep(_RETRY_SECONDS)
                continue
            _write_message({"rate": rate})


def _set_rate(rate: int | None) -> None:
    from http.client import OK, HTTPConnection, HTTPException  # few copies have a limit, and its import takes long

    connection = HTTPConnection("localhost", timeout=_RC_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(_RC_SECONDS)
        connection.sock.connect(_SOCKET)
        body = json.dumps({"rate": "off" if rate is None else f"{rate}B"})
        connection.request("POST", "/core/bwlimit", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != OK:
            raise OSError(response.reason)
        response.read()
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _exit_with_parent() -> None:
    signal.signal(signal.SIGTERM, lambda *_: _kill_group())
    if sys.platform == "linux":
        # Beside the watch: a process that the parent forked may hold the other end of the pipe open.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _kill_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("start this in a session of its own: it ends its whole process group")
    main()
