"""Answers that are kept for whoever asks the same again."""

from __future__ import annotations

from collections import OrderedDict


class KeptAnswers:
    """The newest answers, up to a number of bytes.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return an answer, None where it isn't kept."""
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)

    def put(self, digest: str, answer: bytes) -> None:
        """Keep an answer, and let go of those that nobody asked for for the longest time."""
        if len(answer) > self._limit:
            return
        self._size += len(answer) - len(self._kept.pop(digest, b""))
        self._kept[digest] = answer
        while self._size > self._limit:
            self._size -= len(self._kept.popitem(last=False)[1])
