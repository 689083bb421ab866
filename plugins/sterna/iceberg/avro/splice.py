"""Rewriting an Avro file by replacing spans of its decompressed bytes; what is not replaced is copied as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import Container, Group
from sterna.libraries import np, pa, pc

Splice = tuple[int, int, bytes]
"""Start and end in a group's data, and the replacement bytes."""


@dataclass(frozen=True)
class Splices:
    """Spans of a group's data and their replacements, in order, not overlapping.

    Args:
        starts, ends: offsets in the group's data, as numpy arrays of int64.
        replacements: as many bytes values.
    """

    starts: Any
    ends: Any
    replacements: pa.BinaryArray

    @classmethod
    def of(cls, splices: Sequence[Splice]) -> Splices:
        """Return some splices as columns."""
        starts, ends = (np.array([splice[column] for splice in splices], np.int64) for column in (0, 1))
        return cls(starts, ends, pa.array([splice[2] for splice in splices], pa.binary()))


def rewrite(container: Container, edit: Callable[[Group], Splices]) -> bytes | None:
    """Return the file with splices applied, or None when there are none.

    Args:
        edit: gives the splices of a group.

    Returns:
        The new file: same header, same blocks; blocks without a splice are kept as they are stored.

    Raises:
        BrokenMetadata: a block can't be read.
    """
    pieces = [container.data[: container.header_end]]
    changed = False
    for group in container.groups():
        splices = edit(group)
        changed = changed or bool(len(splices.starts))
        pieces += _blocks(container, group, splices)
    return b"".join(pieces) if changed else None


def _blocks(container: Container, group: Group, splices: Splices) -> list[bytes]:
    pieces: list[bytes] = []
    positions = np.searchsorted(splices.starts, group.bounds).tolist()
    for number, block in enumerate(group.blocks):
        first, last = positions[number : number + 2]
        if first == last:
            pieces.append(container.stored_block(block))
        else:
            start, end = group.bounds[number : number + 2]
            within = Splices(splices.starts[first:last], splices.ends[first:last], splices.replacements[first:last])
            pieces.append(container.encode_block(block.count, apply_splices(group.data, start, end, within)))
    return pieces


def apply_splices(data: bytes, start: int, end: int, splices: Splices) -> bytes:
    """Return `data[start:end]` with splices applied, of which there is at least one."""
    # What is kept and what is replaced, by turns, is the data itself.
    offsets = np.concatenate([[start], np.stack([splices.starts, splices.ends], axis=1).ravel()[:-1]]).astype(np.int32)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    kept = pieces.take(pa.array(np.arange(0, len(pieces), 2)))
    joined = pc.binary_join_element_wise(kept, splices.replacements, b"")
    return b"".join([joined.buffers()[2] or b"", data[splices.ends[-1] : end]])


def encode_strings(values: pa.StringArray) -> pa.BinaryArray:
    """Return Avro strings."""
    lengths = pc.binary_length(values).dictionary_encode()
    prefixes = pa.array([encode_long(length) for length in lengths.dictionary.to_pylist()], pa.binary())
    return pc.binary_join_element_wise(prefixes.take(lengths.indices), values.cast(pa.binary()), b"")


def encode_string(value: str) -> bytes:
    """Return an Avro string."""
    data = value.encode()
    return encode_long(len(data)) + data
