"""Reading server-sent events (HTML Living Standard, "Server-sent events", 9.2.6) as they come in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MAX_BLOCK_CHARACTERS = 4 * 1024 * 1024  # no gateway sends more


@dataclass(frozen=True)
class SseBlock:
    """One block of a stream.

    Args:
        id: the last id of the stream so far, or "".
        event: the event's type.
        data: the data; "": the block is no event, but its id counts.
        retry: milliseconds before a reconnect, where the block sets them.
    """

    id: str
    event: str
    data: str
    retry: int | None


class BlockReader:
    """Parses a stream's text incrementally into blocks."""

    def __init__(self) -> None:
        self._buffer = ""
        self._id = ""
        self._data: list[str] = []
        self._event = ""
        self._retry: int | None = None

    def feed(self, text: str) -> Iterator[SseBlock]:
        """Add some text; yield the blocks that are complete.

        Raises:
            ValueError: a block is larger than any gateway sends.
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
