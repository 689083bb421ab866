"""Reading server-sent events (HTML Living Standard, "Server-sent events", 9.2.6) as they come in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MAX_BLOCK_CHARACTERS = 4 * 1024 * 1024  # characters of a block: whoever sends more is no gateway


@dataclass(frozen=True)
class SseBlock:
    """One block of a stream.

    Args:
        id: the last id that the stream has told, or "".
        event: its kind.
        data: its data, "" where it has none: then it is no event, but its id counts.
        retry: after how many milliseconds to come back, where it says so.
    """

    id: str
    event: str
    data: str
    retry: int | None


class BlockReader:
    """Takes a stream's text piece by piece, and gives its blocks."""

    def __init__(self) -> None:
        self._buffer = ""
        self._id = ""
        self._data: list[str] = []
        self._event = ""
        self._retry: int | None = None

    def feed(self, text: str) -> Iterator[SseBlock]:
        """Take some text; yield the blocks that are whole by now.

        Raises:
            ValueError: a block has no end.
        """
        lines = (self._buffer + text).split("\n")
        self._buffer = lines.pop()
        if len(self._buffer) + sum(map(len, self._data)) > _MAX_BLOCK_CHARACTERS:
            raise ValueError("the stream sends a block without an end")
        for line in lines:
            line = line.removesuffix("\r")
            if line:
                self._parse_line(line)
                continue
            yield SseBlock(self._id, self._event or "message", "\n".join(self._data), self._retry)
            self._reset()

    def _parse_line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = int(value)

    def _reset(self) -> None:
        self._data, self._event, self._retry = [], "", None
