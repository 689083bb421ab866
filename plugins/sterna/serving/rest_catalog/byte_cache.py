"""What was served or read before, as bytes: the least recently used goes first, when all have too many bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

_OVERHEAD_BYTES = 512  # of an entry, beside its body


@dataclass(frozen=True)
class ServedBody:
    """The body of an answer, or a file that answers are made from.

    Args:
        content: its bytes.
        etag: identifies an answer's, in quotation marks; "": a file's.
    """

    content: bytes
    etag: str = ""


class ByteCache:
    """Bodies by what determines them; for any number of threads.

    Args:
        max_bytes: bytes of all together; a larger body isn't kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bodies: OrderedDict[Hashable, ServedBody] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes that it holds."""
        return self._bytes

    def get(self, key: Hashable) -> ServedBody | None:
        """Return a body that was kept."""
        with self._lock:
            if key not in self._bodies:
                return None
            self._bodies.move_to_end(key)
            return self._bodies[key]

    def put(self, key: Hashable, body: ServedBody) -> None:
        """Keep a body."""
        size = len(body.content) + _OVERHEAD_BYTES
        with self._lock:
            if key in self._bodies or size > self._max_bytes:
                return
            self._bodies[key] = body
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, oldest = self._bodies.popitem(last=False)
                self._bytes -= len(oldest.content) + _OVERHEAD_BYTES
