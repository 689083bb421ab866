"""SIGTERM, taken as Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupt_on_sigterm(*, once: bool = False) -> Iterator[None]:
    """Let SIGTERM interrupt what is under way, as Ctrl-C does.

    Args:
        once: neither of them interrupts what ends it all, so that nothing is left.
    """
    previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def interrupt(*_: Any) -> None:
        if once:
            for number in previous_handlers:
                signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if once:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
