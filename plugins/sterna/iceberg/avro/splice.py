"""Rewriting an Avro file by replacing spans of its decompressed bytes; what is not replaced is copied as it is."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable

from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import Container, Group

Splice = tuple[int, int, bytes]
"""Start and end in a group's data, and the replacement bytes."""


def rewrite(container: Container, edit: Callable[[Group], list[Splice]]) -> bytes | None:
    """Return the file with splices applied, or None when there are none.

    Args:
        edit: gives the splices of a group, in order, not overlapping.

    Returns:
        The new file: same header, same blocks; blocks without a splice are kept as they are stored.

    Raises:
        BrokenMetadata: a block can't be read.
    """
    pieces = [container.data[: container.header_end]]
    changed = False
    for group in container.groups():
        splices = edit(group)
        changed = changed or bool(splices)
        pieces += _blocks(container, group, splices)
    return b"".join(pieces) if changed else None


def _blocks(container: Container, group: Group, splices: list[Splice]) -> list[bytes]:
    pieces: list[bytes] = []
    taken = 0
    for number, block in enumerate(group.blocks):
        start, end = group.bounds[number : number + 2]
        stop = bisect_left(splices, end, lo=taken, key=lambda splice: splice[0])
        if taken == stop:
            pieces.append(container.stored_block(block))
        else:
            pieces.append(
                container.encode_block(block.count, apply_splices(group.data, start, end, splices[taken:stop]))
            )
        taken = stop
    return pieces


def apply_splices(data: bytes, start: int, end: int, splices: list[Splice]) -> bytes:
    """Return `data[start:end]` with splices applied."""
    pieces: list[bytes] = []
    at = start
    for first, last, new in splices:
        pieces.append(data[at:first])
        pieces.append(new)
        at = last
    pieces.append(data[at:end])
    return b"".join(pieces)


@functools.lru_cache(maxsize=4096)
def _length_prefix(size: int) -> bytes:
    return encode_long(size)


def encode_string(value: str) -> bytes:
    """Return an Avro string."""
    data = value.encode()
    return _length_prefix(len(data)) + data
