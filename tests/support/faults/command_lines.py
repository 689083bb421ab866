"""A look at every process's command line, again and again: whatever stands there everybody on the machine can read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

_PAUSE_SECONDS = 0.1  # an rclone lives for longer
# A process that is older than this is what it is going to be, and is looked at this often.
_SETTLED_SECONDS = 2.0


@dataclass
class CommandLines:
    """What was seen so far.

    Args:
        words: the words of all command lines, of paths the last folder and the name.
        showing: the command lines with a secret in them.
    """

    words: set[str] = field(default_factory=set)
    showing: set[str] = field(default_factory=set)
    _first_seen: dict[int, float] = field(default_factory=dict)
    _last: float = 0.0

    def scan(self, secrets: Iterable[str]) -> None:
        """Look at every process that is new, and now and then at all of them."""
        now = time.monotonic()
        everything = now - self._last > _SETTLED_SECONDS
        self._last = now if everything else self._last
        running = psutil.pids()
        self._first_seen = {pid: self._first_seen.get(pid, now) for pid in running}
        for pid, since in self._first_seen.items():
            if everything or now - since < _SETTLED_SECONDS:
                self._scan_process(pid, secrets)

    def _scan_process(self, pid: int, secrets: Iterable[str]) -> None:
        words: list[str] = []
        with suppress(psutil.Error):  # it has ended, or is somebody else's
            words = psutil.Process(pid).cmdline()
        self.words.update("/".join(word.rsplit("/", 2)[-2:]) for word in words)
        line = " ".join(words)
        if any(secret in line for secret in secrets):
            self.showing.add(line)


@contextmanager
def watching(*secrets: str) -> Iterator[CommandLines]:
    """Look, until the block ends, for command lines that show one of some secrets."""
    lines, over = CommandLines(), threading.Event()

    def scan() -> None:
        while not over.wait(_PAUSE_SECONDS):
            lines.scan(secrets)

    thread = threading.Thread(target=scan, daemon=True, name="command-lines")
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()
