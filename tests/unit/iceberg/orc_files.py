"""Changed tails of ORC files without compression, whose footer and postscript are plain protocol buffers."""

from __future__ import annotations

from collections.abc import Callable

from sterna.iceberg.varint import read_varint, write_varint

Fields = list[tuple[int, int | bytes]]
Edit = Callable[[Fields], Fields]


def parse(data: bytes) -> Fields:
    """The fields of a message: number, and an integer or bytes."""
    fields: Fields = []
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            fields.append((key >> 3, data[at : at + value]))
            at += value
        else:
            fields.append((key >> 3, value))
    return fields


def encode(fields: Fields) -> bytes:
    """The inverse of `parse`."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(write_varint(number << 3) + write_varint(value))
        else:
            parts.append(write_varint(number << 3 | 2) + write_varint(len(value)) + value)
    return b"".join(parts)


def put(number: int, *values: int | bytes) -> Edit:
    """An edit that gives a field these values instead of its own."""
    return lambda fields: [*(field for field in fields if field[0] != number), *((number, value) for value in values)]


def values(fields: Fields, number: int) -> list[int | bytes]:
    return [value for name, value in fields if name == number]


def footer_of(data: bytes) -> Fields:
    end, start = _places(data)
    return parse(data[start:end])


def edited(data: bytes, footer: Edit = list, postscript: Edit = list, *, chunk: bool = False) -> bytes:
    """A file with another footer, or another postscript; the footer in a chunk, for a postscript that names a codec."""
    end, start = _places(data)
    new_footer = encode(footer(parse(data[start:end])))
    if chunk:
        new_footer = (len(new_footer) << 1 | 1).to_bytes(3, "little") + new_footer  # stored as it is
    last = encode(postscript(put(1, len(new_footer))(parse(data[end:-1]))))
    return data[:start] + new_footer + last + bytes((len(last),))


def _places(data: bytes) -> tuple[int, int]:
    end = len(data) - 1 - data[-1]
    (length,) = values(parse(data[end:-1]), 1)
    assert isinstance(length, int)
    return end, end - length
