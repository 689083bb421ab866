"""Avro's binary encoding of numbers, bytes and strings.

Source: Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations


class Truncated(Exception):
    """Internal: the bytes end inside a value, or a number is no Avro long."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the Avro int or long at an offset, and the offset after it.

    Raises:
        Truncated: the bytes end, or the number has more than 64 bits.
    """
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Truncated
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value >> 64:
        raise Truncated
    return (value >> 1) ^ -(value & 1), at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the Avro bytes at an offset, and the offset after them.

    Raises:
        Truncated: the bytes end.
    """
    size, at = read_long(data, at)
    if size < 0 or at + size > len(data):
        raise Truncated
    return data[at : at + size], at + size


def encode_long(value: int) -> bytes:
    """Return an Avro int or long."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_bytes(value: bytes) -> bytes:
    """Return Avro bytes, or a string given as UTF-8."""
    return encode_long(len(value)) + value
