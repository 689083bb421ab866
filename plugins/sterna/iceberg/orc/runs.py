"""The run lengths that ORC's streams are encoded in.

Source: ORC specification v1, "Run Length Encoding". Every reader takes the number of values that must come out, so that
no stream can produce more; what follows them is ignored, as ORC's own libraries do: its C++ writer puts values there
that belong to no row. Integers are of 64 bits and wrap.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else

from sterna.iceberg.orc.proto import OrcDamaged, read_number
from sterna.iceberg.varint import from_zigzag, to_zigzag, write_varint

_WIDTHS: Final[tuple[int, ...]] = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_MAX_RUN_VALUES: Final = 512
_MAX_LITERALS: Final = 128
_MIN_REPEAT: Final = 3
_MAX_REPEAT: Final = 130
_SAFE_BOUND: Final = 1 << 62
"""Differences of values below this fit 64 bits."""

_DIRECT: Final = 1
_DELTA: Final = 3


def read_integers(data: bytes, count: int, signed: bool) -> Any:
    """Decode integers of run length encoding version 2.

    Args:
        data: the stream's bytes.
        count: how many values to read.
        signed: whether values are zigzag encoded.

    Returns:
        An array of int64.

    Raises:
        OrcDamaged: the stream holds fewer values.
    """
    values = np.empty(count, np.int64)
    at = done = 0
    while done < count:
        run, at = _RUNS[_byte(data, at) >> 6](data, at, signed)
        values[done : done + len(run)] = run[: count - done]
        done += len(run)
    return values


def write_integers(values: Any, signed: bool) -> bytes:
    """Encode integers by run length encoding version 2; the inverse of `read_integers`."""
    return b"".join(
        _write_run(values[at : at + _MAX_RUN_VALUES], signed) for at in range(0, len(values), _MAX_RUN_VALUES)
    )


def read_bytes(data: bytes, count: int) -> Any:
    """Decode bytes of byte run length encoding.

    Raises:
        OrcDamaged: the stream holds fewer values.
    """
    values = np.empty(count, np.uint8)
    at = done = 0
    while done < count:
        control = _byte(data, at)
        size = control + _MIN_REPEAT if control < _MAX_LITERALS else 2 * _MAX_LITERALS - control
        width = 1 if control < _MAX_LITERALS else size
        run = np.frombuffer(_slice(data, at + 1, width), np.uint8)
        values[done : done + size] = run[: count - done]
        done += size
        at += 1 + width
    return values


def write_bytes(values: Any) -> bytes:
    """Encode bytes by byte run length encoding; the inverse of `read_bytes`."""
    pieces: list[bytes] = []
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    literals = bytearray()
    for start, end in pairwise(edges):
        while end - start >= _MIN_REPEAT:
            pieces += (_write_literals(literals), bytes((min(end - start, _MAX_REPEAT) - _MIN_REPEAT, values[start])))
            literals.clear()
            start += min(end - start, _MAX_REPEAT)
        literals += values[start:end].tobytes()
    return b"".join((*pieces, _write_literals(literals)))


def read_bits(data: bytes, count: int) -> Any:
    """Decode booleans, an array of bool.

    Raises:
        OrcDamaged: the stream holds fewer values.
    """
    return np.unpackbits(read_bytes(data, (count + 7) // 8), count=count).astype(bool)


def write_bits(values: Any) -> bytes:
    """Encode booleans; the inverse of `read_bits`."""
    return write_bytes(np.packbits(values))


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise OrcDamaged("a stream that is cut off")
    return data[at]


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise OrcDamaged("a stream that is cut off")
    return data[at : at + size]


def _short_repeat(data: bytes, at: int, signed: bool) -> tuple[Any, int]:
    header = data[at]
    size = (header >> 3 & 7) + 1
    value = int.from_bytes(_slice(data, at + 1, size), "big")
    return np.full((header & 7) + _MIN_REPEAT, _signed(from_zigzag(value) if signed else value)), at + 1 + size


def _direct(data: bytes, at: int, signed: bool) -> tuple[Any, int]:
    width, count = _read_header(data, at)
    values, at = _unpack(data, at + 2, count, width)
    return _unzigzag(values) if signed else values.view(np.int64), at


def _patched_base(data: bytes, at: int, signed: bool) -> tuple[Any, int]:
    width, count = _read_header(data, at)
    third, fourth = _slice(data, at + 2, 2)
    base_size, patch_width = (third >> 5) + 1, _WIDTHS[third & 31]
    entry_width, patches = (fourth >> 5) + 1 + patch_width, fourth & 31
    if entry_width > 64 or width + patch_width > 64:
        raise OrcDamaged("a run whose patches are too wide")
    base = int.from_bytes(_slice(data, at + 4, base_size), "big")
    sign = 1 << 8 * base_size - 1
    values, at = _unpack(data, at + 4 + base_size, count, width)
    entries, at = _unpack(data, at, patches, _smallest_width(entry_width))
    place = 0
    for entry in entries.tolist():
        place += entry >> patch_width
        if place >= count:
            raise OrcDamaged("a run with a patch outside")
        values[place] |= np.uint64((entry & (1 << patch_width) - 1) << width)
    return values.view(np.int64) + np.int64(sign - base if base & sign else base), at


def _delta(data: bytes, at: int, signed: bool) -> tuple[Any, int]:
    width, count = _read_header(data, at)
    first, after = read_number(data, at + 2)
    raw, after = read_number(data, after)
    step = from_zigzag(raw)
    values = np.full(count, _signed(step))
    values[0] = _signed(from_zigzag(first) if signed else first)
    if data[at] >> 1 & 31:
        steps, after = _unpack(data, after, max(0, count - 2), width)
        values[2:] = -steps.view(np.int64) if step < 0 else steps.view(np.int64)
    return np.cumsum(values), after


_RUNS: Final = (_short_repeat, _direct, _patched_base, _delta)


def _read_header(data: bytes, at: int) -> tuple[int, int]:
    header, low = _slice(data, at, 2)
    return _WIDTHS[header >> 1 & 31], ((header & 1) << 8 | low) + 1


def _unpack(data: bytes, at: int, count: int, width: int) -> tuple[Any, int]:
    size = (count * width + 7) // 8
    bits = np.unpackbits(np.frombuffer(_slice(data, at, size), np.uint8), count=count * width).reshape(count, width)
    return bits @ _weights(width), at + size


def _write_run(values: Any, signed: bool) -> bytes:
    low, high = int(values.min()), int(values.max())
    if len(values) >= _MIN_REPEAT and (-_SAFE_BOUND if signed else 0) <= low and high < _SAFE_BOUND:
        steps = np.diff(values)
        if (steps >= 0).all() or (steps[0] < 0 and (steps <= 0).all()):
            return _write_delta(int(values[0]), steps, signed)
    packed = _zigzag(values) if signed else values.view(np.uint64)
    width = _smallest_width(max(1, int(packed.max()).bit_length()))
    return _write_header(_DIRECT, width, len(values)) + _pack(packed, width)


def _write_delta(first: int, steps: Any, signed: bool) -> bytes:
    # Of a run with one step for all the width is 0, which for other runs means 1: theirs is 2 at least.
    rest = np.abs(steps[1:]).astype(np.uint64)
    width = 0 if (steps == steps[0]).all() else _smallest_width(max(2, int(rest.max()).bit_length()))
    head = _write_header(_DELTA, max(1, width), len(steps) + 1)
    start = to_zigzag(first) if signed else first
    return head + write_varint(start) + write_varint(to_zigzag(int(steps[0]))) + (_pack(rest, width) if width else b"")


def _write_header(kind: int, width: int, count: int) -> bytes:
    return bytes((kind << 6 | _WIDTHS.index(width) << 1 | (count - 1) >> 8, (count - 1) & 0xFF))


def _write_literals(literals: bytearray) -> bytes:
    parts = [bytes(literals[at : at + _MAX_LITERALS]) for at in range(0, len(literals), _MAX_LITERALS)]
    return b"".join(bytes((2 * _MAX_LITERALS - len(part),)) + part for part in parts)


def _pack(values: Any, width: int) -> bytes:
    shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
    packed: bytes = np.packbits((values[:, None] >> shifts & np.uint64(1)).astype(np.uint8)).tobytes()
    return packed


def _weights(width: int) -> Any:
    return np.uint64(1) << np.arange(width - 1, -1, -1, dtype=np.uint64)


def _smallest_width(bits: int) -> int:
    return next(width for width in _WIDTHS if width >= bits)


def _signed(value: int) -> Any:
    return np.uint64(value & 2**64 - 1).view(np.int64)


def _unzigzag(values: Any) -> Any:
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


def _zigzag(values: Any) -> Any:
    return (values << 1 ^ values >> 63).view(np.uint64)
