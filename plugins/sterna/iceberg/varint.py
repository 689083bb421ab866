"""Integers of variable length: seven bits a byte, the lowest first, as protocol buffers and Avro write them.

Sources: Protocol Buffers, "Encoding"; Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations

from typing import Final

_SHIFTS: Final = tuple(range(7, 64, 7))  # of the bytes behind the first: 64 bits take ten at most
_TRUNCATED_MESSAGE: Final = "a number that is cut off or too long"


class Truncated(Exception):
    """Internal: the bytes end inside a value, or a number has more than 64 bits."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer at an offset, and the offset after it.

    Raises:
        Truncated: the bytes end, or the number has more than 64 bits.
    """
    try:
        value = data[at]
        at += 1
        if value < 0x80:
            return value, at  # most are so short
        value &= 0x7F
        for shift in _SHIFTS:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise Truncated(_TRUNCATED_MESSAGE)
    except IndexError:
        raise Truncated(_TRUNCATED_MESSAGE) from None
    if value >> 64:
        raise Truncated("a number of more than 64 bits")
    return value, at


def write_varint(value: int) -> bytes:
    """Return an unsigned integer's bytes."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
