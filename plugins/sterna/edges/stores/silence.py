"""A store that doesn't answer is waited for once, and not by every file and table that needs it."""

from __future__ import annotations

import re
import threading
import time

SILENT_SECONDS = 30.0  # between two calls that find out whether it answers again
_NO_ANSWER = re.compile(r"error sending request|operation timed out|client error \(Connect\)|\bdns error\b", re.I)
_ANSWER = re.compile(r"status code|\b[45]\d\d [A-Z]")


class Silence:
    """Whether a store has kept silent; may be used by any number of threads.

    A call that got no answer, within all its repeats, says so of the store, unless another call has got one since it
    began: then it was that call's own trouble.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason = ""
        self._again = 0.0
        self._answered = float("-inf")

    def reason(self) -> str:
        """Return why the store is not to be asked now; "" where it is.

        Once in a while it is, by one call, which finds out for all.
        """
        with self._lock:
            now = time.monotonic()
            if self._reason and now >= self._again:
                self._again = now + SILENT_SECONDS
                return ""
            return self._reason

    def heard(self) -> None:
        """Note that the store has answered, whatever it said."""
        with self._lock:
            self._answered, self._reason = time.monotonic(), ""

    def failed(self, began: float, reason: str) -> None:
        """Note that a call failed.

        Args:
            began: when it did, by the monotonic clock.
            reason: what the client says of it; that tells whether there was an answer.
        """
        if _ANSWER.search(reason):
            self.heard()
        elif _NO_ANSWER.search(reason):
            with self._lock:
                if self._answered < began:
                    self._reason, self._again = reason, time.monotonic() + SILENT_SECONDS
