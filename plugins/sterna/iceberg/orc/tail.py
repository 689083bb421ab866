"""The frame of an ORC file: postscript, footer and stripes.

Source: ORC specification v1, "File Tail" and "Stripes".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sterna.errors import Unsupported
from sterna.iceberg.orc.chunks import Budget, Compression, read_compression
from sterna.iceberg.orc.proto import Message, OrcDamaged, read_message

LIST: Final = 10
MAP: Final = 11
STRUCT: Final = 12
TIMESTAMP: Final = 9
_SIMPLE: Final = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, TIMESTAMP, 14, 15, 16, 17, 18})
_INDEX_STREAMS: Final = frozenset({6, 7, 8})
_DATA_STREAMS: Final = frozenset({0, 1, 2, 3, 5})
_VERSIONS: Final[tuple[list[int], ...]] = ([], [0, 11], [0, 12])

_MAX_DEPTH: Final = 64
HEADER: Final = b"ORC"


@dataclass(frozen=True)
class Type:
    """One node of the tree of types.

    Args:
        kind: its number in the specification.
        children: the ids of the nodes below it.
        names: the names of a struct's fields.
        attributes: its attributes; Iceberg's field id is one.
    """

    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]
    attributes: dict[bytes, bytes]


@dataclass(frozen=True)
class Tail:
    """The tail of a file.

    Args:
        compression: how the file is compressed.
        types: the types in pre-order; the first is the root, a struct.
        stripes: rows, offset of the first stream, and offset and length of the stripe's footer, for each stripe.
    """

    postscript: Message
    footer: Message
    compression: Compression
    types: tuple[Type, ...]
    stripes: tuple[tuple[int, int, int, int], ...]

    @property
    def rows(self) -> int:
        """The number of rows in all stripes."""
        return sum(stripe[0] for stripe in self.stripes)


@dataclass(frozen=True)
class Stripe:
    """One stripe, its streams not decompressed yet.

    Args:
        rows: the number of its rows.
        streams: column id and kind of each stream → its bytes as they are stored.
        encodings: kind of encoding and size of the dictionary, for each column.
    """

    rows: int
    streams: dict[tuple[int, int], bytes]
    encodings: list[tuple[int, int]]
    footer: Message


def read_tail(data: bytes, uri: str, budget: Budget) -> Tail:
    """Parse the end of an ORC file.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        budget: pays for the footer.

    Raises:
        Unsupported: encryption, or a version, codec or type that can't be written back.
        OrcDamaged: no ORC file.
    """
    end = len(data) - 1 - data[-1]
    if end < len(HEADER):
        raise OrcDamaged("cut off")
    postscript = read_message(data[end:-1])
    if postscript.integers(4) not in _VERSIONS:
        raise Unsupported(f"ORC files of version {postscript.integers(4)}", file=uri)
    compression = read_compression(postscript, uri)
    start = end - postscript.integer(1)
    body_end = start - postscript.integer(5)
    if body_end < len(HEADER):
        raise OrcDamaged("a footer longer than the file")
    footer = read_message(compression.decompress(data[start:end], budget))
    if footer.blobs(10) or postscript.integer(7):
        raise Unsupported("encrypted position deletes", file=uri)
    types = tuple(_type(message) for message in footer.messages(4))
    _validate_types(types, uri)
    stripes = _stripes(footer, body_end)
    tail = Tail(postscript, footer, compression, types, stripes)
    if footer.integer(6) != tail.rows:
        raise OrcDamaged("a footer and stripes that disagree on the number of rows")
    return tail


def read_stripe(data: bytes, tail: Tail, number: int, budget: Budget) -> Stripe:
    """Parse a stripe's footer.

    Args:
        data: the file's bytes.
        number: which stripe.
        budget: pays for the footer.

    Raises:
        OrcDamaged: the footer does not parse, or a stream occurs twice or outside the stripe.
    """
    rows, at, footer_start, size = tail.stripes[number]
    footer = read_message(tail.compression.decompress(data[footer_start : footer_start + size], budget))
    streams = _streams(footer, data, at, footer_start)
    encodings = [(message.integer(1), message.integer(2)) for message in footer.messages(2)]
    if len(encodings) != len(tail.types):
        raise OrcDamaged("a stripe without an encoding for each column")
    return Stripe(rows, streams, encodings, footer)


def _streams(footer: Message, data: bytes, at: int, end: int) -> dict[tuple[int, int], bytes]:
    stream_entries = [(message.integer(2), message.integer(1), message.integer(3)) for message in footer.messages(1)]
    streams: dict[tuple[int, int], bytes] = {}
    # As Java reads them: all index streams precede all others, whatever the order in the list.
    for column, kind, length in sorted(stream_entries, key=lambda stream: stream[1] not in _INDEX_STREAMS):
        if kind not in _INDEX_STREAMS | _DATA_STREAMS or (column, kind) in streams or at + length > end:
            raise OrcDamaged(f"stream {kind} of column {column} is unknown, appears twice, or outside the stripe")
        streams[column, kind] = data[at : at + length]
        at += length
    return streams


def _type(message: Message) -> Type:
    names = tuple(name.decode("utf-8", "replace") for name in message.blobs(3))
    attributes = {
        key: value for pair in message.messages(7) for key, value in zip(pair.blobs(1), pair.blobs(2), strict=False)
    }
    return Type(message.integer(1), tuple(message.integers(2)), names, attributes)


def _validate_types(types: tuple[Type, ...], uri: str) -> None:
    """Refuse a tree whose nodes are not in pre-order: a node might occur twice in it, or below itself."""
    visited = 0
    open_nodes = [(0, 1)] if types and types[0].kind == STRUCT else []
    while open_nodes:
        node, depth = open_nodes.pop()
        if node != visited or node >= len(types) or depth > _MAX_DEPTH:
            raise OrcDamaged("a tree of types that is out of order or too deep")
        visited += 1
        kind, children = types[node].kind, types[node].children
        if kind not in _SIMPLE and kind not in (LIST, MAP, STRUCT):
            raise Unsupported(f"position deletes with a column of the ORC type {kind}", file=uri)
        if len(children) != {LIST: 1, MAP: 2, STRUCT: len(types[node].names)}.get(kind, 0):
            raise OrcDamaged("a type with more or fewer children than it must have")
        open_nodes += ((child, depth + 1) for child in reversed(children))
    if not types or visited != len(types):
        raise OrcDamaged("types that form no tree below a struct")


def _stripes(footer: Message, end: int) -> tuple[tuple[int, int, int, int], ...]:
    stripes = []
    free = len(HEADER)
    for message in footer.messages(3):
        offset, index, data, size, rows = (message.integer(number) for number in (1, 2, 3, 4, 5))
        if not rows or offset < free or (free := offset + index + data + size) > end:
            raise OrcDamaged("a stripe that is empty, overlaps another, or is outside the file")
        stripes.append((rows, offset, offset + index + data, size))
    return tuple(stripes)
