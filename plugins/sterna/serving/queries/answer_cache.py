"""Answers that are kept for whoever asks the same again."""

from __future__ import annotations

from collections import OrderedDict


class AnswerCache:
    """The newest answers, up to a number of bytes.

    Args:
        max_bytes: bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._size = max_bytes, 0
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return an answer, None where it isn't kept."""
        if digest in self._answers:
            self._answers.move_to_end(digest)
        return self._answers.get(digest)

    def put(self, digest: str, answer: bytes) -> None:
        """Keep an answer, and let go of those that nobody asked for for the longest time."""
        if len(answer) > self._max_bytes:
            return
        self._size += len(answer) - len(self._answers.pop(digest, b""))
        self._answers[digest] = answer
        while self._size > self._max_bytes:
            self._size -= len(self._answers.popitem(last=False)[1])
