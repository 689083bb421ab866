"""A reader of what a Kafka keeps, by the standard library alone: what any client can be expected to read.

Source: Apache Kafka, "Message Format" (record batches of magic 2). Clients such as kafkajs have gzip, and other codecs
with packages of their own alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct(">qiibIhiqqqhii")
_CODEC, _CONTROL = 0x07, 0x20
_PLAIN, _GZIP = 0, 1


@dataclass(frozen=True)
class Record:
    """One message."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


def records(folder: Path, topic: str, partition: int = 0) -> list[Record]:
    """Return the messages of a partition, in their order.

    Raises:
        ValueError: they are compressed by what not every client has.
    """
    segments = sorted((folder / f"{topic}-{partition}").glob("*.log"))
    return [record for segment in segments for record in _segment(segment.read_bytes())]


def _segment(data: bytes) -> Iterator[Record]:
    at = 0
    while at + _HEAD.size <= len(data) and (length := struct.unpack_from(">i", data, at + 8)[0]) > 0:
        head = _HEAD.unpack_from(data, at)
        magic, attributes, count = head[3], head[5], head[12]
        body, at = data[at + _HEAD.size : at + 12 + length], at + 12 + length
        if magic != 2 or attributes & _CODEC not in (_PLAIN, _GZIP):
            raise ValueError(f"magic {magic}, codec {attributes & _CODEC}")
        if attributes & _CODEC == _GZIP:
            body = zlib.decompress(body, 31)
        if not attributes & _CONTROL:
            yield from _Reader(body).records(count)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def records(self, count: int) -> Iterator[Record]:
        for _ in range(count):
            end = self._number() + self._at
            self._at += 1  # attributes, of which there are none
            self._number()  # of the time
            self._number()  # of the offset
            key, value = self._bytes(), self._bytes()
            headers = {(self._bytes() or b"").decode(): self._bytes() for _ in range(self._number())}
            assert self._at == end
            yield Record(key, value, headers)

    def _number(self) -> int:
        unsigned = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            unsigned |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (unsigned >> 1) ^ -(unsigned & 1)
            shift += 7

    def _bytes(self) -> bytes | None:
        size = self._number()
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at]
