"""Integers of variable length, as Avro has them."""

from __future__ import annotations

import pytest

from sterna.iceberg.avro.binary import encode_long, read_long
from sterna.iceberg.varint import Truncated, read_varint, write_varint

NUMBERS = sorted({number for bits in range(65) for number in (2**bits - 1, 2**bits)} - {2**64})


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_written_is_read_wherever_it_stands(number: int) -> None:
    data = write_varint(number)
    assert len(data) == max(1, -(-number.bit_length() // 7))
    assert read_varint(b"\xff" + data + b"\xff", 1) == (number, 1 + len(data))
    for end in range(len(data)):
        with pytest.raises(Truncated, match="cut off"):
            read_varint(data[:end], 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "cut off"), (b"\x80" * 10 + b"\0", "too long"), (b"\xff" * 9 + b"\x02", "more than 64 bits")],
)
def test_what_is_no_number_of_64_bits_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Truncated, match=message):
        read_varint(data, 0)


def test_small_ones_of_either_sign_are_short() -> None:
    zigzag = [read_varint(encode_long(number), 0)[0] for number in (0, -1, 1, -2, 2, -(2**63))]
    assert zigzag == [0, 1, 2, 3, 4, 2**64 - 1]
    assert all(read_long(encode_long(number), 0)[0] == number for number in (0, -1, 1, -(2**63), 2**63 - 1))
