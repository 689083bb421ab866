"""A store that doesn't answer is waited for once, and not by every file and table that needs it."""

from __future__ import annotations

import re
import threading
import time

RETRY_SECONDS = 30.0
"""Seconds between two calls that find out whether a store answers again, where nobody asks for less."""
_NO_ANSWER = re.compile(r"error sending request|operation timed out|client error \(Connect\)|\bdns error\b", re.I)
_ANSWER = re.compile(r"status code|\b[45]\d\d [A-Z]")


class CircuitBreaker:
    """Whether a store has kept silent; may be used by any number of threads.

    A call without an answer, after all its retries, opens the breaker, unless another call has got one since it
    began: then it was that call's own trouble.

    Args:
        retry_seconds: between two calls that find out whether it answers again.
    """

    def __init__(self, retry_seconds: float = RETRY_SECONDS) -> None:
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._reason = ""
        self._next_probe = 0.0
        self._last_answer = float("-inf")

    def open_reason(self) -> str:
        """Return why no request is to be sent to the store now; "" where one is.

        Once in a while it is, by one call, which finds out for all.
        """
        with self._lock:
            now = time.monotonic()
            if self._reason and now >= self._next_probe:
                self._next_probe = now + self._retry_seconds
                return ""
            return self._reason

    def record_success(self) -> None:
        """Record that the store has answered, with success or an error."""
        with self._lock:
            self._last_answer, self._reason = time.monotonic(), ""

    def record_failure(self, started: float, reason: str) -> None:
        """Note that a call failed.

        Args:
            started: when it did, by the monotonic clock.
            reason: the client's message, which shows whether there was an answer.
        """
        if _ANSWER.search(reason):
            self.record_success()
        elif _NO_ANSWER.search(reason):
            with self._lock:
                if self._last_answer < started:
                    self._reason, self._next_probe = reason, time.monotonic() + self._retry_seconds
