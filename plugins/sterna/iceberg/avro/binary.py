"""Avro's binary encoding of numbers, bytes and strings.

Source: Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations

from sterna.iceberg.varint import Truncated as Truncated
from sterna.iceberg.varint import read_varint, write_varint


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the Avro int or long at an offset, and the offset after it.

    Raises:
        Truncated: the bytes end, or the number has more than 64 bits.
    """
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at  # zigzag: short for small numbers of either sign


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
    return write_varint(value << 1 if value >= 0 else ~(value << 1))


def encode_bytes(value: bytes) -> bytes:
    """Return Avro bytes, or a string given as UTF-8."""
    return encode_long(len(value)) + value
