"""A look at every process's command line, again and again: whatever stands there everybody on the machine can read."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

_PAUSE_SECONDS = 0.1  # an rclone lives for longer


@dataclass
class CommandLines:
    """What was seen so far.

    Args:
        words: what stood there, without folders: the names of programs and scripts among it.
        showing: the command lines with a secret in them.
    """

    words: set[str] = field(default_factory=set)
    showing: set[str] = field(default_factory=set)

    def look(self, secrets: Iterable[str]) -> None:
        """Look at every process once."""
        for process in psutil.process_iter(["cmdline"], ad_value=None):
            words = process.info["cmdline"] or ()
            self.words.update(word.rpartition("/")[2] for word in words)
            line = " ".join(words)
            if any(secret in line for secret in secrets):
                self.showing.add(line)


@contextmanager
def watching(*secrets: str) -> Iterator[CommandLines]:
    """Look, until the block ends, for command lines that show one of some secrets."""
    lines, over = CommandLines(), threading.Event()

    def look() -> None:
        while not over.wait(_PAUSE_SECONDS):
            lines.look(secrets)

    thread = threading.Thread(target=look, daemon=True, name="command-lines")
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()
