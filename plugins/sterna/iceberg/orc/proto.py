"""Protocol buffers, as far as an ORC file's own metadata needs them.

Fields that aren't read pass through untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sterna.iceberg.varint import Truncated, read_varint, write_varint

_INTEGER: Final = 0
_BYTES: Final = 2
_SIZES: Final = {1: 8, 5: 4}


class OrcDamaged(Exception):
    """Internal: the bytes are no ORC file that conforms to the specification."""


@dataclass(frozen=True)
class Message:
    """One message, its fields in their order in the bytes.

    Args:
        fields: number, wire type and value of each field: a non-negative integer for wire type 0, else bytes.
    """

    fields: tuple[tuple[int, int, int | bytes], ...] = ()

    def integer(self, number: int, default: int = 0) -> int:
        """Return a field that is an integer.

        Raises:
            OrcDamaged: it is something else.
        """
        integer = default
        for at, _, value in self.fields:
            if at == number:
                if isinstance(value, bytes):
                    raise OrcDamaged(f"field {number} of a message is no integer")
                integer = value
        return integer

    def blobs(self, number: int) -> list[bytes]:
        """Return all values of a field that is a string, bytes or a message.

        Raises:
            OrcDamaged: it is something else.
        """
        blobs = []
        for at, _, value in self.fields:
            if at == number:
                if isinstance(value, int):
                    raise OrcDamaged(f"field {number} of a message is an integer")
                blobs.append(value)
        return blobs

    def messages(self, number: int) -> list[Message]:
        """Return all values of a field that is a message."""
        return [read_message(blob) for blob in self.blobs(number)]

    def integers(self, number: int) -> list[int]:
        """Return all values of a field that is a repeated integer, packed or not."""
        integers: list[int] = []
        for at, _, value in self.fields:
            if at == number and isinstance(value, int):
                integers.append(value)
            elif at == number and isinstance(value, bytes):
                offset = 0
                while offset < len(value):
                    integer, offset = read_number(value, offset)
                    integers.append(integer)
        return integers

    def put(self, number: int, *values: int | bytes) -> Message:
        """Return the message with all values of one field replaced."""
        new = tuple((number, _INTEGER if isinstance(value, int) else _BYTES, value) for value in values)
        at = next((at for at, field in enumerate(self.fields) if field[0] == number), len(self.fields))
        rest = tuple(field for field in self.fields[at:] if field[0] != number)
        return Message((*self.fields[:at], *new, *rest))

    def encode(self) -> bytes:
        """Return the message's bytes."""
        pieces: list[bytes] = []
        for number, wire, value in self.fields:
            pieces.append(write_varint(number << 3 | wire))
            if isinstance(value, int):
                pieces.append(write_varint(value))
            else:
                pieces += (write_varint(len(value)) if wire == _BYTES else b"", value)
        return b"".join(pieces)


def read_message(data: bytes) -> Message:
    """Parse a message.

    Raises:
        OrcDamaged: the bytes are none.
    """
    fields: list[tuple[int, int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = read_number(data, at)
        number, wire = key >> 3, key & 7
        if wire == _INTEGER:
            value, at = read_number(data, at)
            fields.append((number, wire, value))
            continue
        size, at = read_number(data, at) if wire == _BYTES else (_fixed_size(wire), at)
        if at + size > len(data):
            raise OrcDamaged("a message that is cut off")
        fields.append((number, wire, data[at : at + size]))
        at += size
    return Message(tuple(fields))


def _fixed_size(wire: int) -> int:
    if wire not in _SIZES:
        raise OrcDamaged(f"a message with the wire type {wire}")
    return _SIZES[wire]


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned variable-length integer at an offset, and the offset after it.

    Raises:
        OrcDamaged: the bytes end, or the number has more than 64 bits.
    """
    try:
        return read_varint(data, at)
    except Truncated as error:
        raise OrcDamaged(str(error)) from None
